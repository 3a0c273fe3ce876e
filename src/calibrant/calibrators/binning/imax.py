"""I-Max binning: bins placed where they tell most about the label."""

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, final, get_args

import torch
from torch import Tensor

from calibrant.calibrators.absent import warn_of_absent
from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted
from calibrant.calibrators.binning.steps import steps_of
from calibrant.calibrators.floor import floored_log_odds
from calibrant.calibrators.scores import class_by_class, class_map
from calibrant.checks import check_bins, check_known
from calibrant.numerics.certificate import Certificate
from calibrant.numerics.fast import sort_in_place
from calibrant.numerics.informative import informative_bins
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["IMax", "IMaxSharing"]

IMaxSharing: TypeAlias = Literal["shared", "classwise"]


@final
@dataclass(frozen=True)
class IMax(Calibrator):
    """Histogram binning of every class against the rest, with edges that keep the most information about the label.

    Bins of equal width or equal mass waste themselves on the many rows where a class is all but excluded; these lie
    where the label is in doubt, so that few bins cost little accuracy. One histogram for all classes together makes
    the most of few rows, and is blind to what is peculiar to a class. It hurts when two classes of a row fall into one
    bin: their order is lost, and with it a little accuracy and log-loss. Edges trust the model's own probabilities;
    scale badly overconfident ones first (``temperature+imax``). Of two classes, class 1 is binned.

    Formula: q_j ∝ m_b/N_b, b the bin of class j's log-odds λ; edges g_b maximise I(y; b) =
        H(y) − Σ_b N_b/n · H(mean of σ(λ) in bin b), with m_b of N_b rows in bin b of that class
    Rows: 300 in all if shared; classwise 200 of every class, since with fewer a bin without a hit costs more log-loss
        than all others gain.

    Args:
        n_bins: The most bins.
        sharing: ``shared``: one histogram of all classes' log-odds; ``classwise``: one for each class.

    Raises:
        InputError: If there are fewer than 2 bins, or the sharing is neither of the two.
    """

    name: ClassVar[str] = "imax"
    title: ClassVar[str] = "I-Max binning"
    family: ClassVar[CalibratorFamily] = "binning"
    paper: ClassVar[Paper] = Paper(
        "Patel et al.",
        2021,
        "Multi-Class Uncertainty Calibration via Mutual Information Maximization-based Binning",
        "arXiv:2006.13092",
    )
    preserves_accuracy: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False
    bins_every_class: ClassVar[bool] = True

    n_bins: int = 15
    sharing: IMaxSharing = "shared"

    def __post_init__(self) -> None:
        check_bins(self.n_bins, least=2)
        check_known(self.sharing, get_args(IMaxSharing), "sharing")

    def learn(self, predictions: Predictions) -> Fitted:
        scores, classes = class_by_class(predictions)
        of_class = [line[predictions.labels == label] for line, label in zip(scores, classes, strict=True)]
        if self.sharing == "shared" and predictions.n_classes > 2:
            scores, of_class = scores.reshape(1, -1), [torch.cat(of_class)]
        else:
            warn_of_absent(predictions, self.title)
        bins = [informative_bins(sort_in_place(line.clone()).cpu().numpy(), self.n_bins) for line in scores]
        lines = []
        for found, hits, every in zip(bins, of_class, scores, strict=True):
            edges = torch.from_numpy(found.edges).to(scores.device)
            share = _counts(edges, hits) / _counts(edges, every)
            lines.append((edges, floored_log_odds(share, len(predictions), predictions.n_classes)))
        certificate = Certificate(
            objective=-sum(found.information[-1] for found in bins) / len(bins),
            gradient=max(0.0, *(found.information[-1] - found.information[-2] for found in bins)),
            steps=max(len(found.information) - 1 for found in bins),
            passes=1.0,
        )
        return Fitted(class_map(steps_of(lines), predictions.n_classes), certificate)


def _counts(edges: Tensor, scores: Tensor) -> Tensor:
    """How many scores lie in each bin, (b,)."""
    return torch.bincount(torch.searchsorted(edges, scores.double()), minlength=len(edges) + 1).double()

"""Histogram binning of the top label or of each class, and I-Max bins."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, final, get_args

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted, floored_log_odds
from calibrant.calibrators.samples import class_by_class, class_map, top_label, warn_of_absent
from calibrant.checks import check_bins, check_known
from calibrant.maps import ClassBins, Steps, TopLabelMap
from calibrant.numerics.binning import bin_index, counts_by, inner_edges
from calibrant.numerics.isotonic import equal_mass_starts, informative_bins, tie_blocks
from calibrant.numerics.newton import Certificate
from calibrant.numerics.softmax import sort_in_place, working
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["ClasswiseHistogramBinning", "HistogramBinning", "IMax", "IMaxSharing", "steps_of"]


def steps_of(lines: Sequence[tuple[Tensor, Tensor]]) -> Steps:
    """One curve of all lines.

    Args:
        lines: Rising edges (b,) and the log-odds between them (b + 1,), a pair for each line.

    Example:
        >>> one_edge, no_edge = (torch.zeros(1), torch.tensor([-1.0, 1.0])), (torch.zeros(0), torch.tensor([2.0]))
        >>> curve = steps_of([one_edge, no_edge])
        >>> curve(torch.tensor([[-5.0, 5.0], [5.0, -5.0]])).tolist()
        [[-1.0, 2.0], [1.0, 2.0]]
    """
    edges, values = zip(*lines, strict=True)
    # No score lies above infinity, so what fills the values up is never read.
    return Steps(
        pad_sequence(list(edges), batch_first=True, padding_value=torch.inf),
        pad_sequence(list(values), batch_first=True),
    )


BinKind: TypeAlias = Literal["equal_width", "equal_mass"]

_ZADROZNY = Paper(
    "Zadrozny & Elkan",
    2001,
    "Obtaining calibrated probability estimates from decision trees and naive Bayesian classifiers",
    "ICML 2001, pages 609-616",
)


@final
@dataclass(frozen=True)
class HistogramBinning(Calibrator):
    """The accuracy of the predictions in a bin becomes the confidence of every prediction in it.

    No shape is assumed, so with enough rows no shape of miscalibration is too odd; and the ECE over the same bins is 0
    on the calibration rows, which says nothing about new ones. It hurts what comes after: at most ``n_bins`` different
    confidences are left, so that rankings, selective risk and log-loss get worse, and neighbouring bins may swap order.
    The prediction stays; the other classes share the rest as before.

    Formula: q = (hits in the bin of p) / (rows in it), within 1/(n + 2) of 0 and 1; an empty bin keeps its midpoint
    Rows: about 50 a bin, 750 for 15 bins. With fewer a bin's share is noise of ±√(q (1 − q)/rows), and with fewer rows
        than bins equal-mass bins hold a row each.

    Args:
        n_bins: Bins; with equal mass, ties can leave fewer.
        bins: "equal_mass" (of equal numbers of rows), or "equal_width" (of confidence), as in most papers. Equal mass
            unless said: confidences crowd near 1, so that of 15 equal widths the last bin often holds most rows, whose
            differences are lost, while others hold too few to measure.
    """

    name: ClassVar[str] = "histogram"
    title: ClassVar[str] = "Histogram binning"
    family: ClassVar[CalibratorFamily] = "binning"
    paper: ClassVar[Paper] = _ZADROZNY
    preserves_accuracy: ClassVar[bool] = True
    # The accuracy of a bin can be below that of the bin before.
    preserves_ranking: ClassVar[bool] = False

    n_bins: int = 15
    bins: BinKind = "equal_mass"

    def __post_init__(self) -> None:
        _check(self.n_bins, self.bins)

    def learn(self, predictions: Predictions) -> Fitted:
        edges, share = _binned(*top_label(predictions), self.n_bins, self.bins)
        values = floored_log_odds(share, len(predictions))
        return Fitted(TopLabelMap(steps_of([(edges, values)]), n_classes=predictions.n_classes))


@final
@dataclass(frozen=True)
class ClasswiseHistogramBinning(Calibrator):
    """Histogram binning of every class against the rest, divided by their sum.

    It corrects each class by itself, and so can move the prediction where the top-label method cannot. It hurts with
    many classes: most bins of most classes hold hardly a row, and the division by the sum undoes part of what was
    fitted. Two classes are one histogram, of class 1.

    Formula: q_j ∝ (rows of class j in the bin of p_j) / (rows in it), at least 1/((n + 2)(k − 1)) before division
    Rows: about 50 of each class in each bin that matters; 1000 of each class. A class without rows gets the smallest
        probability everywhere, with a warning.

    Args:
        n_bins: Bins of every class.
        bins: "equal_width" (of probability) or "equal_mass". Equal width unless said: nearly all rows give a class a
            probability near 0, so that of 15 equal masses 14 divide those, and the rows that matter share one bin.
    """

    name: ClassVar[str] = "histogram_classwise"
    title: ClassVar[str] = "Histogram binning, classwise"
    family: ClassVar[CalibratorFamily] = "binning"
    paper: ClassVar[Paper] = Paper(
        "Guo et al.", 2017, "On Calibration of Modern Neural Networks", "arXiv:1706.04599", "Section 4.2"
    )
    preserves_accuracy: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False
    bins_every_class: ClassVar[bool] = True

    n_bins: int = 15
    bins: BinKind = "equal_width"

    def __post_init__(self) -> None:
        _check(self.n_bins, self.bins)

    def learn(self, predictions: Predictions) -> Fitted:
        n, k = len(predictions), predictions.n_classes
        warn_of_absent(predictions, self.title)
        if self.bins == "equal_width" and k > 2:
            values = floored_log_odds(_class_shares(predictions, self.n_bins), n, k)
            return Fitted(ClassBins(values, n_classes=k))
        lines = []
        for log_odds, label in zip(*class_by_class(predictions), strict=True):
            edges, share = _binned(log_odds, predictions.labels == label, self.n_bins, self.bins)
            lines.append((edges, floored_log_odds(share, n, k)))
        return Fitted(class_map(steps_of(lines), k))


def _check(n_bins: int, bins: str) -> None:
    check_bins(n_bins)
    check_known(bins, ("equal_width", "equal_mass"), "bins")


def _binned(log_odds: Tensor, hit: Tensor, n_bins: int, bins: BinKind) -> tuple[Tensor, Tensor]:
    """Edges between bins, as log-odds, (b - 1,), and the share of hits in each, (b,)."""
    if bins == "equal_width":
        edges = torch.logit(inner_edges(n_bins, log_odds.device))
        # Exactly as the map will search them.
        return edges, _shares(*counts_by(torch.searchsorted(edges.to(log_odds), log_odds), hit, n_bins))
    ties = tie_blocks(log_odds, hit)
    up_to = ties.rows.cumsum(0)
    starts = equal_mass_starts(up_to, n_bins)
    last = torch.cat([starts[1:], starts.new_tensor([len(up_to)])]) - 1
    rows, hits = (each[last].diff(prepend=each.new_zeros(1)) for each in (up_to, ties.hits.cumsum(0)))
    return ties.edges[last[:-1]], hits / rows


def _class_shares(predictions: Predictions, n_bins: int) -> Tensor:
    """Share of every class in each bin of its probability, (k, b)."""
    k, device = predictions.n_classes, predictions.logits.device
    first = torch.arange(0, k * n_bins, n_bins, dtype=torch.int32, device=device)
    rows, hits = torch.zeros(2, k * n_bins, dtype=torch.float64, device=device)
    for block in predictions.blocks():
        cells = bin_index(working(block.logits).softmax(dim=1), n_bins).add_(first)
        rows += torch.bincount(cells.flatten(), minlength=k * n_bins)
        hits += torch.bincount(cells.gather(1, block.labels[:, None])[:, 0], minlength=k * n_bins)
    return _shares(rows.view(k, n_bins), hits.view(k, n_bins))


def _shares(rows: Tensor, hits: Tensor) -> Tensor:
    """Share of hits in bins of equal width, (..., b); the midpoint where there are no rows."""
    n_bins = rows.shape[-1]
    middle = (torch.arange(n_bins, dtype=torch.float64, device=rows.device) + 0.5) / n_bins
    return torch.where(rows > 0, hits / rows.clamp(min=1), middle)


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

"""Scaling-binning: a fitted curve, then its means over bins of equal mass."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypeAlias, final, get_args

import torch
from torch import Tensor

from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted, floored_log_odds
from calibrant.calibrators.binning.histogram import steps_of
from calibrant.calibrators.samples import class_by_class, class_map, top_label, warn_of_absent
from calibrant.checks import check_bins, check_known
from calibrant.errors import FitError
from calibrant.maps import TopLabelMap
from calibrant.numerics.isotonic import equal_mass_edges
from calibrant.numerics.logistic import LogisticFit, Targets, fit_logistic
from calibrant.numerics.newton import Certificate
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["BinnedPlatt", "ScalingBinning", "ScalingBinningMarginal", "ScalingBinningSplit", "binned_platt"]


class BinnedPlatt(NamedTuple):
    """Steps of a Platt curve for each line of scores: edges (b - 1,) and probabilities (b,)."""

    lines: list[tuple[Tensor, Tensor]]
    certificate: Certificate


def binned_platt(
    scores: Tensor, labels: Tensor, classes: Sequence[int], parts: Sequence[Tensor], n_bins: int
) -> BinnedPlatt:
    """Fit a Platt curve to each line, cut its scores into bins, and take the mean of the curve in each.

    Args:
        scores: Log-odds, (c, n).
        labels: Shape (n,).
        classes: Which label is a hit for each line.
        parts: Rows for the curves, for the edges and for the means.
        n_bins: The most bins.

    Raises:
        FitError: If a curve has no optimum.
    """
    for_curve, for_edges, for_means = (part.to(scores.device) for part in parts)
    fitted = _platt(scores[:, for_curve], labels[for_curve], torch.tensor(classes, device=scores.device))
    lines = []
    for line, weights in zip(scores, fitted.weights, strict=True):
        # Bins of equal mass of the curve are those of the score: the curve keeps the order or turns it round.
        edges = equal_mass_edges(line[for_edges], n_bins)
        means = _bin_means(edges, line[for_means], weights)
        # A bin that none of the third part falls into has rows of the second.
        spare = _bin_means(edges, line[for_edges], weights)
        lines.append((edges, torch.where(means.isnan(), spare, means)))
    return BinnedPlatt(lines, fitted.certificate())


def _platt(scores: Tensor, labels: Tensor, classes: Tensor) -> LogisticFit:
    """A slope and a shift for each line, (c, 2)."""
    hits = (labels == classes[:, None]).sum(dim=1).double()
    misses = len(labels) - hits
    # Differs from the paper: Platt's own targets, a little off 0 and 1, so that there is an optimum even where every
    # row is right, or a class has none.
    targets = Targets(labels, classes, hit=(hits + 1) / (hits + 2), miss=1 / (misses + 2))
    fitted = fit_logistic(scores, targets, lambda s: torch.stack([s, torch.ones_like(s)], dim=1))
    if not fitted.converged.all():
        line = int((~fitted.converged).nonzero()[0])
        raise FitError(
            f"the Platt curve of class {int(classes[line])} must have an optimum; none was reached in "
            f"{fitted.steps} steps (gradient {float(fitted.gradient[line]):.2g}). Look for scores of enormous size."
        )
    return fitted


def _bin_means(edges: Tensor, scores: Tensor, weights: Tensor) -> Tensor:
    """Mean of the curve in each bin, (b,); not a number where a bin is empty."""
    scores = scores.double()
    place = torch.searchsorted(edges, scores)
    sums = torch.bincount(place, weights=(weights[0] * scores + weights[1]).sigmoid(), minlength=len(edges) + 1)
    return sums / torch.bincount(place, minlength=len(edges) + 1)


ScalingBinningSplit: TypeAlias = Literal["three_way", "shared"]
_KUMAR = Paper("Kumar et al.", 2019, "Verified Uncertainty Calibration", "arXiv:1909.10155")


@final
@dataclass(frozen=True)
class ScalingBinning(Calibrator):
    """Platt scaling of the confidence, then in each bin of equal mass the mean of what it gives.

    Platt scaling alone has an error that no amount of data can measure, because it gives every row another number; a
    histogram's error can be measured, but its bins are noisy. Means of the fitted curve are few numbers, so that the
    calibration error after it is known, and nearly as exact as the curve. It is worth the loss of detail where that
    error must be guaranteed; where log-loss or ranking count, leave it. Only the confidence of the predicted class is
    calibrated, of two classes too; the others share the rest as before, so that of many classes the log-loss wants a
    temperature first (``temperature+scaling_binning``).

    Formula: q = mean of g over the rows of part 3 in the bin of g(s); g(s) = σ(w s + b) fitted on part 1, bins of equal
        mass on part 2, s the log-odds of the predicted class
    Rows: 50 a bin in each part, so 2,000 for 15 bins in three parts; fewer make bins coarse, not wrong.

    Args:
        n_bins: The most bins.
        split: ``three_way``: curve, edges and means each from a third of the rows, as the paper's guarantee demands;
            ``shared``: all from all rows, as the authors' program does.
        seed: Random seed of the split into three parts.

    Raises:
        InputError: If there is no bin, or the split is neither of the two.
        FitError: If there are fewer than three rows to split.
    """

    name: ClassVar[str] = "scaling_binning"
    title: ClassVar[str] = "Scaling-binning"
    family: ClassVar[CalibratorFamily] = "binning"
    paper: ClassVar[Paper] = _KUMAR
    preserves_accuracy: ClassVar[bool] = True
    preserves_ranking: ClassVar[bool] = False  # a model that is surer where it is wrong gets a falling curve

    n_bins: int = 15
    split: ScalingBinningSplit = "three_way"
    seed: int = 0

    def __post_init__(self) -> None:
        check_bins(self.n_bins)
        check_known(self.split, get_args(ScalingBinningSplit), "split")

    def learn(self, predictions: Predictions) -> Fitted:
        scores, correct = top_label(predictions)
        parts = _parts(len(predictions), self.split, self.seed)
        means = binned_platt(scores[None], correct.long(), range(1, 2), parts, self.n_bins)
        curve = steps_of([(edges, floored_log_odds(probs, len(predictions))) for edges, probs in means.lines])
        return Fitted(TopLabelMap(curve, n_classes=predictions.n_classes), means.certificate)


@final
@dataclass(frozen=True)
class ScalingBinningMarginal(Calibrator):
    """Scaling-binning of every class against the rest, then divided by their sum.

    As :class:`ScalingBinning`, but calibrates what is claimed of every class, not only of the predicted one; of two
    classes it is the paper's method for one probability, that of class 1. Division by the sum undoes part of the
    guarantee. It hurts with fewer bins than classes: the top bin of a class then holds mostly rows of other classes,
    and the order of classes within a row is lost (100 classes and 15 bins: accuracy fell from .76 to .43). A class
    without calibration rows is all but ruled out, with a warning.

    Formula: q_j ∝ mean of g_j over the rows of part 3 in the bin of g_j(s_j); g_j(s) = σ(w_j s + b_j) fitted on part 1,
        bins of equal mass on part 2, s_j the log-odds of class j
    Rows: about 20 a class in each part.

    Args:
        n_bins: The most bins for each class; None for 15, or twice as many as classes if that is more.
        split: As of :class:`ScalingBinning`.
        seed: Random seed of the split into three parts.

    Raises:
        InputError: If there is no bin, or the split is neither of the two.
        FitError: If there are fewer than three rows to split.
    """

    name: ClassVar[str] = "scaling_binning_marginal"
    title: ClassVar[str] = "Scaling-binning, class by class"
    family: ClassVar[CalibratorFamily] = "binning"
    paper: ClassVar[Paper] = _KUMAR
    preserves_accuracy: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False

    n_bins: int | None = None
    split: ScalingBinningSplit = "three_way"
    seed: int = 0

    def __post_init__(self) -> None:
        check_bins(1 if self.n_bins is None else self.n_bins)
        check_known(self.split, get_args(ScalingBinningSplit), "split")

    def learn(self, predictions: Predictions) -> Fitted:
        n, k = len(predictions), predictions.n_classes
        warn_of_absent(predictions, self.title)
        n_bins = max(15, 2 * k) if self.n_bins is None else self.n_bins
        scores, classes = class_by_class(predictions)
        means = binned_platt(scores, predictions.labels, classes, _parts(n, self.split, self.seed), n_bins)
        curve = steps_of([(edges, floored_log_odds(probs, n, k)) for edges, probs in means.lines])
        # Differs from the paper: divided by their sum, so that they are probabilities.
        return Fitted(class_map(curve, k), means.certificate)


def _parts(n: int, split: ScalingBinningSplit, seed: int) -> list[Tensor]:
    """Rows for the curve, for the edges and for the means."""
    if split == "shared":
        return [torch.arange(n)] * 3
    if n < 3:
        raise FitError(f"a three-way split must have at least three rows; got {n}. Give more rows, or split='shared'.")
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return list(order.tensor_split(3))

"""Curves of the score: spline calibration, scaling-binning, and inductive Venn-Abers predictors."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, final

import numpy as np
import torch
from torch import Tensor

from calibrant.calibrators.base import (
    Calibrator,
    Fitted,
    class_map,
    floored_log_odds,
    log_odds_bounds,
    one_vs_rest_log_odds,
    top_label,
    warn_of_missing_classes,
)
from calibrant.calibrators.binning import padded
from calibrant.checks import AtLeastTwo, BinCount, Seed
from calibrant.errors import FitError, InputError
from calibrant.maps import Line, Steps, TopLabelMap
from calibrant.numerics.isotonic import Blocks, equal_mass_edges, fits_with_one_more, tie_blocks
from calibrant.numerics.logistic import Targets, fit_logistic
from calibrant.numerics.newton import Certificate
from calibrant.paper import GUPTA, KUMAR, Paper
from calibrant.predictions import Predictions, check_predictions

# The curve is straight between so many scores, evenly spread over the ranks; the spline has only a few bends.
_KNOTS_KEPT = 2048


@final
@dataclass(frozen=True)
class SplineCalibration(Calibrator, name="spline", title="Spline fitting", family="curve", paper=GUPTA):
    """Add to each confidence the slope of a smooth curve: accuracy minus confidence at its rank.

    The errors summed from the least to the most confident sample form a curve that is flat for a calibrated model; a
    natural cubic spline through it needs no bins, and its slope is the correction. It is smooth in the rank, but need
    not rise: a more confident sample can end below a less confident one, and the correction may overshoot where
    confidences crowd near 1. Only the confidence of the predicted class is calibrated, also with two classes; the
    others share the rest in proportion, so with many classes the log-loss needs a temperature first
    (``temperature+spline``).

    Formula: q = s + h'(t); h least squares to t_i ↦ (1/n) Σ_{j<=i} (a_j − s_j), sorted by confidence s, t_i = i/n
    Samples: 500 or more, at least one per knot; with fewer, use fewer knots.

    Args:
        n_knots: Knots of the spline, evenly spaced over the ranks, both ends included.
    """

    preserves_accuracy = True

    n_knots: AtLeastTwo = 6

    def _fit(self, predictions: Predictions) -> Fitted:
        n, size = len(predictions), predictions.effective_size
        if n < self.n_knots:
            raise FitError(
                f"a spline of {self.n_knots} knots must have at least as many samples; got {n}. "
                "Use more samples or fewer knots, or temperature scaling."
            )
        ties = tie_blocks(*top_label(predictions), predictions.sample_counts)
        scores = (ties.low + ties.high) / 2
        calibrated = scores.sigmoid() + self._lacking(ties, scores, max(n if size == n else round(size), self.n_knots))
        # Differs from the paper: straight between log-odds, not between confidences, as all curves here are.
        kept = _even_ranks(ties.rows)
        curve = Line(scores[kept][None], floored_log_odds(calibrated.clamp(0, 1), size)[kept][None])
        return Fitted(TopLabelMap(curve, n_classes=predictions.n_classes))

    def _lacking(self, ties: Blocks, scores: Tensor, n: int) -> Tensor:
        """Return the slope of the error curve, smoothed at n even ranks, at each distinct score, (m,)."""
        up_to = ties.rows.cumsum(0) / ties.rows.sum()
        rank = torch.arange(1, n + 1, dtype=torch.float64, device=up_to.device) / n
        # Tied samples share their mean error, so that their order does not matter: the curve is straight between them.
        gap = ties.hits / ties.rows - scores.sigmoid()
        at = torch.searchsorted(up_to, rank - 0.25 / n).clamp(max=len(up_to) - 1)
        total = (gap * ties.rows).cumsum(0) / ties.rows.sum()
        error = total[at] - gap[at] * (up_to[at] - rank)
        # Least squares by QR: the library's routine gives other last digits each time.
        orthogonal, triangle = torch.linalg.qr(_natural_cubic(rank, self.n_knots))
        coefficients = torch.linalg.solve_triangular(triangle, orthogonal.T @ error[:, None], upper=True)
        # Differs from the paper: the mean slope over the ranks of tied samples, the slope itself for one sample.
        ends = torch.cat([rank.new_zeros(1), up_to])
        smooth = (_natural_cubic(ends, self.n_knots) @ coefficients)[:, 0]
        return smooth.diff() / ends.diff()


def _natural_cubic(t: Tensor, n_knots: int) -> Tensor:
    """Return a basis of the cubic splines on 0..1 whose curvature vanishes at both ends, (m,) -> (m, n_knots)."""
    knots = torch.linspace(0, 1, n_knots, dtype=t.dtype, device=t.device)[:-1]
    # (t - 1)³₊ belongs to each but is zero on 0..1.
    powers = (t[:, None] - knots).clamp(min=0) ** 3 / (1 - knots)
    return torch.cat([torch.ones_like(t)[:, None], t[:, None], powers[:, :-1] - powers[:, -1:]], dim=1)


def _even_ranks(count: Tensor) -> Tensor:
    """Return positions of scores evenly spread over the samples, both ends included; at least two."""
    if len(count) == 1:
        return torch.zeros(2, dtype=torch.int64, device=count.device)
    middle = count.cumsum(0) - count / 2
    wanted = torch.linspace(0, float(count.sum()), _KNOTS_KEPT, dtype=count.dtype, device=count.device)
    return torch.searchsorted(middle, wanted).clamp(max=len(count) - 1).unique()


# A score this close to a calibration score counts as equal: rounding in float32 moves log-odds by less.
_SAME = 1e-6
# With many classes log-odds are rounded to this, or the map would hold two numbers per calibration sample and class.
_RESOLUTION = 0.01
_VOVK = Paper("Vovk, Petej & Fedorova", 2015,
              "Large-scale probabilistic predictors with and without guarantees of validity",
              "arXiv:1511.00213")  # fmt: skip


@final
@dataclass(frozen=True)
class VennAbers(Calibrator, name="venn_abers", title="Inductive Venn-Abers", family="curve", paper=_VOVK):
    """Isotonic regression fitted twice for each new sample, once as a hit and once as a miss, and the two merged.

    Where plain isotonic regression gives 0 or 1 after a few samples, this one accounts for what one more label would
    change and stays away from both, by the rule of succession. With two classes it needs no tuning, keeps the order of
    the samples and is among the safest choices. With more, every class is calibrated against the rest and the results
    are divided by their sum: it hurts with many classes and few samples, because each class keeps at least 1/(n + 2)
    and together they take k/(n + 2) from the right class.

    Formula: q = p1/(1 − p0 + p1); p0 and p1 the isotonic fits at s with (s, 0) and (s, 1) added; q_j/Σ_i q_i if k > 2
    Samples: about 100 for two classes; 50 per class beyond, or probabilities are far too even. A class without samples
        gets the smallest probability everywhere, with a warning.
    """

    def _fit(self, predictions: Predictions) -> Fitted:
        warn_of_missing_classes(predictions, self.title)
        k, lines = predictions.n_classes, []
        bounds = log_odds_bounds(predictions.effective_size, k)
        for cells in _class_cells(predictions):
            log_odds = cells.upper.log() - torch.log1p(-cells.lower)
            if k > 2:
                log_odds = (log_odds / _RESOLUTION).round() * _RESOLUTION
            # Cells of equal value are joined.
            changes = torch.from_numpy(np.flatnonzero(log_odds.diff().numpy()))
            values = torch.cat([log_odds[:1], log_odds[changes + 1]])
            lines.append((cells.edges[changes], values.clamp(*bounds)))
        return Fitted(class_map(Steps(*padded(lines)).to(predictions.logits.device), k))


class VennAbersInterval(NamedTuple):
    """Probability of a class if the sample were a miss, and if it were a hit, (n, c) each, float64.

    With two classes c is 1 and both are of class 1; with more there is a column per class, before normalisation.
    """

    lower: Tensor
    upper: Tensor


def venn_abers_interval(calibration: Predictions, predictions: Predictions) -> VennAbersInterval:
    """Return the pair that :class:`VennAbers` merges: far apart where calibration samples are few.

    If samples are exchangeable, one of the two is calibrated exactly, whatever the data; which one is unknown. With
    uneven weights it is so only nearly.

    Args:
        calibration: Held-out samples.
        predictions: Samples to compute the pair for; their labels are not used.
    """
    for given in (calibration, predictions):
        check_predictions(given, "venn_abers_interval")
    if calibration.n_classes != predictions.n_classes:
        raise InputError(f"both must have the same classes; got {calibration.n_classes} and {predictions.n_classes}.")
    scores = one_vs_rest_log_odds(predictions)[0].cpu()
    lower, upper = (torch.empty_like(scores, dtype=torch.float64) for _ in range(2))
    for column, (cells, line) in enumerate(zip(_class_cells(calibration.with_positive_weights()), scores, strict=True)):
        place = torch.searchsorted(cells.edges, line.double())
        lower[column], upper[column] = cells.lower[place], cells.upper[place]
    return VennAbersInterval(*(part.T.to(predictions.logits.device) for part in (lower, upper)))


class _Cells(NamedTuple):
    """Both fits, constant between the edges: below all scores, at the first, between it and the second, and so on."""

    edges: Tensor  # (2m,)
    lower: Tensor  # (2m + 1,)
    upper: Tensor  # (2m + 1,)


def _class_cells(predictions: Predictions) -> Iterator[_Cells]:
    """Yield both fits of every class against the rest; of two classes, those of class 1. On the CPU."""
    labels, weights = predictions.labels.cpu(), predictions.sample_counts
    weights = None if weights is None else weights.cpu()
    for scores, label in zip(*(part.cpu() for part in one_vs_rest_log_odds(predictions)), strict=True):
        yield _cells(tie_blocks(scores, labels == label, weights))


def _cells(ties: Blocks) -> _Cells:
    misses, hits = (torch.from_numpy(fit) for fit in fits_with_one_more(ties.rows.numpy(), ties.hits.numpy()))
    # A hit between two scores counts as at the upper one, a miss as at the lower one.
    lower = torch.cat([misses.new_zeros(1), misses.repeat_interleave(2)])
    upper = torch.cat([hits.repeat_interleave(2), hits.new_ones(1)])
    # A score is a cell of its own with a small width, but never beyond halfway to its neighbours.
    width, end = _SAME * (1 + ties.high.abs()), ties.high.new_full((1,), math.inf)
    below = torch.maximum(ties.low - width, torch.cat([-end, ties.edges]))
    above = torch.minimum(ties.high + width, torch.cat([ties.edges, end]))
    return _Cells(torch.stack([below, above], dim=1).flatten(), lower, upper)


def _binned_platt(
    method: "ScalingBinning | ScalingBinningMarginal",
    scores: Tensor,
    labels: Tensor,
    classes: Tensor,
    counts: Tensor | None,
    n_bins: int,
) -> tuple[list[tuple[Tensor, Tensor]], Certificate]:
    """Fit a Platt curve to each line of scores, (c, n), and average it in bins: edges (b - 1,) and probabilities (b,).

    ``classes`` are the labels that are a hit for each line, (c,); ``counts``, (n,), how much each sample counts.
    """
    n = len(labels)
    if method.split == "shared":
        for_curve = for_edges = for_means = torch.arange(n, device=scores.device)
    elif n < 3:
        raise FitError(f"a three-way split must have at least three samples; got {n}. Use more, or split='shared'.")
    else:
        order = torch.randperm(n, generator=torch.Generator().manual_seed(method.seed)).to(scores.device)
        for_curve, for_edges, for_means = order.tensor_split(3)
    # Differs from the paper: Platt's smoothed targets, so that there is an optimum even where every sample is right, or
    # a class has none.
    hit = labels[for_curve] == classes[:, None]
    parts = [None if counts is None else counts[part] for part in (for_curve, for_edges, for_means)]
    hits = hit.sum(dim=1).double() if parts[0] is None else hit.double() @ parts[0]
    misses = (len(for_curve) if parts[0] is None else parts[0].sum()) - hits
    targets = Targets(labels[for_curve], classes, hit=(hits + 1) / (hits + 2), miss=1 / (misses + 2))
    line_of = lambda s: torch.stack([s, torch.ones_like(s)], dim=1)  # noqa: E731
    fit = fit_logistic(scores[:, for_curve], targets, line_of, weights=parts[0])
    if not fit.converged.all():
        place = int((~fit.converged).nonzero()[0])
        raise FitError(
            f"the Platt curve of class {int(classes[place])} must have an optimum; none was reached in {fit.steps} "
            f"steps (gradient {float(fit.gradient[place]):.2g}). Check the logits for extreme values."
        )
    lines = []
    for line, weights in zip(scores, fit.weights, strict=True):
        # Bins of equal mass of the curve are those of the score: the curve keeps the order or reverses it.
        edges = equal_mass_edges(line[for_edges], n_bins, parts[1])
        means = _bin_means(edges, line[for_means], weights, parts[2])
        # A bin without samples of the third part has samples of the second.
        spare = _bin_means(edges, line[for_edges], weights, parts[1])
        lines.append((edges, torch.where(means.isnan(), spare, means)))
    return lines, fit.certificate()


def _bin_means(edges: Tensor, scores: Tensor, weights: Tensor, counts: Tensor | None) -> Tensor:
    """Return the mean of the curve in each bin, (b,); NaN where a bin is empty."""
    scores = scores.double()
    place = torch.searchsorted(edges, scores)
    values = (weights[0] * scores + weights[1]).sigmoid()
    sums = torch.bincount(place, values if counts is None else values * counts, minlength=len(edges) + 1)
    return sums / torch.bincount(place, counts, minlength=len(edges) + 1)


ScalingBinningSplit: TypeAlias = Literal["three_way", "shared"]


@final
@dataclass(frozen=True)
class ScalingBinning(Calibrator, name="scaling_binning", title="Scaling-binning", family="binning", paper=KUMAR):
    """Platt scaling of the confidence, then its mean in each bin of equal mass.

    The error of Platt scaling alone cannot be measured with any amount of data, because every sample gets another
    number; a histogram's error can be measured, but its bins are noisy. Means of the fitted curve are few numbers, so
    the calibration error after it can be measured, and they are nearly as exact as the curve. That is worth the loss of
    detail where the error must be guaranteed, and not where log-loss or ranking count. Only the confidence of the
    predicted class is calibrated, also with two classes; the others share the rest in proportion, so with many classes
    the log-loss needs a temperature first (``temperature+scaling_binning``).

    Formula: q = mean of g over the samples of part 3 in the bin of g(s); g(s) = σ(w s + b) fitted on part 1, bins of
        equal mass on part 2, s the log-odds of the predicted class
    Samples: 50 per bin in each part, so 2,000 for 15 bins in three parts; fewer make bins coarse, not wrong.

    Args:
        n_bins: The most bins.
        split: ``three_way``: curve, edges and means each from a third of the samples, as the paper's guarantee
            demands; ``shared``: all from all samples, as in the authors' program.
        seed: Random seed of the split into three parts.
    """

    preserves_accuracy = True
    preserves_ranking = False  # a model that is more confident where it is wrong gets a falling curve

    n_bins: BinCount = 15
    split: ScalingBinningSplit = "three_way"
    seed: Seed = 0

    def _fit(self, predictions: Predictions) -> Fitted:
        scores, correct = top_label(predictions)
        hit = torch.ones(1, dtype=torch.int64, device=scores.device)
        counts, size = predictions.sample_counts, predictions.effective_size
        [(edges, probs)], certificate = _binned_platt(self, scores[None], correct.long(), hit, counts, self.n_bins)
        curve = Steps(edges[None], floored_log_odds(probs, size)[None])
        return Fitted(TopLabelMap(curve, n_classes=predictions.n_classes), certificate)


@final
@dataclass(frozen=True)
class ScalingBinningMarginal(
    Calibrator, name="scaling_binning_marginal", title="Scaling-binning, class by class", family="binning", paper=KUMAR
):
    """Scaling-binning of every class against the rest, then divided by their sum.

    As :class:`ScalingBinning`, but it calibrates the probability of every class, not only of the predicted one; with
    two classes it is the paper's method for one probability, that of class 1. Division by the sum undoes part of the
    guarantee. It hurts with fewer bins than classes: the top bin of a class then holds mostly samples of other classes,
    and the order of classes within a sample is lost (100 classes and 15 bins: accuracy fell from .76 to .43). A class
    without calibration samples is all but ruled out, with a warning.

    Formula: q_j ∝ mean of g_j over the samples of part 3 in the bin of g_j(s_j); g_j(s) = σ(w_j s + b_j) fitted on part
        1, bins of equal mass on part 2, s_j the log-odds of class j
    Samples: about 20 per class in each part.

    Args:
        n_bins: The most bins for each class; None for 15, or twice as many as classes if that is more.
        split: As for :class:`ScalingBinning`.
        seed: Random seed of the split into three parts.
    """

    n_bins: BinCount | None = None
    split: ScalingBinningSplit = "three_way"
    seed: Seed = 0

    def _fit(self, predictions: Predictions) -> Fitted:
        n, k = predictions.effective_size, predictions.n_classes
        warn_of_missing_classes(predictions, self.title)
        n_bins = max(15, 2 * k) if self.n_bins is None else self.n_bins
        scores, classes = one_vs_rest_log_odds(predictions)
        lines, certificate = _binned_platt(self, scores, predictions.labels, classes, predictions.sample_counts, n_bins)
        curve = Steps(*padded([(edges, floored_log_odds(probs, n, k)) for edges, probs in lines]))
        # Differs from the paper: divided by their sum, so that they are probabilities.
        return Fitted(class_map(curve, k), certificate)

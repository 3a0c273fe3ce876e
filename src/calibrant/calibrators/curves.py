"""Spline calibration, and inductive Venn-Abers predictors."""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted, floored_log_odds, log_odds_bounds
from calibrant.calibrators.binning.histogram import steps_of
from calibrant.calibrators.samples import class_by_class, class_map, top_label, warn_of_absent
from calibrant.checks import check_at_least
from calibrant.errors import FitError, InputError
from calibrant.maps import Line, TopLabelMap
from calibrant.numerics.isotonic import Blocks, fits_with_one_more, tie_blocks
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["SplineCalibration", "VennAbers", "VennAbersInterval", "venn_abers_interval"]

# The curve is straight between so many scores, spread evenly over the ranks; the spline bends a few times in all.
_KNOTS_KEPT = 2048


@final
@dataclass(frozen=True)
class SplineCalibration(Calibrator):
    """Add to each confidence what a smooth curve says it lacks: right answers minus claimed ones at its rank.

    The errors summed up from the least sure row to the surest form a curve that is flat for a calibrated model; a
    natural cubic spline through it needs no bins, and its slope is the correction. It is smooth in the rank, not
    forced to rise: a surer row can end below a less sure one, and the correction may overshoot where confidences crowd
    near 1. Only the confidence of the predicted class is calibrated, of two classes too; the others share the rest as
    before, so that of many classes the log-loss wants a temperature first (``temperature+spline``).

    Formula: q = s + h'(t); h least squares to t_i ↦ (1/n) Σ_{j<=i} (a_j − s_j), rows sorted by confidence s, t_i = i/n
    Rows: 500 or more, at least one a knot; with fewer, use fewer knots.

    Args:
        n_knots: Knots of the spline, evenly spaced over the ranks, both ends included.

    Raises:
        InputError: If there are fewer than 2 knots.
        FitError: If there are fewer rows than knots.
    """

    name: ClassVar[str] = "spline"
    title: ClassVar[str] = "Spline fitting"
    family: ClassVar[CalibratorFamily] = "curve"
    paper: ClassVar[Paper] = Paper(
        "Gupta et al.", 2021, "Calibration of Neural Networks using Splines", "arXiv:2006.12800"
    )
    preserves_accuracy: ClassVar[bool] = True
    preserves_ranking: ClassVar[bool] = False

    n_knots: int = 6

    def __post_init__(self) -> None:
        check_at_least(self.n_knots, 2, "n_knots")

    def learn(self, predictions: Predictions) -> Fitted:
        n = len(predictions)
        if n < self.n_knots:
            raise FitError(
                f"a spline of {self.n_knots} knots must have at least as many rows; got {n}. "
                "Give it more rows or fewer knots, or use temperature scaling."
            )
        ties = tie_blocks(*top_label(predictions))
        scores = (ties.low + ties.high) / 2
        calibrated = scores.sigmoid() + self._lacking(ties, scores)
        # Differs from the paper: straight between log-odds, not between confidences, as all curves here are.
        kept = _even_ranks(ties.rows)
        curve = Line(scores[kept][None], floored_log_odds(calibrated.clamp(0, 1), n)[kept][None])
        return Fitted(TopLabelMap(curve, n_classes=predictions.n_classes))

    def _lacking(self, ties: Blocks, scores: Tensor) -> Tensor:
        """Slope of the smoothed error curve at each distinct score, (m,)."""
        rows = ties.rows.long()
        n = int(rows.sum())
        # Rows that tie share their mean error, so that their order does not matter.
        error = (ties.hits / ties.rows - scores.sigmoid()).repeat_interleave(rows).cumsum(0) / n
        rank = torch.arange(1, n + 1, dtype=torch.float64, device=error.device) / n
        # Least squares by hand: the library's routine gives other last digits each time.
        orthogonal, triangle = torch.linalg.qr(_natural_cubic(rank, self.n_knots))
        coefficients = torch.linalg.solve_triangular(triangle, orthogonal.T @ error[:, None], upper=True)
        # Differs from the paper: the mean slope over the ranks of the score, which for a lone row is the slope at it.
        ends = torch.cat([rank.new_zeros(1), ties.rows.cumsum(0) / n])
        smooth = (_natural_cubic(ends, self.n_knots) @ coefficients)[:, 0]
        return smooth.diff() / ends.diff()


def _natural_cubic(t: Tensor, n_knots: int) -> Tensor:
    """A basis of the cubic splines on 0..1 whose curvature vanishes at both ends, (m,) -> (m, n_knots)."""
    knots = torch.linspace(0, 1, n_knots, dtype=t.dtype, device=t.device)[:-1]
    # (t - 1)³₊ belongs to each but is zero on 0..1.
    powers = (t[:, None] - knots).clamp(min=0) ** 3 / (1 - knots)
    return torch.cat([torch.ones_like(t)[:, None], t[:, None], powers[:, :-1] - powers[:, -1:]], dim=1)


def _even_ranks(count: Tensor) -> Tensor:
    """Positions of at most so many scores, both ends among them, evenly spread over the rows; at least two."""
    if len(count) == 1:
        return torch.zeros(2, dtype=torch.int64, device=count.device)
    middle = count.cumsum(0) - count / 2
    wanted = torch.linspace(0, float(count.sum()), _KNOTS_KEPT, dtype=count.dtype, device=count.device)
    return torch.searchsorted(middle, wanted).clamp(max=len(count) - 1).unique()


# A score this close to a calibration score is that score: rounding in float32 moves log-odds by less.
_SAME = 1e-6
# Of many classes, log-odds are kept to this, or the map would hold two numbers for every calibration row and class.
_RESOLUTION = 0.01


@final
@dataclass(frozen=True)
class VennAbers(Calibrator):
    """Isotonic regression fitted twice for each new row, once as if it were a hit and once a miss, and the two merged.

    Where plain isotonic regression answers 0 or 1 after a few rows, this one knows what one more label would change and
    stays away from both, by just the rule of succession. Of two classes it needs no tuning, keeps the order of the
    rows and is among the safest choices. With more, every class is calibrated against the rest and the results are
    divided by their sum: it hurts when there are many classes and few rows, because each class keeps at least
    1/(n + 2) and together they take k/(n + 2) from the class that deserves it.

    Formula: q = p1/(1 − p0 + p1); p0 and p1 the isotonic fits at s with (s, 0) and (s, 1) added; q_j/Σ_i q_i if k > 2
    Rows: about 100 for two classes; 50 a class beyond, or answers are far too cautious. A class
        without rows gets the smallest probability everywhere, with a warning.
    """

    name: ClassVar[str] = "venn_abers"
    title: ClassVar[str] = "Inductive Venn-Abers"
    family: ClassVar[CalibratorFamily] = "curve"
    paper: ClassVar[Paper] = Paper(
        "Vovk, Petej & Fedorova",
        2015,
        "Large-scale probabilistic predictors with and without guarantees of validity",
        "arXiv:1511.00213",
    )
    preserves_accuracy: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False

    def learn(self, predictions: Predictions) -> Fitted:
        warn_of_absent(predictions, self.title)
        scores, classes = class_by_class(predictions)
        resolution = 0.0 if predictions.n_classes == 2 else _RESOLUTION
        labels = predictions.labels.cpu()
        lines = [
            _merged(_cells(tie_blocks(line, labels == label)), resolution)
            for line, label in zip(scores.cpu(), classes, strict=True)
        ]
        bounds = log_odds_bounds(len(predictions), predictions.n_classes)
        curve = steps_of([(edges, values.clamp(*bounds)) for edges, values in lines])
        return Fitted(class_map(curve.to(predictions.logits.device), predictions.n_classes))


class VennAbersInterval(NamedTuple):
    """What a class's probability would be had its row been a miss, and a hit, (n, c) each, float64.

    Of two classes c is 1 and both are about class 1; of more there is a column for each class, before normalisation.
    """

    lower: Tensor
    upper: Tensor


def venn_abers_interval(calibration: Predictions, predictions: Predictions) -> VennAbersInterval:
    """The pair that :class:`VennAbers` merges: wide where the calibration rows are few.

    One of the two is calibrated exactly, whatever the data, provided that rows are exchangeable; which one, nobody
    knows.

    Args:
        calibration: Held-out rows.
        predictions: The rows asked about; their labels are not looked at.

    Raises:
        InputError: If the two have different numbers of classes.
    """
    if calibration.n_classes != predictions.n_classes:
        raise InputError(
            f"both must have the same classes; got {calibration.n_classes} to calibrate and {predictions.n_classes}."
        )
    known, classes = class_by_class(calibration)
    asked, _ = class_by_class(predictions)
    lower, upper = torch.empty_like(asked, dtype=torch.float64), torch.empty_like(asked, dtype=torch.float64)
    for column, (line, label) in enumerate(zip(known, classes, strict=True)):
        cells = _cells(tie_blocks(line, calibration.labels == label))
        place = torch.searchsorted(cells.edges, asked[column].double())
        lower[column], upper[column] = cells.lower[place].to(lower), cells.upper[place].to(upper)
    return VennAbersInterval(lower.T, upper.T)


class _Cells(NamedTuple):
    """Both fits, constant between the edges: below all scores, at the first, between it and the second, and so on."""

    edges: Tensor  # (2m,)
    lower: Tensor  # (2m + 1,)
    upper: Tensor  # (2m + 1,)


def _cells(ties: Blocks) -> _Cells:
    misses, hits = (torch.from_numpy(each) for each in fits_with_one_more(ties.rows.numpy(), ties.hits.numpy()))
    # A hit between two scores counts as at the upper one, a miss as at the lower one.
    lower = torch.cat([misses.new_zeros(1), misses.repeat_interleave(2)])
    upper = torch.cat([hits.repeat_interleave(2), hits.new_ones(1)])
    # A score itself is a cell of its own, made a hair wide, but never beyond halfway to its neighbours.
    hair, end = _SAME * (1 + ties.high.abs()), ties.high.new_full((1,), math.inf)
    below = torch.maximum(ties.low - hair, torch.cat([-end, ties.edges]))
    above = torch.minimum(ties.high + hair, torch.cat([ties.edges, end]))
    return _Cells(torch.stack([below, above], dim=1).flatten(), lower, upper)


def _merged(cells: _Cells, resolution: float) -> tuple[Tensor, Tensor]:
    """Edges and log-odds of the two fits merged into one, cells of equal value joined."""
    log_odds = cells.upper.log() - torch.log1p(-cells.lower)
    if resolution:
        log_odds = (log_odds / resolution).round() * resolution
    changes = torch.from_numpy(np.flatnonzero(log_odds.diff().numpy()))
    return cells.edges[changes], torch.cat([log_odds[:1], log_odds[changes + 1]])

"""Spline calibration: the slope of a smoothed error curve is what the confidence lacks."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted
from calibrant.calibrators.floor import floored_log_odds
from calibrant.calibrators.scores import top_label
from calibrant.checks import check_at_least
from calibrant.errors import FitError
from calibrant.maps import Line, TopLabelMap
from calibrant.numerics.isotonic import Blocks, tie_blocks
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["SplineCalibration"]

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

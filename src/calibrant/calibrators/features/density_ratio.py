"""Density-ratio calibration: how often rows of this confidence and proximity were right."""

import math
import warnings
from dataclasses import dataclass, replace
from typing import ClassVar, Self, final, get_args

import torch
from torch import Tensor

from calibrant.calibrators.base import CalibratorFamily
from calibrant.calibrators.features.proximity import XIONG, FeatureCalibrator
from calibrant.calibrators.floor import log_odds_bounds
from calibrant.calibrators.scores import top_label
from calibrant.checks import check_at_least, check_known
from calibrant.errors import CalibrantWarning
from calibrant.maps import Table
from calibrant.numerics.density import Axis, grid_density, normal_reference
from calibrant.numerics.neighbours import Closeness
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["DensityRatioCalibration"]

# Nodes of the table: so many a bandwidth, within these numbers. The error of looking up in between stays below a
# thousandth of the probability.
_NODES_A_BANDWIDTH, _FEWEST, _MOST = 16, 32, 512
# A bandwidth, where rows do not differ at all.
_LEAST_BANDWIDTH = 1e-3
# With fewer rows on one side its density is hardly known.
_FEW = 10


@final
@dataclass(frozen=True)
class DensityRatioCalibration(FeatureCalibrator):
    """The confidence becomes the share of right rows among those of like confidence and like proximity.

    Networks are more overconfident on rows that lie far from the others, and a map of the confidence alone, such as a
    temperature, cannot see which those are. Here the density of right and of wrong calibration rows in the plane of
    confidence and proximity is estimated by Gaussian kernels, and their ratio is the new odds. The prediction stays;
    the other classes share the rest as before, and so stay too sharp if they were. It hurts on raw predictions whose
    confidences crowd near 1, where the kernels blur what matters: fit a temperature first, and this on what it gives
    (on a CIFAR-100 network, with features that tell nothing, log-loss 1.02 alone, .866 after a temperature, .858 for
    that by itself).

    Formula: q = p(c, D | right) N_right / (p(c, D | right) N_right + p(c, D | wrong) N_wrong), D = exp(−mean distance)
    Rows: about 1,000, of which 100 wrong; with fewer than 10 right or wrong a warning tells.

    Args:
        neighbours: Nearest calibration rows whose distances make the proximity.
        closeness: "exp_mean_distance", as in the paper's text, or "mean_exp_square", as in its public code.

    Raises:
        FitError: If there are no more rows than neighbours.
    """

    name: ClassVar[str] = "density_ratio"
    title: ClassVar[str] = "Density-ratio calibration"
    family: ClassVar[CalibratorFamily] = "curve"
    paper: ClassVar[Paper] = replace(XIONG, where="Section 5.1")
    preserves_accuracy: ClassVar[bool] = True
    preserves_ranking: ClassVar[bool] = False  # the proximity has a say

    neighbours: int = 10
    closeness: Closeness = "exp_mean_distance"

    def __post_init__(self) -> None:
        check_at_least(self.neighbours, 1, "neighbours")
        check_known(self.closeness, get_args(Closeness), "closeness")

    def learn(self, predictions: Predictions, nearness: Tensor) -> Table:
        log_odds, correct = top_label(predictions)
        confidence = log_odds.double().sigmoid()
        fewest = int(torch.minimum(correct.sum(), (~correct).sum()))
        if fewest < _FEW:
            side = "right" if int(correct.sum()) == fewest else "wrong"
            warnings.warn(
                f"the density of {side} predictions rests on {fewest} rows; with fewer than {_FEW} it is hardly known.",
                CalibrantWarning,
                stacklevel=3,
            )
        sides = [_Side.of(confidence[chosen], nearness[chosen], confidence, nearness) for chosen in (correct, ~correct)]
        axes = tuple(
            _axis(values, min(side.bandwidths[place] for side in sides))
            for place, values in enumerate((confidence, nearness))
        )
        return _table(sides, (axes[0], axes[1]), len(predictions))


@final
@dataclass(frozen=True, eq=False)
class _Side:
    """The right rows, or the wrong ones."""

    confidence: Tensor
    nearness: Tensor
    bandwidths: tuple[float, float]

    @classmethod
    def of(cls, confidence: Tensor, nearness: Tensor, *all_rows: Tensor) -> Self:
        # Differs from the paper: it prints n^(-1/5), the rule for one variable; the library it names takes n^(-1/6).
        spreads = (_spread(own, every) for own, every in zip((confidence, nearness), all_rows, strict=True))
        across, along = (max(normal_reference(each, max(len(nearness), 1)), _LEAST_BANDWIDTH) for each in spreads)
        return cls(confidence, nearness, (across, along))


def _spread(own: Tensor, every: Tensor) -> float:
    """Standard deviation of one side's rows, or of all where these do not differ."""
    deviation = float(own.std(correction=0)) if len(own) > 1 else 0.0
    return deviation if deviation > 0 else float(every.std(correction=0))


def _axis(values: Tensor, bandwidth: float) -> Axis:
    """Nodes from the smallest to the largest of the rows, closer than the kernels are wide."""
    low, high = (float(end) for end in values.aminmax())
    high = max(high, low + bandwidth)
    nodes = math.ceil((high - low) / bandwidth * _NODES_A_BANDWIDTH)
    return Axis(low, high, min(max(nodes, _FEWEST), _MOST))


def _table(sides: list[_Side], axes: tuple[Axis, Axis], rows: int) -> Table:
    right, wrong = (grid_density(side.confidence, side.nearness, axes, side.bandwidths) for side in sides)
    across, along = axes
    # Differs from the paper: one more row, as sure as it says, is spread evenly over the table. Where there are rows
    # it changes nothing to speak of; where there are none, 0/0, it keeps the confidence.
    spread = 1 / ((across.high - across.low) * (along.high - along.low))
    confidence = across.points(right)[:, None]
    log_odds = (right + confidence * spread).log() - (wrong + (1 - confidence) * spread).log()
    ends = ([across.low, across.high], [along.low, along.high])
    return Table(log_odds.clamp(*log_odds_bounds(rows)), *(right.new_tensor(each) for each in ends))

"""Calibrators that use features beside predictions: density ratio, and bin-mean-shift by proximity."""

import dataclasses
import math
import time
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, TypeAlias, final, get_args

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from calibrant.calibrators.base import (
    CalibratorFamily,
    compare_on_own_samples,
    gathered_warnings,
    log_odds_bounds,
    prob_bounds,
    top_label,
    with_comparison,
)
from calibrant.checks import check_at_least, check_known
from calibrant.errors import CalibrantWarning, FitError, InputError
from calibrant.maps import Bands, FitSummary, ProximityMap, Surface, Table
from calibrant.numerics.binning import Axis, grid_density, normal_reference
from calibrant.numerics.isotonic import equal_mass_edges
from calibrant.numerics.neighbours import Closeness, as_features, proximity, unit_rows
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["XIONG", "BinMeanShift", "CellRule", "DensityRatioCalibration", "FeatureCalibrator"]

XIONG = Paper("Xiong et al.", 2023, "Proximity-Informed Calibration for Deep Neural Networks", "arXiv:2306.04590")


class FeatureCalibrator(ABC):
    """A method of the literature that sees features beside predictions; concrete ones are frozen dataclasses.

    The features are those of the layer before the logits, one row for each prediction; they are divided by their
    lengths. What ``preserves_accuracy`` and ``preserves_ranking`` mean is said at
    :class:`~calibrant.calibrators.Calibrator`.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    family: ClassVar[CalibratorFamily]
    paper: ClassVar[Paper]
    preserves_accuracy: ClassVar[bool]
    preserves_ranking: ClassVar[bool]

    neighbours: int
    closeness: Closeness

    @abstractmethod
    def _fit(self, predictions: Predictions, nearness: Tensor) -> Surface:
        """Find the new log-odds, given each row's proximity to the others (n,), float64; called by :meth:`fit`."""

    @final
    def fit(self, predictions: Predictions, features: object) -> ProximityMap:
        """The map that suits these held-out predictions and features, with a summary of how it was found.

        Args:
            predictions: Rows the network was not trained on, and that will not judge the map.
            features: Features of the same samples, (n, d): the inputs of the last layer.

        Raises:
            FitError: If there are too few rows to have neighbours.
            InputError: If the features do not belong to the predictions, or are not finite numbers.
        """
        if not isinstance(predictions, Predictions):
            raise InputError(f"{self.name} must be fitted on Predictions; got {type(predictions).__name__}.")
        given = as_features(features, rows=len(predictions)).to(predictions.logits.device)
        if len(predictions) <= self.neighbours:
            raise FitError(
                f"{self.name} needs more rows than neighbours ({self.neighbours}), since no row is its own neighbour; "
                f"got {len(predictions)}. Take more rows, or fewer neighbours."
            )
        start = time.perf_counter()
        with gathered_warnings() as warned:
            nearness = proximity(given, neighbours=self.neighbours, closeness=self.closeness).double()
            surface = self._fit(predictions, nearness)
        fitted = ProximityMap(
            unit_rows(given),
            surface,
            n_classes=predictions.n_classes,
            neighbours=self.neighbours,
            closeness=self.closeness,
        )
        fitted.summary = FitSummary(
            method=self.name,
            settings=self.settings(),
            rows=len(predictions),
            seconds=time.perf_counter() - start,
            notes=tuple(map(str, warned)),
        )
        found = compare_on_own_samples(predictions, lambda logits, places: fitted(logits, given[places]))
        fitted.summary = with_comparison(fitted.summary, found)
        return fitted

    @final
    def settings(self) -> dict[str, Any]:
        """The options, as a file can hold them."""
        return dataclasses.asdict(self)  # type: ignore[call-overload]  # concrete calibrators are dataclasses


CellRule: TypeAlias = Literal["shift", "replace"]


@final
@dataclass(frozen=True)
class BinMeanShift(FeatureCalibrator):
    """Rows are sorted into bands of proximity and cells of confidence; each cell's mean gap is taken off, in part.

    It removes what is wrong on average with rows that lie far from the others, and leaves the differences inside a
    cell as they were; only part of the gap is taken, because a cell of few rows knows its gap badly. It can follow a
    method whose confidences are few, where a density has no meaning. The prediction stays; the other classes share the
    rest as before. It hurts with few rows, whose cells measure noise, and the result jumps at the edges of cells.

    Formula: q = c + λ (accuracy of the cell − mean confidence of the cell), within 1/(n + 2) of 0 and 1
    Rows: about 50 a cell, 2,500 for 5 bands of 10 cells. With fewer, take fewer bands and cells.

    Args:
        bands: Bands of proximity, of equal numbers of rows.
        cells: Cells of confidence in each band, of equal numbers of rows; ties can leave fewer.
        shrinkage: λ, above 0 and at most 1.
        rule: "shift", as in the paper's text, or "replace" the confidence by the accuracy of the cell, as its public
            code does by histogram binning in each band; λ then plays no part.
        neighbours: Nearest calibration rows whose distances make the proximity.
        closeness: "exp_mean_distance", as in the paper's text, or "mean_exp_square", as in its public code.

    Raises:
        FitError: If there are no more rows than neighbours.
    """

    name: ClassVar[str] = "bin_mean_shift"
    title: ClassVar[str] = "Bin-mean-shift by proximity"
    family: ClassVar[CalibratorFamily] = "binning"
    paper: ClassVar[Paper] = replace(XIONG, where="eq. 5")
    preserves_accuracy: ClassVar[bool] = True
    preserves_ranking: ClassVar[bool] = False  # neighbouring cells may swap order

    bands: int = 5
    cells: int = 10
    shrinkage: float = 0.5
    rule: CellRule = "shift"
    neighbours: int = 10
    closeness: Closeness = "exp_mean_distance"

    def __post_init__(self) -> None:
        for count, name in ((self.bands, "bands"), (self.cells, "cells"), (self.neighbours, "neighbours")):
            check_at_least(count, 1, name)
        check_known(self.rule, ("shift", "replace"), "rule")
        check_known(self.closeness, get_args(Closeness), "closeness")
        if not 0 < self.shrinkage <= 1:
            raise InputError(f"shrinkage must be above 0 and at most 1; got {self.shrinkage}.")

    def _fit(self, predictions: Predictions, nearness: Tensor) -> Bands:
        log_odds, correct = top_label(predictions)
        edges = equal_mass_edges(nearness, self.bands)
        band = torch.searchsorted(edges, nearness)
        lines = [self._line(log_odds[band == each], correct[band == each]) for each in range(len(edges) + 1)]
        cell_edges, offsets = zip(*lines, strict=True)
        # No confidence lies above infinity, so what fills the offsets up is never read.
        return Bands(
            edges,
            pad_sequence(list(cell_edges), batch_first=True, padding_value=torch.inf),
            pad_sequence(list(offsets), batch_first=True),
            keep_share=edges.new_tensor(1.0 if self.rule == "shift" else 0.0),
            least=edges.new_tensor(prob_bounds(len(predictions))[0]),
        )

    def _line(self, log_odds: Tensor, correct: Tensor) -> tuple[Tensor, Tensor]:
        """Edges of the cells of one band, (c,), and what is added in each, (c + 1,)."""
        edges = equal_mass_edges(log_odds, self.cells)
        # Exactly as the map will find them.
        cell = (log_odds[:, None] > edges.to(log_odds)).sum(dim=1)
        rows, right, sure = (
            torch.bincount(cell, weights, minlength=len(edges) + 1)
            for weights in (None, correct.double(), log_odds.double().sigmoid())
        )
        rows = rows.clamp(min=1)
        if self.rule == "replace":
            return edges, right / rows
        return edges, self.shrinkage * (right - sure) / rows


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

    def _fit(self, predictions: Predictions, nearness: Tensor) -> Table:
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

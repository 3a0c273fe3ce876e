"""Bin-mean-shift: confidences moved by how far off rows of like proximity and confidence were."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeAlias, final, get_args

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from calibrant.calibrators.base import CalibratorFamily
from calibrant.calibrators.features.proximity import XIONG, FeatureCalibrator
from calibrant.calibrators.floor import prob_bounds
from calibrant.calibrators.scores import top_label
from calibrant.checks import check_at_least, check_known
from calibrant.errors import InputError
from calibrant.maps import Bands
from calibrant.numerics.equal_mass import equal_mass_edges
from calibrant.numerics.neighbours import Closeness
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["BinMeanShift", "CellRule"]

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

    def learn(self, predictions: Predictions, nearness: Tensor) -> Bands:
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

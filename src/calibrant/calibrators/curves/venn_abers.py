"""Inductive Venn-Abers: isotonic calibration that says by how much the next label could move it."""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from calibrant.calibrators.absent import warn_of_absent
from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted
from calibrant.calibrators.binning.steps import steps_of
from calibrant.calibrators.floor import log_odds_bounds
from calibrant.calibrators.scores import class_by_class, class_map
from calibrant.errors import InputError
from calibrant.numerics.isotonic import Blocks, tie_blocks
from calibrant.numerics.venn_abers import fits_with_one_more
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["VennAbers", "VennAbersInterval", "venn_abers_interval"]

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

"""Expected calibration error against the number of bins, beside what a calibrated model would score."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from calibrant.checks import check_at_least, check_bins
from calibrant.errors import InputError
from calibrant.metrics.binned import ECE, ECEL1Debiased
from calibrant.metrics.bins import Bins
from calibrant.metrics.ranking import Ranked
from calibrant.metrics.statistics import Binned
from calibrant.predictions import Predictions, TopLabel

__all__ = ["BinsSweep", "bins_sweep"]

# Cells that the rows are gathered in once, whatever the number of rows: the common refinement of all bins asked for,
# if it is not finer than this (it is 3000 by default).
_MOST_CELLS = 30_000


@final
@dataclass(frozen=True, eq=False)
class BinsSweep:
    """One entry for each number of bins."""

    n_bins: Tensor  # (m,) int64
    ece: Tensor  # (m,)
    debiased: Tensor  # (m,) ece_l1_debiased
    floor: Tensor  # (m,) mean ece of a calibrated model with the same confidences
    floor_low: Tensor  # (m,) 2.5 % quantile
    floor_high: Tensor  # (m,) 97.5 % quantile
    n: int


def bins_sweep(
    predictions: Predictions | TopLabel,
    *,
    n_bins: Sequence[int] = (10, 15, 20, 50, 100, 200, 500, 1000),
    redraws: int = 200,
    seed: int = 0,
) -> BinsSweep:
    """How much the ECE owes to the number of bins, and how much to noise.

    With more bins, gaps of opposite sign cancel less and noise adds more. An ECE inside the floor's range says
    nothing against calibration. The floor redraws every answer as right with the probability of its confidence
    (consistency resampling); rows that share all their bins are redrawn together, as one binomial number.

    Args:
        predictions: Either record.
        n_bins: Numbers of bins, rising.
        redraws: Samples behind the floor.
        seed: Of the redraws.

    Raises:
        InputError: If there is no number of bins, or a number is too small.

    Example:
        >>> sweep = bins_sweep(TopLabel([0.9, 0.8, 0.7, 0.6], [True, False, True, False]), n_bins=[1, 10])
        >>> [round(ece, 3) for ece in sweep.ece.tolist()]
        [0.25, 0.45]
    """
    check_at_least(redraws, 2, "redraws")
    if not n_bins:
        raise InputError("n_bins must name at least one number of bins; got none.")
    for number in n_bins:
        check_bins(number)
    cells = _cells(predictions, n_bins)
    redrawn = _redrawn(cells, redraws, torch.Generator().manual_seed(seed))
    observed = [Binned(number).of_ranked(cells) for number in n_bins]
    floors = torch.stack([ECE().value(Binned(number).of_ranked(redrawn)) for number in n_bins])
    low, high = floors.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64), dim=1)
    return BinsSweep(
        n_bins=torch.tensor(list(n_bins)),
        ece=torch.stack([ECE().value(bins) for bins in observed]),
        debiased=torch.stack([ECEL1Debiased().value(bins) for bins in observed]),
        floor=floors.mean(1),
        floor_low=low,
        floor_high=high,
        n=int(cells.n),
    )


def _cells(predictions: Predictions | TopLabel, n_bins: Sequence[int]) -> Ranked:
    """The rows joined where no number of bins tells them apart."""
    bins: Bins = Binned(min(math.lcm(*n_bins), _MOST_CELLS))(predictions)
    count, confidence, right = (part.cpu() for part in (bins.count, bins.confidence, bins.correct))
    seen = count > 0
    count, confidence, right = count[seen], (confidence[seen] / count[seen]).clamp(0, 1), right[seen]
    return Ranked(torch.logit(confidence), confidence, right, count - right)


def _redrawn(cells: Ranked, redraws: int, generator: torch.Generator) -> Ranked:
    """As many samples of a model whose every confidence is true, with counts (redraws, m)."""
    shape = (redraws, cells.confidence.shape[0])
    chance, total = cells.confidence.expand(shape).contiguous(), cells.total.expand(shape).contiguous()
    right = torch.binomial(total, chance, generator=generator)
    return Ranked(cells.log_odds, cells.confidence, right, total - right)

"""The recipes: how each kind of state is gathered from rows. Metrics name one of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from calibrant.checks import check_at_least
from calibrant.errors import InputError
from calibrant.metrics.base import Statistic, TopStatistic
from calibrant.metrics.states import Average, Bins, Cells, ClassBins, Grid, Ranked, Sample
from calibrant.numerics.binning import bin_index
from calibrant.predictions import Predictions, TopLabel

__all__ = [
    "Averaged",
    "Binned",
    "BinnedByPrediction",
    "BinnedClasswise",
    "Gridded",
    "RankedCells",
    "RankedRows",
    "full_predictions",
]


@final
@dataclass(frozen=True)
class Averaged(Statistic):
    """Mean over the rows of one number a row, worked out from a block of predictions."""

    of: Callable[[Predictions], Tensor]

    def __call__(self, rows: Predictions | TopLabel) -> Average:
        rows = full_predictions(rows)
        total = torch.stack([self.of(block).sum(dtype=torch.float64) for block in _pieces(rows)]).sum()
        return Average(torch.full_like(total, len(rows)), total)


@final
@dataclass(frozen=True)
class Binned(TopStatistic):
    """Equal-width bins of confidence."""

    n_bins: int = 15

    def __post_init__(self) -> None:
        check_at_least(self.n_bins, 1, "n_bins")

    def __call__(self, rows: Predictions | TopLabel) -> Bins:
        top = rows.top
        right = top.correct.double()
        return Bins.gather(top.confidence, right, torch.ones_like(right), self.n_bins)

    def of_ranked(self, ranked: Ranked) -> Bins:
        return Bins.gather(ranked.confidence, ranked.right, ranked.total, self.n_bins)


@final
@dataclass(frozen=True)
class Gridded(TopStatistic):
    """Answers spread over evenly spaced nodes of confidence, for kernel smoothing."""

    nodes: int = 2049

    def __call__(self, rows: Predictions | TopLabel) -> Grid:
        top = rows.top
        right = top.correct.double()
        return Grid.gather(top.confidence, right, torch.ones_like(right), self.nodes)

    def of_ranked(self, ranked: Ranked) -> Grid:
        return Grid.gather(ranked.confidence, ranked.right, ranked.total, self.nodes)


@final
@dataclass(frozen=True)
class RankedRows(TopStatistic):
    """Exact ranks; the state grows with the rows."""

    def __call__(self, rows: Predictions | TopLabel) -> Sample:
        return Sample.gather(rows.top.log_odds, rows.top.correct)

    def of_ranked(self, ranked: Ranked) -> Ranked:
        return ranked


@final
@dataclass(frozen=True)
class RankedCells(TopStatistic):
    """Ranks in bounded memory: answers in the same cell count as tied (``Cells.auroc_error`` bounds the error)."""

    cells: int = 8192

    def __call__(self, rows: Predictions | TopLabel) -> Cells:
        return Cells.gather(rows.top.log_odds, rows.top.confidence, rows.top.correct, self.cells)

    def of_ranked(self, ranked: Ranked) -> Ranked:
        return ranked


@final
@dataclass(frozen=True)
class BinnedClasswise(Statistic):
    """For every class, equal-width bins of its probability over all rows.

    With many classes nearly all probabilities lie in the first bin, so that bin is what remains of the column sums
    after the few entries above it are taken out.
    """

    n_bins: int = 15

    def __post_init__(self) -> None:
        check_at_least(self.n_bins, 1, "n_bins")

    def __call__(self, rows: Predictions | TopLabel) -> ClassBins:
        rows = full_predictions(rows)
        return ClassBins.merge([self._of_block(block) for block in _pieces(rows)])

    def _of_block(self, block: Predictions) -> ClassBins:
        soft, k, b = block.softmax, block.n_classes, self.n_bins
        classes, probability = soft.others_above(1 / b)
        classes = torch.cat([soft.top, classes])
        probability = torch.cat([soft.confidence, probability])
        cell = classes * b + bin_index(probability, b)
        count = torch.bincount(cell, minlength=k * b).double().view(k, b)
        total = torch.bincount(cell, weights=probability.double(), minlength=k * b).view(k, b)
        count[:, 0] += len(block) - count.sum(dim=1)
        total[:, 0] += soft.class_sums().double() - total.sum(dim=1)
        own = block.labels * b + bin_index(soft.probability_of(block.labels), b)
        return ClassBins(count, total, torch.bincount(own, minlength=k * b).double().view(k, b))


@final
@dataclass(frozen=True)
class BinnedByPrediction(Statistic):
    """For every predicted class, equal-width bins of the confidence of the rows predicted so."""

    n_bins: int = 15

    def __post_init__(self) -> None:
        check_at_least(self.n_bins, 1, "n_bins")

    def __call__(self, rows: Predictions | TopLabel) -> ClassBins:
        rows = full_predictions(rows)
        shape = (rows.n_classes, self.n_bins)
        cell = rows.predicted * self.n_bins + bin_index(rows.confidence, self.n_bins)
        columns = (torch.ones_like(rows.confidence), rows.confidence, rows.correct.double())
        return ClassBins(*(torch.bincount(cell, weights=c, minlength=shape[0] * shape[1]).view(shape) for c in columns))


def full_predictions(rows: Predictions | TopLabel) -> Predictions:
    """The rows, if they have the probability of every class."""
    if isinstance(rows, TopLabel):
        raise InputError(
            "this metric needs the probability of every class; got confidence and correctness only. "
            "Give logits or probabilities, or ask for a top-label metric."
        )
    return rows


def _pieces(rows: Predictions) -> Iterator[Predictions]:
    """The rows themselves if they have their softmax already, else blocks of them, each forgotten before the next."""
    return iter([rows]) if "softmax" in rows.__dict__ else rows.blocks()

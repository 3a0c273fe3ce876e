"""The recipes: how each kind of state is gathered from rows. Metrics name one of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from calibrant.checks import check_at_least
from calibrant.errors import InputError
from calibrant.metrics.base import Statistic, TopStatistic
from calibrant.metrics.states import Average, Bins, Cells, ClassBins, Grid, Ranked, Sample
from calibrant.numerics.binning import bin_index
from calibrant.numerics.softmax import SoftmaxRows, Wanted
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
    """Mean over the rows of one number a row."""

    of: Callable[[SoftmaxRows], Tensor]
    wanted: Wanted = Wanted()

    def __call__(self, rows: Predictions | TopLabel) -> Average:
        total = self.of(full_predictions(rows).softmax_rows(self.wanted)).sum(dtype=torch.float64)
        return Average(torch.full_like(total, len(rows)), total)


@final
@dataclass(frozen=True)
class Binned(TopStatistic):
    """Equal-width bins of confidence."""

    n_bins: int = 15

    def __post_init__(self) -> None:
        check_at_least(self.n_bins, 1, "n_bins")

    def __call__(self, rows: Predictions | TopLabel) -> Bins:
        return Bins.gather(rows.top, self.n_bins)

    def of_ranked(self, ranked: Ranked) -> Bins:
        return Bins.of_ranked(ranked, self.n_bins)


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

    @property
    def wanted(self) -> Wanted:
        """Column sums, and the probabilities above the first bin."""
        return Wanted(above=1 / self.n_bins)

    def __call__(self, rows: Predictions | TopLabel) -> ClassBins:
        rows = full_predictions(rows)
        k, b = rows.n_classes, self.n_bins
        soft = rows.softmax_rows(self.wanted)
        top_count, top_total = self._bin(*soft.top_entries(), k)
        count, total = self._bin(*soft.other_entries(), k)
        total[:, 0] += soft.other_sums - total.sum(dim=1)
        count += top_count
        count[:, 0] += len(rows) - count.sum(dim=1)
        hits, _ = self._bin(rows.labels, soft.label_probability, k)
        return ClassBins(count, total + top_total, hits)

    def _bin(self, classes: Tensor, probability: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Number and sum of probabilities by class and bin, (k, b) each."""
        cell = torch.add(bin_index(probability, self.n_bins), classes, alpha=self.n_bins)
        shape, size = (k, self.n_bins), k * self.n_bins
        count = torch.bincount(cell, minlength=size).double().view(shape)
        return count, torch.bincount(cell, weights=probability.double(), minlength=size).view(shape)


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

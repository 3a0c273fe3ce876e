"""The recipes: how each kind of state is gathered from rows. Metrics name one of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from calibrant.checks import check_at_least
from calibrant.errors import InputError
from calibrant.metrics.base import LabelStatistic, Statistic, TopStatistic
from calibrant.metrics.states import Average, Bins, Cells, ClassBins, Grid, Ranked, Sample
from calibrant.numerics.binning import bin_index, sums_by
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
class BinnedClasswise(LabelStatistic):
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

    def relabelled(self, rows: Predictions, labels: Tensor) -> ClassBins:
        """Only the hits depend on the labels."""
        state = self(rows)
        probability = rows.probs.T.gather(0, labels)
        cell = torch.add(bin_index(probability, self.n_bins), labels, alpha=self.n_bins)
        hits = _count_rows(cell, rows.n_classes * self.n_bins).view(-1, *state.hits.shape)
        return ClassBins(state.count.expand_as(hits), state.probability.expand_as(hits), hits)

    def _bin(self, classes: Tensor, probability: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Number and sum of probabilities by class and bin, (k, b) each."""
        cell = torch.add(bin_index(probability, self.n_bins), classes, alpha=self.n_bins)
        shape, size = (k, self.n_bins), k * self.n_bins
        count = torch.bincount(cell, minlength=size).double().view(shape)
        return count, sums_by(cell, probability.double(), size).view(shape)


@final
@dataclass(frozen=True)
class BinnedByPrediction(LabelStatistic):
    """For every predicted class, equal-width bins of the confidence of the rows predicted so."""

    n_bins: int = 15

    def __post_init__(self) -> None:
        check_at_least(self.n_bins, 1, "n_bins")

    def __call__(self, rows: Predictions | TopLabel) -> ClassBins:
        rows = full_predictions(rows)
        shape, cell = (rows.n_classes, self.n_bins), self._cells(rows)
        columns = (torch.ones_like(rows.confidence), rows.confidence, rows.correct.double())
        return ClassBins(*(sums_by(cell, column, shape[0] * shape[1]).view(shape) for column in columns))

    def relabelled(self, rows: Predictions, labels: Tensor) -> ClassBins:
        """Only the right answers depend on the labels."""
        state = self(rows)
        size = rows.n_classes * self.n_bins
        # Wrong answers are counted in one cell too many, which is then dropped.
        cell = torch.where(labels == rows.predicted, self._cells(rows), size)
        hits = _count_rows(cell, size + 1)[:, :size].reshape(-1, *state.hits.shape)
        return ClassBins(state.count.expand_as(hits), state.probability.expand_as(hits), hits)

    def _cells(self, rows: Predictions) -> Tensor:
        return torch.add(bin_index(rows.confidence, self.n_bins), rows.predicted, alpha=self.n_bins)


def _count_rows(cells: Tensor, size: int) -> Tensor:
    """How often each cell number stands in each row of (r, n), giving (r, size) in float64."""
    offsets = torch.arange(0, len(cells) * size, size, device=cells.device)[:, None]
    return torch.bincount((cells + offsets).flatten(), minlength=len(cells) * size).double().view(-1, size)


def full_predictions(rows: Predictions | TopLabel) -> Predictions:
    """The rows, if they have the probability of every class."""
    if isinstance(rows, TopLabel):
        raise InputError(
            "this metric needs the probability of every class; got confidence and correctness only. "
            "Give logits or probabilities, or ask for a top-label metric."
        )
    return rows

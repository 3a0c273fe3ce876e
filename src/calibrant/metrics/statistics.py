"""The recipes: how each kind of state is gathered from rows. Metrics name one of them."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from calibrant.checks import check_bins
from calibrant.errors import InputError
from calibrant.metrics.base import LabelStatistic, Statistic, TopStatistic
from calibrant.metrics.bins import BinMoments, Bins, ClassBins, Grid
from calibrant.metrics.ranking import Cells, Ranked, Sample
from calibrant.metrics.states import Average
from calibrant.numerics.binning import bin_index, sums_by
from calibrant.numerics.softmax import TOP_LABEL, SoftmaxRows, Wanted
from calibrant.predictions import Predictions, TopLabel

__all__ = [
    "EXACT",
    "Averaged",
    "Binned",
    "BinnedByPrediction",
    "BinnedClasswise",
    "BinnedMoments",
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
    wanted: Wanted = TOP_LABEL

    def __call__(self, rows: Predictions | TopLabel) -> Average:
        total = self.of(full_predictions(rows).softmax_rows(self.wanted)).sum(dtype=torch.float64)
        return Average(torch.full_like(total, len(rows)), total)

    def by_group(self, rows: Predictions, group: Tensor) -> Average:
        """All groups at once."""
        count = torch.bincount(group).double()
        return Average(count, sums_by(group, self.of(rows.softmax_rows(self.wanted)).double(), len(count)))


@final
@dataclass(frozen=True)
class Binned(TopStatistic):
    """Equal-width bins of confidence."""

    n_bins: int = 15

    def __post_init__(self) -> None:
        check_bins(self.n_bins)

    def __call__(self, rows: Predictions | TopLabel) -> Bins:
        return Bins.gather(rows.top, self.n_bins)

    def of_ranked(self, ranked: Ranked) -> Bins:
        return Bins.of_ranked(ranked, self.n_bins)


@final
@dataclass(frozen=True)
class BinnedMoments(TopStatistic):
    """Equal-width bins of confidence with second moments."""

    n_bins: int = 15

    def __post_init__(self) -> None:
        check_bins(self.n_bins)

    def __call__(self, rows: Predictions | TopLabel) -> BinMoments:
        return BinMoments.gather(rows.top, self.n_bins)

    def of_ranked(self, ranked: Ranked) -> BinMoments:
        return BinMoments.of_ranked(ranked, self.n_bins)


@final
@dataclass(frozen=True)
class Gridded(TopStatistic):
    """Answers spread over evenly spaced nodes of confidence, for kernel smoothing."""

    nodes: int = 1025

    def __call__(self, rows: Predictions | TopLabel) -> Grid:
        top = rows.top
        right = top.correct.double()
        return Grid.gather(top.confidence, right, torch.ones_like(right), self.nodes)

    def of_ranked(self, ranked: Ranked) -> Grid:
        return Grid.gather(ranked.confidence.double(), ranked.right.double(), ranked.total.double(), self.nodes)


@final
@dataclass(frozen=True)
class RankedRows(TopStatistic):
    """Exact ranks; the state grows with the rows."""

    def __call__(self, rows: Predictions | TopLabel) -> Sample:
        return Sample.gather(rows.top.log_odds, rows.top.correct)

    def of_ranked(self, ranked: Ranked) -> Ranked:
        return ranked


EXACT = RankedRows()


@final
@dataclass(frozen=True)
class RankedCells(TopStatistic):
    """Ranks in bounded memory: answers in the same cell count as tied (``Cells.auroc_error`` bounds the error)."""

    cells: int = 16384

    def __call__(self, rows: Predictions | TopLabel) -> Cells:
        return Cells.gather(rows.top, self.cells)

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
        check_bins(self.n_bins)

    @property
    def wanted(self) -> Wanted:
        """Column sums, and the probabilities above the first bin."""
        return Wanted(above=1 / self.n_bins)

    def __call__(self, rows: Predictions | TopLabel) -> ClassBins:
        rows = full_predictions(rows)
        return self._of_entries(rows, None, rows.softmax_rows(self.wanted).other_sums[None])[0]

    def by_group(self, rows: Predictions, group: Tensor) -> ClassBins:
        """All groups at once."""
        sums = torch.zeros(int(group.max()) + 1, rows.n_classes, dtype=rows.probs.dtype, device=group.device)
        sums.index_add_(0, group, rows.probs)
        soft = rows.softmax_rows(self.wanted)
        # The sums of the probabilities that are not the largest of their row.
        sums.view(-1).index_add_(0, soft.top + group * rows.n_classes, -soft.confidence.to(sums.dtype))
        return self._of_entries(rows, group, sums.double())

    def _of_entries(self, rows: Predictions, group: Tensor | None, other_sums: Tensor) -> ClassBins:
        """The bins of every group, from its largest entries, its others above the first bin, and the others' sums."""
        soft, shape = rows.softmax_rows(self.wanted), (*other_sums.shape, self.n_bins)
        other_rows, other_classes, other_probability = soft.other_entries()
        other_group = None if group is None else group.index_select(0, other_rows)
        sizes = other_sums.new_tensor([len(rows)]) if group is None else torch.bincount(group)

        top_cells = self._cells(group, soft.top, soft.confidence, shape)
        other_cells = self._cells(other_group, other_classes, other_probability, shape)
        total = _add_up(other_cells, shape, other_probability)
        total[..., 0] += other_sums - total.sum(dim=-1)
        count = _add_up(top_cells, shape) + _add_up(other_cells, shape)
        count[..., 0] += sizes[:, None] - count.sum(dim=-1)
        hits = _add_up(self._cells(group, rows.labels, soft.label_probability, shape), shape)
        return ClassBins(count, total + _add_up(top_cells, shape, soft.confidence), hits)

    def relabelled(self, rows: Predictions, labels: Tensor) -> ClassBins:
        """Only the hits depend on the labels."""
        state = self(rows)
        probability = rows.probs.T.gather(0, labels)
        cell = labels * self.n_bins + bin_index(probability, self.n_bins)
        hits = _count_rows(cell, rows.n_classes * self.n_bins).view(-1, *state.hits.shape)
        return ClassBins(state.count.expand_as(hits), state.probability.expand_as(hits), hits)

    def _cells(self, group: Tensor | None, classes: Tensor, probability: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Number of the cell (group, class, bin) of every probability."""
        cells = bin_index(probability, self.n_bins)
        if math.prod(shape) >= 2**31:
            cells = cells.long()
        cells.add_(classes.to(cells.dtype), alpha=self.n_bins)
        return cells if group is None else cells.add_(group.to(cells.dtype), alpha=shape[1] * shape[2])


@final
@dataclass(frozen=True)
class BinnedByPrediction(LabelStatistic):
    """For every predicted class, equal-width bins of the confidence of the rows predicted so."""

    n_bins: int = 15

    def __post_init__(self) -> None:
        check_bins(self.n_bins)

    def __call__(self, rows: Predictions | TopLabel) -> ClassBins:
        rows = full_predictions(rows)
        return self.by_group(rows, torch.zeros_like(rows.labels))[0]

    def by_group(self, rows: Predictions, group: Tensor) -> ClassBins:
        """All groups at once."""
        shape = (int(group.max()) + 1, rows.n_classes, self.n_bins)
        cells = torch.add(self._cells(rows), group, alpha=shape[1] * shape[2])
        columns = (None, rows.confidence, rows.correct)
        return ClassBins(*(_add_up(cells, shape, column) for column in columns))

    def relabelled(self, rows: Predictions, labels: Tensor) -> ClassBins:
        """Only the right answers depend on the labels."""
        state = self(rows)
        size = rows.n_classes * self.n_bins
        # Wrong answers are counted in one cell too many, which is then dropped.
        cell = torch.where(labels == rows.predicted, self._cells(rows), size)
        hits = _count_rows(cell, size + 1)[:, :size].reshape(-1, *state.hits.shape)
        return ClassBins(state.count.expand_as(hits), state.probability.expand_as(hits), hits)

    def _cells(self, rows: Predictions) -> Tensor:
        return rows.predicted * self.n_bins + bin_index(rows.confidence, self.n_bins)


def _add_up(cells: Tensor, shape: tuple[int, ...], values: Tensor | None = None) -> Tensor:
    """How often each cell occurs, or the sum of the values in it, in float64."""
    size = math.prod(shape)
    if values is None:
        return torch.bincount(cells, minlength=size).double().view(shape)
    return sums_by(cells, values.double(), size).view(shape)


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

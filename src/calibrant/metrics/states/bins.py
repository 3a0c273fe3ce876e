"""States of fixed size: sums over bins of confidence, nodes of a grid, cells of log-odds, and bins of every class."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self, TypeAlias, final

import torch
from torch import Tensor

from calibrant.checks import check_bins
from calibrant.metrics.states.base import (
    LabelStatistic,
    PackedSamples,
    Ranked,
    Statistic,
    Sums,
    TopStatistic,
    effective_number,
    full_predictions,
    weighted,
)
from calibrant.numerics.binning import bin_ends, bin_index, counts_by, sums_between, sums_by
from calibrant.numerics.softmax import Wanted, sigmoid
from calibrant.predictions import Predictions, TopLabel

__all__ = [
    "BinMoments", "BinStatistic", "Binned", "BinnedByPrediction", "BinnedClasswise", "BinnedMoments", "Bins", "Cells",
    "ClassBins", "Grid", "Gridded", "RankedCells", "TopState",
]  # fmt: skip


@final
@dataclass(frozen=True, eq=False)
class Bins(Sums):
    """Per-bin sums over equal-width bins of confidence."""

    count: Tensor  # (..., b)
    confidence: Tensor  # (..., b) sum, not mean
    correct: Tensor  # (..., b) sum, not mean
    squared_weights: Tensor  # (..., b) their sum, without weights the count


@dataclass(frozen=True)
class BinStatistic(Statistic):
    """A statistic over equal-width bins."""

    n_bins: int = 15

    def __post_init__(self) -> None:
        check_bins(self.n_bins)


def _top_counts(top: TopLabel, index: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return by index, (size,), the number of samples, that of right ones, and the sum of squared weights."""
    count, right = counts_by(index, top.correct, size, top.weights)
    return count, right, count if top.weights is None else sums_by(index, top.weights.square(), size)


@final
@dataclass(frozen=True)
class Binned(BinStatistic, TopStatistic):
    """Equal-width bins of confidence."""

    takes_weights = True

    def __call__(self, samples: Predictions | TopLabel) -> Bins:
        top = samples.top
        index = bin_index(top.confidence, self.n_bins)
        count, correct, squares = _top_counts(top, index, self.n_bins)
        return Bins(count, sums_by(index, weighted(top.confidence, top.weights), self.n_bins), correct, squares)

    def of_ranked(self, ranked: Ranked) -> Bins:
        ends = bin_ends(ranked.confidence, self.n_bins)
        columns = (ranked.total, ranked.total * ranked.confidence, ranked.right)
        count, confidence, correct = (sums_between(ends, column) for column in columns)
        squares = ranked.squared_weights
        return Bins(count, confidence, correct, count if squares is None else sums_between(ends, squares))


@final
@dataclass(frozen=True, eq=False)
class BinMoments(Sums):
    """As :class:`Bins`, with the second moments inside each bin."""

    count: Tensor  # (..., b)
    confidence: Tensor  # (..., b) sum, not mean
    correct: Tensor  # (..., b) sum, not mean
    squared_weights: Tensor  # (..., b) their sum, without weights the count
    confidence_squared: Tensor  # (..., b)
    confidence_correct: Tensor  # (..., b)

    @property
    def bins(self) -> Bins:
        return Bins(self.count, self.confidence, self.correct, self.squared_weights)

    def in_one_bin(self) -> "BinMoments":
        """Return the moments of all bins as those of one."""
        return BinMoments(*(part.sum(-1, keepdim=True) for part in self.tensors()))


@final
@dataclass(frozen=True)
class BinnedMoments(BinStatistic, TopStatistic):
    """Equal-width bins of confidence with second moments."""

    takes_weights = True

    def __call__(self, samples: Predictions | TopLabel) -> BinMoments:
        top = samples.top
        index = bin_index(top.confidence, self.n_bins)
        count, correct, squares = _top_counts(top, index, self.n_bins)
        confidence = sums_by(index * 2 + top.correct, weighted(top.confidence, top.weights), 2 * self.n_bins)
        confidence = confidence.view(-1, 2)  # of wrong samples and of right ones
        squared = sums_by(index, weighted(top.confidence.square(), top.weights), self.n_bins)
        return BinMoments(count, confidence.sum(1), correct, squares, squared, confidence[:, 1])

    def of_ranked(self, ranked: Ranked) -> BinMoments:
        ends = bin_ends(ranked.confidence, self.n_bins)
        columns = (ranked.total * ranked.confidence.square(), ranked.right * ranked.confidence)
        squares = (sums_between(ends, column) for column in columns)
        return BinMoments(*Binned(self.n_bins).of_ranked(ranked).tensors(), *squares)


@final
@dataclass(frozen=True, eq=False)
class Grid(Sums):
    """Numbers of samples and of correct ones, spread over evenly spaced nodes of confidence in 0..1."""

    total: Tensor  # (..., nodes)
    right: Tensor  # (..., nodes)
    squared_weights: Tensor  # (...) their sum, without weights the number of samples

    @property
    def nodes(self) -> Tensor:
        return torch.linspace(0, 1, self.total.shape[-1], dtype=torch.float64, device=self.total.device)

    def kernel_width(self) -> Tensor:
        """Return the rule of thumb 1.06 s n^(-1/5), s the standard deviation of the confidences, (...); n effective."""
        n, t = self.total.sum(-1), self.nodes
        mean = (self.total * t).sum(-1) / n
        spread = ((self.total * t.square()).sum(-1) / n - mean.square()).clamp(min=0).sqrt()
        return 1.06 * spread * effective_number(n, self.squared_weights) ** (-1 / 5)


@final
@dataclass(frozen=True)
class Gridded(TopStatistic):
    """Samples spread over evenly spaced nodes of confidence, for kernel smoothing."""

    takes_weights = True

    nodes: int = 1025

    def __call__(self, samples: Predictions | TopLabel) -> Grid:
        top = samples.top
        lower, share = self._place(top.confidence)
        count = torch.stack(counts_by(lower, top.correct, self.nodes, top.weights))
        above = sums_by(lower * 2 + top.correct, weighted(share, top.weights), 2 * self.nodes).view(-1, 2)
        shares = torch.stack([above.sum(1), above[:, 1]])  # of all samples, of right ones
        total, right = count - shares + shares.roll(1, -1)  # the last node has none to give
        return Grid(total, right, total.sum() if top.weights is None else top.weights.square().sum())

    def of_ranked(self, ranked: Ranked) -> Grid:
        lower, share = self._place(ranked.confidence.double())
        total, right = (
            sums_by(lower, mass * (1 - share), self.nodes) + sums_by(lower + 1, mass * share, self.nodes)
            for mass in (ranked.total.double(), ranked.right.double())
        )
        return Grid(total, right, (total if ranked.squared_weights is None else ranked.squared_weights).sum(-1))

    def _place(self, confidence: Tensor) -> tuple[Tensor, Tensor]:
        """Return the node below each sample and the share of the one above: mass and mean confidence are kept."""
        position = confidence * (self.nodes - 1)
        lower = position.int().clamp_(max=self.nodes - 2)
        return lower, position - lower


@final
@dataclass(frozen=True, eq=False)
class Cells(Sums):
    """Sums over fixed cells of log-odds: ranks in bounded memory, with a bound on their error.

    The cells are even in ``x/(8 + |x|)``: fine where most samples lie, and reaching out to any log-odds.
    """

    total: Tensor  # (..., cells)
    right: Tensor  # (..., cells)
    confidence: Tensor  # (..., cells) sum, not mean
    squared_weights: Tensor  # (..., cells) their sum, without weights the total

    HALF_RANGE_LOG_ODDS: ClassVar[float] = 8.0

    @classmethod
    def middle(cls, cell: Tensor, cells: int) -> Tensor:
        """Return the log-odds at the middle of cells, given their numbers."""
        squashed = (cell.double() + 0.5) * (2 / cells) - 1
        return cls.HALF_RANGE_LOG_ODDS * squashed / (1 - squashed.abs())

    @property
    def ranked(self) -> Ranked:
        """The cells as if the samples of each were tied at its middle; their summed confidence stays exact."""
        cells = self.total.shape[-1]
        seen = self.total.reshape(-1, cells).any(0).nonzero().flatten()
        log_odds = self.middle(seen, cells)
        right = self.right[..., seen]
        wrong, confidence = self.total[..., seen] - right, self.confidence[..., seen]
        squares = self.squared_weights[..., seen]
        return Ranked(log_odds, sigmoid(log_odds), right, wrong, confidence, squared_weights=squares)

    @property
    def edges(self) -> tuple[Tensor, Tensor]:
        """Lowest and highest confidence of the cells that have samples."""
        cells, seen = self.total.shape[-1], (self.total > 0).nonzero().flatten().double()
        lower, upper = ((seen + place) * (2 / cells) - 1 for place in (0, 1))
        low, high = (sigmoid(self.HALF_RANGE_LOG_ODDS * s / (1 - s.abs())) for s in (lower, upper))
        return low, high

    @property
    def auroc_error(self) -> Tensor:
        """Most by which the area under the ROC curve can differ from the exact one."""
        n_right = self.right.sum(-1)
        n_wrong = self.total.sum(-1) - n_right
        return (self.right * (self.total - self.right)).sum(-1) / (2 * n_right * n_wrong)


@final
@dataclass(frozen=True)
class RankedCells(TopStatistic):
    """Ranks in bounded memory: samples in the same cell count as tied (``Cells.auroc_error`` bounds the error)."""

    takes_weights = True

    cells: int = 16384

    def __call__(self, samples: Predictions | TopLabel) -> Cells:
        index = self.cell_of(samples.top.log_odds)
        total, right, squares = _top_counts(samples.top, index, self.cells)
        confidence = sums_by(index, weighted(samples.top.confidence, samples.weights), self.cells)
        return Cells(total, right, confidence, squares)

    def cell_of(self, log_odds: Tensor) -> Tensor:
        """Return the number of the cell of each sample, int32."""
        reach = torch.finfo(log_odds.dtype).max / 4
        log_odds = log_odds.clamp(-reach, reach)
        squashed = log_odds / (log_odds.abs() + Cells.HALF_RANGE_LOG_ODDS)
        return squashed.add_(1).mul_(self.cells / 2).clamp_(0, self.cells - 1).int()

    def of_ranked(self, ranked: Ranked) -> Ranked:
        return ranked


TopState: TypeAlias = PackedSamples | Cells | Ranked  # can be read as ranked confidences


@final
@dataclass(frozen=True, eq=False)
class ClassBins(Sums):
    """Per-class, per-bin sums over equal-width bins of probability."""

    count: Tensor  # (..., k, b)
    probability: Tensor  # (..., k, b) sum, not mean
    hits: Tensor  # (..., k, b) samples of that class

    def reweighted(self, weights: Tensor) -> Self:
        """Return r weighted sums of g stacked states; of many classes, most bins are empty in all of them."""
        sums = []
        for field, (cells, filled) in zip(self.tensors(), self._filled, strict=True):
            total = field.new_zeros(len(weights), field[0].numel())
            sums.append(total.index_copy_(1, cells, weights @ filled).view(-1, *field.shape[1:]))
        return type(self)(*sums)

    @cached_property
    def _filled(self) -> list[tuple[Tensor, Tensor]]:  # of each field the cells that some state has, and these
        fields = [field.flatten(1) for field in self.tensors()]
        cells = [field.any(dim=0).nonzero().flatten() for field in fields]
        return [(some, field.index_select(1, some)) for some, field in zip(cells, fields, strict=True)]


@final
@dataclass(frozen=True)
class BinnedClasswise(BinStatistic, LabelStatistic):
    """Equal-width bins of the probability of every class, over all samples.

    With many classes nearly all probabilities lie in the first bin, so that bin is what remains of the column sums
    after the few entries above it are taken out.
    """

    takes_weights = True

    @property
    def wanted(self) -> Wanted:
        return Wanted(above=1 / self.n_bins)

    def __call__(self, samples: Predictions | TopLabel) -> ClassBins:
        samples = full_predictions(samples)
        return self._of_entries(samples, None, samples.softmax_rows(self.wanted).other_sums[None])[0]

    def by_group(self, samples: Predictions, group: Tensor) -> ClassBins:
        return self._of_entries(samples, group, samples.softmax_rows(self.wanted, group).other_sums_by_group)

    def _of_entries(self, samples: Predictions, group: Tensor | None, other_sums: Tensor) -> ClassBins:
        """Bin every group, from its largest entries, its others above the first bin, and the others' sums."""
        soft, shape = samples.softmax_rows(self.wanted), (*other_sums.shape, self.n_bins)
        other_samples, other_classes, other_probability = soft.other_entries()
        other_group = None if group is None else group.index_select(0, other_samples)
        sizes = other_sums.new_tensor([len(samples)]) if group is None else torch.bincount(group)
        weights, other_weights = samples.weights, None
        if weights is not None:
            other_weights = weights.index_select(0, other_samples)
            sizes = weights.sum()[None] if group is None else sums_by(group, weights, len(sizes))
        top_cells = self._cells(group, soft.top, soft.confidence, shape)
        other_cells = self._cells(other_group, other_classes, other_probability, shape)
        total = _sum_by_cell(other_cells, shape, weighted(other_probability, other_weights))
        total[..., 0] += other_sums - total.sum(dim=-1)
        count = _sum_by_cell(top_cells, shape, weights) + _sum_by_cell(other_cells, shape, other_weights)
        count[..., 0] += sizes[:, None] - count.sum(dim=-1)
        hits = _sum_by_cell(self._cells(group, samples.labels, soft.label_probability, shape), shape, weights)
        return ClassBins(count, total + _sum_by_cell(top_cells, shape, weighted(soft.confidence, weights)), hits)

    def states_for_labels(self, samples: Predictions, labels: Tensor) -> ClassBins:
        state = self(samples)  # only the hits depend on the labels
        probability = samples.probs.T.gather(0, labels)
        cell = labels * self.n_bins + bin_index(probability, self.n_bins)
        hits = _count_by_row(cell, samples.n_classes * self.n_bins, samples.weights).view(-1, *state.hits.shape)
        return ClassBins(state.count.expand_as(hits), state.probability.expand_as(hits), hits)

    def _cells(self, group: Tensor | None, classes: Tensor, probability: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return the number of the cell (group, class, bin) of every probability."""
        cells = bin_index(probability, self.n_bins)
        if math.prod(shape) >= 2**31:
            cells = cells.long()
        cells.add_(classes.to(cells.dtype), alpha=self.n_bins)
        return cells if group is None else cells.add_(group.to(cells.dtype), alpha=shape[1] * shape[2])


@final
@dataclass(frozen=True)
class BinnedByPrediction(BinStatistic, LabelStatistic):
    """Equal-width bins of confidence for every predicted class."""

    takes_weights = True

    def __call__(self, samples: Predictions | TopLabel) -> ClassBins:
        samples = full_predictions(samples)
        return self.by_group(samples, torch.zeros_like(samples.labels))[0]

    def by_group(self, samples: Predictions, group: Tensor) -> ClassBins:
        shape = (int(group.max()) + 1, samples.n_classes, self.n_bins)
        cells = torch.add(self._cells(samples), group, alpha=shape[1] * shape[2])
        weights = samples.weights
        columns = (weights, weighted(samples.confidence, weights), weighted(samples.correct, weights))
        return ClassBins(*(_sum_by_cell(cells, shape, column) for column in columns))

    def states_for_labels(self, samples: Predictions, labels: Tensor) -> ClassBins:
        state = self(samples)  # only the hits depend on the labels
        size = samples.n_classes * self.n_bins
        # Wrong predictions are counted in one cell too many, which is then dropped.
        cell = torch.where(labels == samples.predicted, self._cells(samples), size)
        hits = _count_by_row(cell, size + 1, samples.weights)[:, :size].reshape(-1, *state.hits.shape)
        return ClassBins(state.count.expand_as(hits), state.probability.expand_as(hits), hits)

    def _cells(self, samples: Predictions) -> Tensor:
        return samples.predicted * self.n_bins + bin_index(samples.confidence, self.n_bins)


def _sum_by_cell(cells: Tensor, shape: tuple[int, ...], values: Tensor | None = None) -> Tensor:
    """Count the occurrences of each cell, or add up the values in it, in float64."""
    size = math.prod(shape)
    if values is None:
        return torch.bincount(cells, minlength=size).double().view(shape)
    return sums_by(cells, values.double(), size).view(shape)


def _count_by_row(cells: Tensor, size: int, weights: Tensor | None) -> Tensor:
    """Count the cell numbers in each row of (r, n), or add up the weights (n,), giving (r, size) in float64."""
    offsets = torch.arange(0, len(cells) * size, size, device=cells.device)[:, None]
    values = None if weights is None else weights.expand(len(cells), -1).flatten()
    return _sum_by_cell((cells + offsets).flatten(), (len(cells), size), values)

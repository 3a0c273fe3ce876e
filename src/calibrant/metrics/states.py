"""States of metrics, which add up, and statistics, which gather them from samples.

The state of two sets of samples together is the sum of their states. Batches, files, machines and the bootstrap rest on
this law. Fields may have leading dimensions (one state per resample); metrics read the last ones. Metrics that name the
same statistic share its state.

A sample of weight w counts as w samples in every sum. Where a metric depends on the number of samples itself (by noise
that it subtracts, or a width that it chooses), that is the effective number (Kish), ``(Σ w)² / Σ w²``: as many samples
of equal weight have a mean of the same variance. So only the ratios of the weights matter. States therefore add up the
squared weights too; without weights these are the counts.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import ClassVar, Self, TypeAlias, TypeVar, final

import torch
from torch import Tensor

from calibrant.checks import check_bins
from calibrant.errors import InputError
from calibrant.numerics.binning import bin_ends, bin_index, counts_by, sums_between, sums_by
from calibrant.numerics.softmax import TOP_LABEL, SoftmaxRows, Wanted, row_blocks, run_ends, sigmoid, sort_in_place
from calibrant.predictions import Predictions, TopLabel

S = TypeVar("S", bound="State")


def as_divisor(mass: Tensor) -> Tensor:
    """Return sums of weights to divide by, where 0, the sum of none, is replaced by the smallest number."""
    return mass.clamp(min=torch.finfo(mass.dtype).tiny)


def effective_number(weights: Tensor, squared_weights: Tensor) -> Tensor:
    """Return how many samples of equal weight have a mean of the same variance, from the two sums (Kish, 1965)."""
    return weights * (weights / as_divisor(squared_weights))


def weighted(values: Tensor, weights: Tensor | None) -> Tensor:
    """Return the numbers of each sample, (n,) or (n, ...), times its weight."""
    if weights is None:
        return values
    return values * weights.view(-1, *(1,) * (values.ndim - 1))


_BITS = {torch.float32: torch.int32, torch.float64: torch.int64}
_NUMBERS = 1 << 20  # probabilities computed at a time


class State(ABC):
    """Sufficient statistics of a set of samples."""

    @classmethod
    @abstractmethod
    def merge(cls, states: Sequence[Self]) -> Self: ...

    def __add__(self, other: Self) -> Self:
        return self.merge([self, other])


def merge(states: Sequence[S]) -> S:
    """Return the state of all the samples behind the given states."""
    return type(states[0]).merge(states)


@dataclass(frozen=True, eq=False)
class Sums(State):
    """A state whose every field is a sum over samples."""

    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))

    @classmethod
    def stack(cls, states: Sequence[Self]) -> Self:
        """Stack the states in a new first dimension."""
        shapes = {tuple(tuple(t.shape) for t in state.tensors()) for state in states}
        if len(shapes) > 1:
            raise InputError(f"states must come from the same metric with the same options; got shapes {shapes}.")
        return cls(*(torch.stack(parts) for parts in zip(*(state.tensors() for state in states), strict=True)))

    @classmethod
    def merge(cls, states: Sequence[Self]) -> Self:
        if len(states) == 1:
            return states[0]
        return cls(*(field.sum(dim=0) for field in cls.stack(states).tensors()))

    def __getitem__(self, index: int | Tensor) -> Self:  # of stacked states
        return type(self)(*(field[index] for field in self.tensors()))

    def unstacked(self) -> Self:
        """Return the sum of all stacked states."""
        return type(self)(*(field.sum(dim=0) for field in self.tensors()))

    def add_(self, other: Self, chosen: Tensor) -> None:
        """Add to every stacked state the chosen one of the others, in place, some at a time: they may be large."""
        for field, more in zip(self.tensors(), other.tensors(), strict=True):
            for states in row_blocks(len(field), _NUMBERS // max(1, field[0].numel())):
                field[states] += more[chosen[states]]

    def reweighted(self, weights: Tensor) -> Self:
        """Return r weighted sums of g stacked states, from weights (r, g)."""
        return type(self)(*(torch.tensordot(weights, field, dims=1) for field in self.tensors()))


@final
@dataclass(frozen=True, eq=False)
class Ranked:
    """Distinct confidences in rising order, with the numbers of right and of wrong predictions at each.

    Tied samples are one entry, so that nothing computed from it depends on the order of the samples. Entries are in the
    precision of the log-odds; sums over them are float64.
    """

    log_odds: Tensor  # (m,)
    confidence: Tensor  # (m,)
    right: Tensor  # (..., m)
    wrong: Tensor  # (..., m)
    confidence_sum: Tensor | None = None  # (..., m) summed confidence, where it is not count times confidence
    shared_total: Tensor | None = None  # (m,) right plus wrong, where it is the same in all leading dimensions
    squared_weights: Tensor | None = None  # (..., m) their sum, where samples have weights
    squared_right: Tensor | None = None  # (m,) that of the right ones, where it is known

    @property
    def ranked(self) -> Self:  # so that a metric reads any ranked state the same way
        return self

    @cached_property
    def total(self) -> Tensor:  # (..., m), or (m,) if it is the same in all leading dimensions
        return self.right + self.wrong if self.shared_total is None else self.shared_total

    @property
    def gap(self) -> Tensor:  # right predictions minus summed confidence, (..., m)
        return self.right - (self.total * self.confidence if self.confidence_sum is None else self.confidence_sum)

    @cached_property
    def cumulative_right(self) -> Tensor:  # at this confidence or lower, (..., m)
        return self.right.cumsum(dim=-1, dtype=torch.float64)

    @cached_property
    def cumulative_total(self) -> Tensor:
        return self.total.cumsum(dim=-1, dtype=torch.float64)

    @property
    def n_right(self) -> Tensor:
        return self.cumulative_right[..., -1]

    @property
    def n(self) -> Tensor:
        return self.cumulative_total[..., -1]

    @property
    def effective_n(self) -> Tensor:
        """Effective number of samples, (...); without weights their number."""
        if self.squared_weights is None:
            return self.n
        return effective_number(self.n, self.squared_weights.sum(-1))

    def in_effective_samples(self) -> Self:
        """Return the same ranks with weights that add up to the effective number of samples."""
        if self.squared_weights is None:
            return self
        scale = (self.effective_n / as_divisor(self.n))[..., None]
        parts = (self.right, self.wrong, self.confidence_sum, self.shared_total)
        return type(self)(self.log_odds, self.confidence, *(None if p is None else p * scale for p in parts))  # type: ignore[arg-type]

    def cells(self, cells: int, *, bins: Iterable[int] = ()) -> Tensor:
        """Return the number of the cell of each entry, (m,), for :meth:`merged`; cells hold about as many samples each.

        No cell crosses an edge of these numbers of equal-width ``bins``: sums over such bins stay exact, for as many
        more cells as there are edges.
        """
        if len(self.confidence) <= cells:
            return torch.arange(len(self.confidence), device=self.confidence.device)
        one = 1.0 if self.squared_weights is None else float(self.n / self.effective_n)
        cell = ((self.cumulative_total - one) * cells / self.n).long().clamp_(0, cells - 1)
        for n_bins in bins:
            cell = cell * n_bins + bin_index(self.confidence, n_bins)
        return torch.unique_consecutive(cell, return_inverse=True)[1]

    def merged(self, cell: Tensor) -> Self:
        """Join the entries of each cell at their mean confidence, in float64; cells are in order, none is empty."""
        log_odds, confidence = self.log_odds.double(), self.confidence.double()
        squares, squared_right = self.squared_weights, self.squared_right
        exact = type(self)(
            log_odds,
            confidence,
            self.right.double(),
            self.wrong.double(),
            squared_weights=squares,
            squared_right=squared_right,
        )
        size = int(cell[-1]) + 1
        if size == len(cell):
            return exact
        total = sums_by(cell, exact.total, size)
        confidence = sums_by(cell, exact.total * exact.confidence, size) / total
        log_odds = sums_by(cell, exact.total * exact.log_odds.clamp(-1e30, 1e30), size) / total
        right = sums_by(cell, exact.right, size)
        if squares is None:
            return type(self)(log_odds, confidence, right, total - right)
        wrong, squares = sums_by(cell, exact.wrong, size), sums_by(cell, squares, size)
        squared_right = None if squared_right is None else sums_by(cell, squared_right, size)
        return type(self)(log_odds, confidence, right, wrong, squared_weights=squares, squared_right=squared_right)


class Statistic(ABC):
    """A function from samples to a state. Equal statistics give the same state, which is computed once."""

    takes_weights: ClassVar[bool] = False  # whether a sample of weight w counts as w samples; else weights are refused

    @property
    def wanted(self) -> Wanted:
        """What it needs from the pass over the logits, beyond the top label."""
        return TOP_LABEL

    @abstractmethod
    def __call__(self, samples: Predictions | TopLabel) -> State: ...

    def by_group(self, samples: Predictions, group: Tensor) -> Sums:
        """Gather the states of groups 0 to g - 1, (n,), none of them empty, stacked; if the state is a sum."""
        members = group.argsort(stable=True).split(torch.bincount(group).tolist())
        stacked: Sums | None = None
        for place, chosen in enumerate(members):  # one at a time: the states may be large
            state = self(samples[chosen])
            assert isinstance(state, Sums), "only sums can be taken by group"
            if stacked is None:
                stacked = type(state)(*(field.new_empty(len(members), *field.shape) for field in state.tensors()))
            for fields_of_all, field in zip(stacked.tensors(), state.tensors(), strict=True):
                fields_of_all[place] = field
        assert stacked is not None, "there is a group"
        return stacked


class LabelStatistic(Statistic):
    """A statistic of all classes that can also be computed for other labels, without another pass over the logits."""

    @abstractmethod
    def states_for_labels(self, samples: Predictions, labels: Tensor) -> Sums:
        """Return one state per row of labels, (r, n); their leading dimension is r."""


class TopStatistic(Statistic):
    """A statistic of confidence and correctness alone, so that it can also be computed from resampled ranks."""

    @abstractmethod
    def of_ranked(self, ranked: Ranked) -> State | Ranked:
        """Return the same state from ranked samples, whose counts may have leading dimensions."""


@final
@dataclass(frozen=True, eq=False)
class Average(Sums):
    """Sum of one number per sample."""

    count: Tensor  # (...)
    total: Tensor  # (...)


@final
@dataclass(frozen=True)
class Averaged(Statistic):
    """Sum over the samples of one number per sample."""

    takes_weights = True

    per_sample: Callable[[SoftmaxRows], Tensor]
    wanted: Wanted = TOP_LABEL

    def __call__(self, samples: Predictions | TopLabel) -> Average:
        values = self.per_sample(full_predictions(samples).softmax_rows(self.wanted))
        if samples.weights is not None:
            return Average(samples.weights.sum(), (values.double() * samples.weights).sum())
        total = values.sum(dtype=torch.float64)
        return Average(torch.full_like(total, len(samples)), total)

    def by_group(self, samples: Predictions, group: Tensor) -> Average:
        values = self.per_sample(samples.softmax_rows(self.wanted)).double()
        count = torch.bincount(group, samples.weights).double()
        return Average(count, sums_by(group, weighted(values, samples.weights), len(count)))


@final
@dataclass(frozen=True, eq=False)
class Bins(Sums):
    """Per-bin sums over equal-width bins of confidence."""

    count: Tensor  # (..., b)
    confidence: Tensor  # (..., b) sum, not mean
    correct: Tensor  # (..., b) sum, not mean
    squared_weights: Tensor = None  # type: ignore[assignment]  # (..., b) their sum; the count unless given

    def __post_init__(self) -> None:
        if self.squared_weights is None:
            object.__setattr__(self, "squared_weights", self.count)


@dataclass(frozen=True)
class BinStatistic(Statistic):
    """A statistic over equal-width bins."""

    n_bins: int = 15

    def __post_init__(self) -> None:
        check_bins(self.n_bins)


@final
@dataclass(frozen=True)
class Binned(BinStatistic, TopStatistic):
    """Equal-width bins of confidence."""

    takes_weights = True

    def __call__(self, samples: Predictions | TopLabel) -> Bins:
        top = samples.top
        index = bin_index(top.confidence, self.n_bins)
        count, correct = counts_by(index, top.correct, self.n_bins, top.weights)
        squares = None if top.weights is None else sums_by(index, top.weights.square(), self.n_bins)
        confidence = sums_by(index, weighted(top.confidence, top.weights), self.n_bins)
        return Bins(count, confidence, correct, squares)  # type: ignore[arg-type]  # filled in there

    def of_ranked(self, ranked: Ranked) -> Bins:
        ends = bin_ends(ranked.confidence, self.n_bins)
        columns = [ranked.total, ranked.total * ranked.confidence, ranked.right]
        columns += [] if ranked.squared_weights is None else [ranked.squared_weights]
        return Bins(*(sums_between(ends, column) for column in columns))


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
        count, correct = counts_by(index, top.correct, self.n_bins, top.weights)
        confidence = sums_by(index * 2 + top.correct, weighted(top.confidence, top.weights), 2 * self.n_bins)
        confidence = confidence.view(-1, 2)  # of wrong samples and of right ones
        squared = sums_by(index, weighted(top.confidence.square(), top.weights), self.n_bins)
        squares = count if top.weights is None else sums_by(index, top.weights.square(), self.n_bins)
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
    squared_weights: Tensor = None  # type: ignore[assignment]  # (...) their sum; the number of samples unless given

    def __post_init__(self) -> None:
        if self.squared_weights is None:
            object.__setattr__(self, "squared_weights", self.total.sum(-1))

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
        squares = None if top.weights is None else top.weights.square().sum()
        lower, share = self._place(top.confidence)
        count = torch.stack(counts_by(lower, top.correct, self.nodes, top.weights))
        above = sums_by(lower * 2 + top.correct, weighted(share, top.weights), 2 * self.nodes).view(-1, 2)
        shares = torch.stack([above.sum(1), above[:, 1]])  # of all samples, of right ones
        total, right = count - shares + shares.roll(1, -1)  # the last node has none to give
        return Grid(total, right, squares)  # type: ignore[arg-type]  # filled in there

    def of_ranked(self, ranked: Ranked) -> Grid:
        squares = None if ranked.squared_weights is None else ranked.squared_weights.sum(-1)
        return self._spread(ranked.confidence.double(), ranked.total.double(), ranked.right.double(), squares=squares)

    def _spread(self, confidence: Tensor, *masses: Tensor, squares: Tensor | None) -> Grid:
        lower, share = self._place(confidence)
        size = self.nodes
        spread = (sums_by(lower, m * (1 - share), size) + sums_by(lower + 1, m * share, size) for m in masses)
        total, right = spread
        return Grid(total, right, squares)  # type: ignore[arg-type]  # filled in there

    def _place(self, confidence: Tensor) -> tuple[Tensor, Tensor]:
        """Return the node below each sample and the share of the one above: mass and mean confidence are kept."""
        position = confidence * (self.nodes - 1)
        lower = position.int().clamp_(max=self.nodes - 2)
        return lower, position - lower


@final
@dataclass(frozen=True, eq=False)
class PackedSamples(State):
    """Every sample, for exact ranks: 4 bytes per sample from float32 logits, 8 from float64, 8 more for a weight."""

    keys: Tensor  # (n,) log-odds whose lowest bit is the correctness
    weights: Tensor | None = None  # (n,)

    @classmethod
    def gather(cls, log_odds: Tensor, correct: Tensor, weights: Tensor | None = None) -> Self:
        # The bit costs one unit in the last place of a log-odds, less than the rounding behind it, and saves carrying
        # a second column through the sort. Infinities have no bit to spare and are clamped; -0.0 becomes 0.0.
        largest = torch.finfo(log_odds.dtype).max
        bits = log_odds.clamp(-largest, largest).add_(0.0).view(_BITS[log_odds.dtype])
        return cls(bits.bitwise_and_(~1).bitwise_or_(correct).view(log_odds.dtype), weights)

    @classmethod
    def merge(cls, states: Sequence[Self]) -> Self:
        if len({state.keys.dtype for state in states}) > 1:  # the bit would be lost in a plain conversion
            states = [cls.gather(state.keys.double(), state.correct, state.weights) for state in states]
        keys = torch.cat([state.keys for state in states])
        if all(state.weights is None for state in states):
            return cls(keys)
        ones = (keys.new_ones(len(state.keys), dtype=torch.float64) for state in states)
        return cls(
            keys, torch.cat([one if s.weights is None else s.weights for s, one in zip(states, ones, strict=True)])
        )

    @property
    def correct(self) -> Tensor:
        return (self.keys.view(_BITS[self.keys.dtype]) & 1).bool()

    @property
    def log_odds(self) -> Tensor:
        return self.keys.view(_BITS[self.keys.dtype]).bitwise_and(~1).view(self.keys.dtype)

    @cached_property
    def ranked(self) -> Ranked:  # the samples in order, ties joined
        if self.weights is not None:
            return self._ranked_by_weight(self.weights)
        bits = sort_in_place(self.keys.clone()).view(_BITS[self.keys.dtype])
        right = (bits & 1).to(self.keys.dtype)
        log_odds = bits.bitwise_and_(~1).view(self.keys.dtype)
        ends = run_ends(log_odds)
        if len(ends) == len(bits):
            return Ranked(log_odds, sigmoid(log_odds), right, 1 - right)
        total = ends.diff(prepend=ends.new_full((1,), -1)).to(right.dtype)
        up_to = right.cumsum(0, dtype=torch.int32).index_select(0, ends)
        right = up_to.diff(prepend=up_to.new_zeros(1)).to(right.dtype)
        log_odds = log_odds.index_select(0, ends)
        return Ranked(log_odds, sigmoid(log_odds), right, total - right)

    def _ranked_by_weight(self, weights: Tensor) -> Ranked:
        counted = weights > 0
        if counted.any() and not counted.all():
            return type(self)(self.keys[counted], weights[counted]).ranked
        if (weights == weights[0]).all():  # equal weights change nothing
            return type(self)(self.keys).ranked
        order = self.log_odds.argsort()
        log_odds, entry = self.log_odds[order].unique_consecutive(return_inverse=True)
        weight, right = weights[order], self.correct[order]
        columns = (weight * right, weight * ~right, weight.square(), weight.square() * right)
        right, wrong, squares, squared_right = (sums_by(entry, column, len(log_odds)) for column in columns)
        return Ranked(log_odds, sigmoid(log_odds), right, wrong, squared_weights=squares, squared_right=squared_right)


@final
@dataclass(frozen=True)
class RankedSamples(TopStatistic):
    """Exact ranks; the state grows with the samples."""

    takes_weights = True

    def __call__(self, samples: Predictions | TopLabel) -> PackedSamples:
        return PackedSamples.gather(samples.top.log_odds, samples.top.correct, samples.top.weights)

    def of_ranked(self, ranked: Ranked) -> Ranked:
        return ranked


EXACT = RankedSamples()


@final
@dataclass(frozen=True, eq=False)
class Cells(Sums):
    """Sums over fixed cells of log-odds: ranks in bounded memory, with a bound on their error.

    The cells are even in ``x/(8 + |x|)``: fine where most samples lie, and reaching out to any log-odds.
    """

    total: Tensor  # (..., cells)
    right: Tensor  # (..., cells)
    confidence: Tensor  # (..., cells) sum, not mean
    squared_weights: Tensor = None  # type: ignore[assignment]  # (..., cells) their sum; the total unless given

    def __post_init__(self) -> None:
        if self.squared_weights is None:
            object.__setattr__(self, "squared_weights", self.total)

    HALF_RANGE_LOG_ODDS: ClassVar[float] = 8.0

    @property
    def ranked(self) -> Ranked:
        """The cells as if the samples of each were tied at its middle; their summed confidence stays exact."""
        cells = self.total.shape[-1]
        seen = self.total.reshape(-1, cells).any(0).nonzero().flatten()
        squashed = (seen.double() + 0.5) * (2 / cells) - 1
        log_odds = self.HALF_RANGE_LOG_ODDS * squashed / (1 - squashed.abs())
        right = self.right[..., seen]
        wrong, confidence = self.total[..., seen] - right, self.confidence[..., seen]
        squares = self.squared_weights[..., seen]
        return Ranked(log_odds, sigmoid(log_odds), right, wrong, confidence, squared_weights=squares)

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
        top = samples.top
        index = self.cell_of(top.log_odds)
        counts = counts_by(index, top.correct, self.cells, top.weights)
        squares = None if top.weights is None else sums_by(index, top.weights.square(), self.cells)
        confidence = sums_by(index, weighted(top.confidence, top.weights), self.cells)
        return Cells(*counts, confidence, squares)  # type: ignore[arg-type]  # filled in there

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
        columns = (
            samples.weights,
            *(weighted(part, samples.weights) for part in (samples.confidence, samples.correct)),
        )
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


def full_predictions(samples: Predictions | TopLabel) -> Predictions:
    """Return the samples, or raise if they lack the probability of every class."""
    if isinstance(samples, TopLabel):
        raise InputError(
            "this metric needs the probability of every class; got confidence and correctness only. "
            "Give logits or probabilities, or ask for a top-label metric."
        )
    return samples

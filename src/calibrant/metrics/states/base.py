"""States and the statistics that gather them; averages; and ranks, whose state has every sample."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, reduce
from typing import ClassVar, Self, TypeVar, final

import torch
from torch import Tensor

from calibrant.errors import InputError
from calibrant.numerics.binning import bin_index, sums_by
from calibrant.numerics.softmax import TOP_LABEL, SoftmaxRows, Wanted, row_blocks, run_ends, sigmoid, sort_in_place
from calibrant.predictions import Predictions, TopLabel

__all__ = [
    "EXACT", "Average", "Averaged", "LabelStatistic", "PackedSamples", "Ranked", "RankedSamples", "State", "Statistic",
    "Sums", "TopStatistic", "as_divisor", "effective_number", "full_predictions", "merge", "weighted",
]  # fmt: skip

S = TypeVar("S", bound="State")
_BITS = {torch.float32: torch.int32, torch.float64: torch.int64}
_NUMBERS = 1 << 20  # probabilities computed at a time


def as_divisor(mass: Tensor) -> Tensor:
    """Return sums of weights to divide by, where 0, the sum of none, is replaced by the smallest number."""
    return mass.clamp(min=torch.finfo(mass.dtype).tiny)


def effective_number(weights: Tensor, squared_weights: Tensor) -> Tensor:
    """Return how many samples of equal weight have a mean of the same variance, from the two sums (Kish, 1965)."""
    return weights * (weights / as_divisor(squared_weights))


def weighted(values: Tensor, weights: Tensor | None) -> Tensor:
    """Return the numbers of each sample, (n,) or (n, ...), times its weight."""
    return values if weights is None else values * weights.view(-1, *(1,) * (values.ndim - 1))


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
        return cls(*(torch.stack(parts) for parts in cls._fields_of(states)))

    @classmethod
    def merge(cls, states: Sequence[Self]) -> Self:
        if len(states) == 1:
            return states[0]
        return cls(*(reduce(torch.add, parts) for parts in cls._fields_of(states)))

    @staticmethod
    def _fields_of(states: "Sequence[Sums]") -> Iterator[tuple[Tensor, ...]]:
        """Yield each field of all states, which must be alike."""
        shapes = {tuple(tuple(t.shape) for t in state.tensors()) for state in states}
        if len(shapes) > 1:
            raise InputError(f"states must come from the same metric with the same options; got shapes {shapes}.")
        return zip(*(state.tensors() for state in states), strict=True)

    def __getitem__(self, index: int | slice | Tensor) -> Self:  # of stacked states
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


def full_predictions(samples: Predictions | TopLabel) -> Predictions:
    """Return the samples, or raise if they lack the probability of every class."""
    if isinstance(samples, TopLabel):
        raise InputError(
            "this metric needs the probability of every class; got confidence and correctness only. "
            "Give logits or probabilities, or ask for a top-label metric."
        )
    return samples


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

    @property
    def excess_of_heavy(self) -> float:
        """Squared gap of confidence and correctness by squared weights over that by weights; 1 if heavy ones have less.

        The variance of a weighted error is larger by this factor than the effective number of samples says.
        """
        if self.squared_weights is None or self.squared_right is None:
            return 1.0
        of_right, of_wrong = (1 - self.confidence.double()).square(), self.confidence.double().square()
        squares = self.squared_right @ of_right + (self.squared_weights - self.squared_right) @ of_wrong
        by_weights = (self.right.double() @ of_right + self.wrong.double() @ of_wrong) / self.n
        return max(1.0, float(squares / as_divisor(self.squared_weights.sum() * by_weights)))

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
        parts = (part.double() for part in (self.log_odds, self.confidence, self.right, self.wrong))
        log_odds, confidence, right, wrong = parts
        squares, squared_right = self.squared_weights, self.squared_right
        exact = type(self)(log_odds, confidence, right, wrong, squared_weights=squares, squared_right=squared_right)
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


class TopStatistic(Statistic):
    """A statistic of confidence and correctness alone, so that it can also be computed from resampled ranks."""

    @abstractmethod
    def of_ranked(self, ranked: Ranked) -> State | Ranked:
        """Return the same state from ranked samples, whose counts may have leading dimensions."""


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
        ones = torch.ones_like(keys, dtype=torch.float64)
        return cls(keys, torch.cat([ones[: len(s.keys)] if s.weights is None else s.weights for s in states]))

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

    def merged(self, cells: int, bins: Iterable[int] = ()) -> tuple[Ranked, Tensor]:
        """Return the ranked samples merged into :meth:`Ranked.cells`, and the place of each sample there, (n,)."""
        cell = self.ranked.cells(cells, bins=bins)
        highest = self.ranked.log_odds[run_ends(cell)]  # few, which are searched faster than all
        return self.ranked.merged(cell), torch.searchsorted(highest, self.log_odds)

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

    def excess_of_heavy(self, samples: Predictions | TopLabel) -> float:
        """Return :attr:`Ranked.excess_of_heavy` of samples, ranked only if they have weights."""
        return 1.0 if samples.weights is None else self(samples).ranked.excess_of_heavy


EXACT = RankedSamples()

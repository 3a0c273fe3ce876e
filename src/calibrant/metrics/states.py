"""States of metrics: small records of the samples seen, which add up.

The state of two sets of samples together is the sum of their states. Batches, files, machines and the bootstrap rest on
this law. Fields may have leading dimensions (one state per resample); metrics read the last ones.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import ClassVar, Self, TypeAlias, TypeVar, final

import torch
from torch import Tensor

from calibrant.errors import InputError
from calibrant.numerics.binning import bin_index, sums_by
from calibrant.numerics.softmax import run_ends, sigmoid, sort_in_place

S = TypeVar("S", bound="State")
_BITS = {torch.float32: torch.int32, torch.float64: torch.int64}


class State(ABC):
    """Sufficient statistics of a set of samples."""

    @classmethod
    @abstractmethod
    def merge(cls, states: Sequence[Self]) -> Self:
        """Return the state of all their samples together."""

    def __add__(self, other: Self) -> Self:
        return self.merge([self, other])


def merge(states: Sequence[S]) -> S:
    """Return the state of all the samples behind the given states."""
    return type(states[0]).merge(states)


@dataclass(frozen=True, eq=False)
class Sums(State):
    """A state whose every field is a sum over samples."""

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the fields in order."""
        return tuple(getattr(self, field.name) for field in fields(self))

    @classmethod
    def stack(cls, states: Sequence[Self]) -> Self:
        """Put the states side by side in a new first dimension."""
        shapes = {tuple(tuple(t.shape) for t in state.tensors()) for state in states}
        if len(shapes) > 1:
            raise InputError(f"states must come from the same metric with the same options; got shapes {shapes}.")
        return cls(*(torch.stack(parts) for parts in zip(*(state.tensors() for state in states), strict=True)))

    @classmethod
    def merge(cls, states: Sequence[Self]) -> Self:
        if len(states) == 1:
            return states[0]
        return cls(*(field.sum(dim=0) for field in cls.stack(states).tensors()))

    def __getitem__(self, index: int | Tensor) -> Self:
        """Return one of several stacked states, or several of them."""
        return type(self)(*(field[index] for field in self.tensors()))

    def add_(self, other: Self) -> None:
        """Add stacked states one by one, in place: they may be large."""
        for field, more in zip(self.tensors(), other.tensors(), strict=True):
            field.add_(more)

    def reweighted(self, weights: Tensor) -> Self:
        """Return r weighted sums of g stacked states, from weights (r, g)."""
        return type(self)(*(torch.tensordot(weights, field, dims=1) for field in self.tensors()))


@final
@dataclass(frozen=True, eq=False)
class Average(Sums):
    """Sum of one number per sample."""

    count: Tensor  # (...)
    total: Tensor  # (...)


@final
@dataclass(frozen=True, eq=False)
class Bins(Sums):
    """Per-bin sums over equal-width bins of confidence."""

    count: Tensor  # (..., b)
    confidence: Tensor  # (..., b) sum, not mean
    correct: Tensor  # (..., b) sum, not mean


@final
@dataclass(frozen=True, eq=False)
class BinMoments(Sums):
    """As :class:`Bins`, with the second moments inside each bin."""

    count: Tensor  # (..., b)
    confidence: Tensor  # (..., b) sum, not mean
    correct: Tensor  # (..., b) sum, not mean
    confidence_squared: Tensor  # (..., b)
    confidence_correct: Tensor  # (..., b)


@final
@dataclass(frozen=True, eq=False)
class ClassBins(Sums):
    """Per-class, per-bin sums over equal-width bins of probability."""

    count: Tensor  # (..., k, b)
    probability: Tensor  # (..., k, b) sum, not mean
    hits: Tensor  # (..., k, b) samples of that class


@final
@dataclass(frozen=True, eq=False)
class Grid(Sums):
    """Numbers of samples and of correct ones, spread over evenly spaced nodes of confidence in 0..1."""

    total: Tensor  # (..., nodes)
    right: Tensor  # (..., nodes)

    @classmethod
    def gather(cls, confidence: Tensor, right: Tensor, total: Tensor, nodes: int) -> Self:
        """Gather from confidences (m,) with the numbers of correct samples and of all samples there, (..., m)."""
        position = confidence * (nodes - 1)
        lower = position.long().clamp_(max=nodes - 2)
        share = position - lower
        # Both neighbours get their share: mass and mean confidence of every sample are kept exactly.
        return cls(
            *(
                sums_by(lower, mass * (1 - share), nodes) + sums_by(lower + 1, mass * share, nodes)
                for mass in (total, right)
            )
        )


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

    @property
    def ranked(self) -> Self:
        """Itself, so that a metric reads any ranked state the same way."""
        return self

    @cached_property
    def total(self) -> Tensor:
        """Samples at each confidence, (..., m), or (m,) if they are the same throughout."""
        return self.right + self.wrong if self.shared_total is None else self.shared_total

    @property
    def gap(self) -> Tensor:
        """Right predictions minus summed confidence, at each confidence, (..., m)."""
        return self.right - (self.total * self.confidence if self.confidence_sum is None else self.confidence_sum)

    @cached_property
    def cumulative_right(self) -> Tensor:
        """Right predictions at this confidence or lower, (..., m)."""
        return self.right.cumsum(dim=-1, dtype=torch.float64)

    @cached_property
    def cumulative_total(self) -> Tensor:
        """Samples at this confidence or lower, (..., m)."""
        return self.total.cumsum(dim=-1, dtype=torch.float64)

    @property
    def n_right(self) -> Tensor:
        """Number of right predictions, (...)."""
        return self.cumulative_right[..., -1]

    @property
    def n(self) -> Tensor:
        """Number of samples, (...)."""
        return self.cumulative_total[..., -1]

    def coarsened(self, cells: int) -> Self:
        """Join neighbours in rank at their mean confidence, to about this many entries at most, in float64."""
        return self.merged(self.cells(cells))

    def cells(self, cells: int, *, bins: Iterable[int] = ()) -> Tensor:
        """Return the number of the cell of each entry, (m,), for :meth:`merged`.

        Args:
            cells: Number of cells, of about as many samples each.
            bins: Numbers of equal-width bins of confidence whose edges no cell crosses: sums over such bins stay exact,
                for as many more cells as they have edges.
        """
        if len(self.confidence) <= cells:
            return torch.arange(len(self.confidence), device=self.confidence.device)
        cell = ((self.cumulative_total - 1) * cells / self.n).long().clamp_(0, cells - 1)
        for n_bins in bins:
            cell = cell * n_bins + bin_index(self.confidence, n_bins)
        return torch.unique_consecutive(cell, return_inverse=True)[1]

    def merged(self, cell: Tensor) -> Self:
        """Join the entries of each cell, in float64; cells are numbered in order, none of them empty."""
        exact = type(self)(*(field.double() for field in (self.log_odds, self.confidence, self.right, self.wrong)))
        size = int(cell[-1]) + 1
        if size == len(cell):
            return exact
        total = sums_by(cell, exact.total, size)
        confidence = sums_by(cell, exact.total * exact.confidence, size) / total
        log_odds = sums_by(cell, exact.total * exact.log_odds.clamp(-1e30, 1e30), size) / total
        right = sums_by(cell, exact.right, size)
        return type(self)(log_odds, confidence, right, total - right)


@final
@dataclass(frozen=True, eq=False)
class PackedSamples(State):
    """Every sample, for exact ranks: 4 bytes per sample from float32 logits, 8 from float64."""

    keys: Tensor  # (n,) log-odds whose lowest bit is the correctness

    @classmethod
    def gather(cls, log_odds: Tensor, correct: Tensor) -> Self:
        """Gather from log-odds and correctness, (n,) each."""
        # The bit costs one unit in the last place of a log-odds, less than the rounding behind it, and saves carrying
        # a second column through the sort. Infinities have no bit to spare and are clamped; -0.0 becomes 0.0.
        largest = torch.finfo(log_odds.dtype).max
        bits = log_odds.clamp(-largest, largest).add_(0.0).view(_BITS[log_odds.dtype])
        return cls(bits.bitwise_and_(~1).bitwise_or_(correct).view(log_odds.dtype))

    @classmethod
    def merge(cls, states: Sequence[Self]) -> Self:
        if len({state.keys.dtype for state in states}) > 1:  # the bit would be lost in a plain conversion
            states = [cls.gather(state.keys.double(), state.correct) for state in states]
        return cls(torch.cat([state.keys for state in states]))

    @property
    def correct(self) -> Tensor:
        """Correctness, (n,), bool."""
        return (self.keys.view(_BITS[self.keys.dtype]) & 1).bool()

    @property
    def log_odds(self) -> Tensor:
        """Log-odds as ranked, (n,)."""
        return self.keys.view(_BITS[self.keys.dtype]).bitwise_and(~1).view(self.keys.dtype)

    @cached_property
    def ranked(self) -> Ranked:
        """The samples in order, ties joined."""
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


@final
@dataclass(frozen=True, eq=False)
class Cells(Sums):
    """Sums over fixed cells of log-odds: ranks in bounded memory, with a bound on their error.

    The cells are even in ``x/(8 + |x|)``: fine where most samples lie, and reaching out to any log-odds.
    """

    total: Tensor  # (..., cells)
    right: Tensor  # (..., cells)
    confidence: Tensor  # (..., cells) sum, not mean

    HALF_RANGE_LOG_ODDS: ClassVar[float] = 8.0

    @property
    def ranked(self) -> Ranked:
        """The cells as if the samples of each were tied at its middle; their summed confidence stays exact."""
        cells = self.total.shape[-1]
        seen = self.total.reshape(-1, cells).any(0).nonzero().flatten()
        squashed = (seen.double() + 0.5) * (2 / cells) - 1
        log_odds = self.HALF_RANGE_LOG_ODDS * squashed / (1 - squashed.abs())
        right = self.right[..., seen]
        wrong = self.total[..., seen] - right
        return Ranked(log_odds, sigmoid(log_odds), right, wrong, self.confidence[..., seen])

    @property
    def auroc_error(self) -> Tensor:
        """Most by which the area under the ROC curve can differ from the exact one."""
        n_right = self.right.sum(-1)
        n_wrong = self.total.sum(-1) - n_right
        return (self.right * (self.total - self.right)).sum(-1) / (2 * n_right * n_wrong)


TopState: TypeAlias = PackedSamples | Cells | Ranked
"""A state that can be read as ranked confidences."""

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
from calibrant.numerics.binning import bin_ends, bin_index, counts_by, sums_between, sums_by
from calibrant.numerics.softmax import run_ends, sigmoid, sort_in_place
from calibrant.predictions import TopLabel

__all__ = [
    "Average",
    "BinMoments",
    "Bins",
    "Cells",
    "ClassBins",
    "Grid",
    "Ranked",
    "Sample",
    "State",
    "Sums",
    "TopState",
    "merge",
]

S = TypeVar("S", bound="State")


class State(ABC):
    """What a metric remembers of some rows."""

    @classmethod
    @abstractmethod
    def merge(cls, states: Sequence[Self]) -> Self:
        """The state of all their rows together."""

    def __add__(self, other: Self) -> Self:
        return self.merge([self, other])


def merge(states: Sequence[S]) -> S:
    """The state of all the rows behind the given states."""
    return type(states[0]).merge(states)


@dataclass(frozen=True, eq=False)
class Sums(State):
    """A state whose every field is a sum over rows."""

    def tensors(self) -> tuple[Tensor, ...]:
        """The fields in order."""
        return tuple(getattr(self, field.name) for field in fields(self))

    @classmethod
    def stack(cls, states: Sequence[Self]) -> Self:
        """The states side by side in a new first dimension, not added up."""
        shapes = {tuple(tuple(t.shape) for t in state.tensors()) for state in states}
        if len(shapes) > 1:
            raise InputError(f"states must come from the same metric with the same options; got shapes {shapes}.")
        return cls(*(torch.stack(parts) for parts in zip(*(state.tensors() for state in states), strict=True)))

    @classmethod
    def merge(cls, states: Sequence[Self]) -> Self:
        """The state of all their rows together."""
        if len(states) == 1:
            return states[0]
        return cls(*(field.sum(dim=0) for field in cls.stack(states).tensors()))

    def __getitem__(self, place: int | Tensor) -> Self:
        """One of several states that lie side by side, or several of them."""
        return type(self)(*(field[place] for field in self.tensors()))

    def add_(self, other: Self) -> None:
        """Add to each of several states that lie side by side its counterpart, in place: they may be large."""
        for field, more in zip(self.tensors(), other.tensors(), strict=True):
            field.add_(more)

    def reweighted(self, weights: Tensor) -> Self:
        """From g stacked states and weights (r, g), the r weighted sums."""
        return type(self)(*(torch.tensordot(weights, field, dims=1) for field in self.tensors()))


@final
@dataclass(frozen=True, eq=False)
class Average(Sums):
    """Sum of one number a row."""

    count: Tensor  # (...)
    total: Tensor  # (...)


_BITS = {torch.float32: torch.int32, torch.float64: torch.int64}


@final
@dataclass(frozen=True, eq=False)
class Ranked:
    """Distinct confidences in rising order, with the right and the wrong answers at each.

    Rows that tie are one entry: what is computed from it cannot depend on the order of the rows. Entries are in the
    precision of the log-odds; sums over them are float64.
    """

    log_odds: Tensor  # (m,)
    confidence: Tensor  # (m,)
    right: Tensor  # (..., m)
    wrong: Tensor  # (..., m)
    claimed: Tensor | None = None  # (..., m) summed confidence, where it is not count times confidence
    shared_total: Tensor | None = None  # (m,) right plus wrong answers, where all leading dimensions have the same

    @property
    def ranked(self) -> Self:
        """Itself, so that a metric reads any ranked state the same way."""
        return self

    @cached_property
    def total(self) -> Tensor:
        """All answers at each confidence, (..., m), or (m,) if they are the same throughout."""
        return self.right + self.wrong if self.shared_total is None else self.shared_total

    @property
    def gap(self) -> Tensor:
        """Right answers minus those claimed, at each confidence, (..., m)."""
        return self.right - (self.total * self.confidence if self.claimed is None else self.claimed)

    @cached_property
    def right_up_to(self) -> Tensor:
        """Right answers at this confidence or lower, (..., m)."""
        return self.right.cumsum(dim=-1, dtype=torch.float64)

    @cached_property
    def total_up_to(self) -> Tensor:
        """Answers at this confidence or lower, (..., m)."""
        return self.total.cumsum(dim=-1, dtype=torch.float64)

    @property
    def n_right(self) -> Tensor:
        """Right answers, (...)."""
        return self.right_up_to[..., -1]

    @property
    def n(self) -> Tensor:
        """Answers, (...)."""
        return self.total_up_to[..., -1]

    def coarsened(self, cells: int, *, bins: Iterable[int] = ()) -> Self:
        """About this many entries at most, in float64: neighbours in rank are joined at their mean confidence.

        Args:
            cells: How many.
            bins: Numbers of equal-width bins of confidence whose edges no cell reaches over: what such bins hold stays
                exact, for as many more cells as they have edges.
        """
        return self.joined(self.cells(cells, bins=bins))

    def cells(self, cells: int, *, bins: Iterable[int] = ()) -> Tensor:
        """The cell that :meth:`coarsened` puts each entry into, (m,)."""
        if len(self.confidence) <= cells:
            return torch.arange(len(self.confidence), device=self.confidence.device)
        # Boundaries by rank, so that every cell holds about the same number of rows.
        cell = ((self.total_up_to - 1) * cells / self.n).long().clamp_(0, cells - 1)
        for n_bins in bins:
            cell = cell * n_bins + bin_index(self.confidence, n_bins)
        return torch.unique_consecutive(cell, return_inverse=True)[1]

    def joined(self, cell: Tensor) -> Self:
        """The entries of each cell as one, in float64; cells are numbered in order, none of them empty."""
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
class Sample(State):
    """Every row, for metrics that need exact ranks. Grows with n: 4 bytes a row from float32 logits, 8 from float64."""

    keys: Tensor  # (n,) log-odds whose lowest bit says right or wrong

    @classmethod
    def gather(cls, log_odds: Tensor, correct: Tensor) -> Self:
        """From log-odds and correctness, (n,) each."""
        # The bit costs one unit in the last place of a log-odds, less than the rounding behind it, and saves carrying
        # a second column through the sort. Infinities have no bit to spare and are clamped; -0.0 becomes 0.0.
        largest = torch.finfo(log_odds.dtype).max
        bits = log_odds.clamp(-largest, largest).add_(0.0).view(_BITS[log_odds.dtype])
        return cls(bits.bitwise_and_(~1).bitwise_or_(correct).view(log_odds.dtype))

    @classmethod
    def merge(cls, states: Sequence[Self]) -> Self:
        """The state of all their rows together."""
        if len({state.keys.dtype for state in states}) > 1:  # the bit would be lost in a plain conversion
            states = [cls.gather(state.keys.double(), state.correct) for state in states]
        return cls(torch.cat([state.keys for state in states]))

    @property
    def correct(self) -> Tensor:
        """Whether each row was right, (n,), bool."""
        return (self.keys.view(_BITS[self.keys.dtype]) & 1).bool()

    @property
    def log_odds(self) -> Tensor:
        """The log-odds of each row as the ranking has them, (n,)."""
        bits = self.keys.view(_BITS[self.keys.dtype])
        return bits.bitwise_and(~1).view(self.keys.dtype)

    @cached_property
    def ranked(self) -> Ranked:
        """The rows in order, ties joined."""
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
    """Right and wrong answers in fixed cells of log-odds: ranks in bounded memory, with an error it can state itself.

    The cells are even in ``x/(8 + |x|)``: fine where most answers lie, and reaching out to any log-odds.
    """

    total: Tensor  # (..., cells)
    right: Tensor  # (..., cells)
    confidence: Tensor  # (..., cells) sum, not mean

    HALFWAY: ClassVar[float] = 8.0

    @classmethod
    def gather(cls, top: TopLabel, cells: int) -> Self:
        """From rows in any order."""
        reach = torch.finfo(top.log_odds.dtype).max / 4
        log_odds = top.log_odds.clamp(-reach, reach)
        squashed = log_odds / (log_odds.abs() + cls.HALFWAY)
        index = squashed.add_(1).mul_(cells / 2).clamp_(0, cells - 1).int()
        return cls(*counts_by(index, top.correct, cells), sums_by(index, top.confidence, cells))

    @property
    def ranked(self) -> Ranked:
        """The cells as if the rows of each were tied at its middle; what they claimed together stays exact."""
        cells = self.total.shape[-1]
        seen = self.total.reshape(-1, cells).any(0).nonzero().flatten()
        squashed = (seen.double() + 0.5) * (2 / cells) - 1
        log_odds = self.HALFWAY * squashed / (1 - squashed.abs())
        right = self.right[..., seen]
        wrong = self.total[..., seen] - right
        return Ranked(log_odds, sigmoid(log_odds), right, wrong, self.confidence[..., seen])

    @property
    def auroc_error(self) -> Tensor:
        """The most by which the area under the ROC curve can differ from the exact one."""
        n_right = self.right.sum(-1)
        n_wrong = self.total.sum(-1) - n_right
        return (self.right * (self.total - self.right)).sum(-1) / (2 * n_right * n_wrong)


TopState: TypeAlias = Sample | Cells | Ranked
"""Whatever can be read as ranked answers."""


@final
@dataclass(frozen=True, eq=False)
class Bins(Sums):
    """Per-bin sums over equal-width bins of confidence."""

    count: Tensor  # (..., b)
    confidence: Tensor  # (..., b) sum, not mean
    correct: Tensor  # (..., b) sum, not mean

    @classmethod
    def gather(cls, top: TopLabel, n_bins: int) -> Self:
        """From rows in any order."""
        index = bin_index(top.confidence, n_bins)
        count, correct = counts_by(index, top.correct, n_bins)
        return cls(count, sums_by(index, top.confidence, n_bins), correct)

    @classmethod
    def of_ranked(cls, ranked: Ranked, n_bins: int) -> Self:
        """From ranked answers, whose bins lie one after another."""
        ends = bin_ends(ranked.confidence, n_bins)
        columns = (ranked.total, ranked.total * ranked.confidence, ranked.right)
        return cls(*(sums_between(ends, column) for column in columns))


@final
@dataclass(frozen=True, eq=False)
class BinMoments(Sums):
    """As :class:`Bins`, with the second moments inside each bin."""

    count: Tensor  # (..., b)
    confidence: Tensor  # (..., b) sum, not mean
    correct: Tensor  # (..., b) sum, not mean
    confidence_squared: Tensor  # (..., b)
    confidence_correct: Tensor  # (..., b)

    @classmethod
    def gather(cls, top: TopLabel, n_bins: int) -> Self:
        """From rows in any order."""
        bins, index = Bins.gather(top, n_bins), bin_index(top.confidence, n_bins)
        columns = (top.confidence.square(), top.confidence * top.correct)
        return cls(*bins.tensors(), *(sums_by(index, column, n_bins) for column in columns))

    @classmethod
    def of_ranked(cls, ranked: Ranked, n_bins: int) -> Self:
        """From ranked answers, whose bins lie one after another."""
        bins, ends = Bins.of_ranked(ranked, n_bins), bin_ends(ranked.confidence, n_bins)
        columns = (ranked.total * ranked.confidence.square(), ranked.right * ranked.confidence)
        return cls(*bins.tensors(), *(sums_between(ends, column) for column in columns))


@final
@dataclass(frozen=True, eq=False)
class ClassBins(Sums):
    """Per-class, per-bin sums over equal-width bins of probability."""

    count: Tensor  # (..., k, b)
    probability: Tensor  # (..., k, b) sum, not mean
    hits: Tensor  # (..., k, b) rows of that class


@final
@dataclass(frozen=True, eq=False)
class Grid(Sums):
    """Right answers and all answers, spread over evenly spaced nodes of 0..1 (each row over its two neighbours)."""

    total: Tensor  # (..., nodes)
    right: Tensor  # (..., nodes)

    @classmethod
    def gather(cls, confidence: Tensor, right: Tensor, total: Tensor, nodes: int) -> Self:
        """From confidences (m,) with right and all answers at each, (..., m)."""
        position = confidence * (nodes - 1)
        lower = position.long().clamp_(max=nodes - 2)
        share = position - lower
        # Both neighbours get their share: mass and mean confidence of every row are kept exactly.
        return cls(
            *(
                sums_by(lower, mass * (1 - share), nodes) + sums_by(lower + 1, mass * share, nodes)
                for mass in (total, right)
            )
        )

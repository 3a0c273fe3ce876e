"""What metrics remember of the rows they have seen: small records that add up.

Law: the state of two sets of rows together is the sum of their states. Batches, files, machines and the bootstrap all
rest on it. Fields may carry leading dimensions (one state per resample); metrics read the last ones.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import ClassVar, Self, TypeAlias, TypeVar, final

import torch
from torch import Tensor

from calibrant.errors import InputError
from calibrant.numerics.binning import bin_index, sums_by
from calibrant.numerics.fast import sort_in_place

__all__ = ["Average", "Bins", "Cells", "ClassBins", "Grid", "Ranked", "Sample", "State", "Sums", "TopState", "merge"]


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

    def reweighted(self, weights: Tensor) -> Self:
        """From g stacked states and weights (r, g), the r weighted sums."""
        return type(self)(*(torch.tensordot(weights, field, dims=1) for field in self.tensors()))


@final
@dataclass(frozen=True, eq=False)
class Average(Sums):
    """Sum of one number a row."""

    count: Tensor  # (...)
    total: Tensor  # (...)


@final
@dataclass(frozen=True, eq=False)
class Bins(Sums):
    """Per-bin sums over equal-width bins of confidence."""

    count: Tensor  # (..., b)
    confidence: Tensor  # (..., b) sum, not mean
    correct: Tensor  # (..., b) sum, not mean
    confidence_squared: Tensor  # (..., b)
    confidence_correct: Tensor  # (..., b)

    @classmethod
    def gather(cls, confidence: Tensor, right: Tensor, total: Tensor, n_bins: int) -> Self:
        """From confidences (m,) with right and all answers at each, (..., m)."""
        index = bin_index(confidence, n_bins)
        columns = (total, total * confidence, right, total * confidence.square(), right * confidence)
        return cls(*(sums_by(index, column, n_bins) for column in columns))


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


@final
@dataclass(frozen=True, eq=False)
class Ranked:
    """Distinct confidences in rising order, with the right and the wrong answers at each.

    Rows that tie are one entry: what is computed from it cannot depend on the order of the rows.
    """

    log_odds: Tensor  # (m,)
    confidence: Tensor  # (m,)
    right: Tensor  # (..., m)
    wrong: Tensor  # (..., m)

    @property
    def ranked(self) -> Self:
        """Itself, so that a metric reads any ranked state the same way."""
        return self

    @cached_property
    def total(self) -> Tensor:
        """All answers at each confidence, (..., m)."""
        return self.right + self.wrong

    @cached_property
    def right_up_to(self) -> Tensor:
        """Right answers at this confidence or lower, (..., m)."""
        return self.right.cumsum(dim=-1)

    @cached_property
    def total_up_to(self) -> Tensor:
        """Answers at this confidence or lower, (..., m)."""
        return self.total.cumsum(dim=-1)

    @property
    def n_right(self) -> Tensor:
        """Right answers, (...)."""
        return self.right_up_to[..., -1]

    @property
    def n(self) -> Tensor:
        """Answers, (...)."""
        return self.total_up_to[..., -1]

    def coarsened(self, cells: int) -> Self:
        """At most this many entries: neighbours in rank are joined at their mean confidence."""
        m = self.confidence.shape[0]
        if m <= cells:
            return self
        # Boundaries by rank, so that every cell holds about the same number of rows.
        cell = ((self.total_up_to - 1) * cells / self.n).long().clamp_(0, cells - 1)
        _, cell = torch.unique_consecutive(cell, return_inverse=True)
        size = int(cell[-1]) + 1
        total = sums_by(cell, self.total, size)
        confidence = sums_by(cell, self.total * self.confidence, size) / total
        log_odds = sums_by(cell, self.total * self.log_odds.clamp(-1e30, 1e30), size) / total
        right = sums_by(cell, self.right, size)
        return type(self)(log_odds, confidence, right, total - right)


@final
@dataclass(frozen=True, eq=False)
class Sample(State):
    """Every row, for metrics that need exact ranks. Grows with n (8 bytes a row)."""

    keys: Tensor  # (n,) log-odds, float64, whose lowest bit says right or wrong

    @classmethod
    def gather(cls, log_odds: Tensor, correct: Tensor) -> Self:
        """From log-odds and correctness, (n,) each."""
        # The bit costs 1e-16 of a log-odds and saves carrying a second column through the sort. Infinities are
        # clamped (they have no bit to spare) and -0.0 becomes 0.0.
        largest = torch.finfo(torch.float64).max
        bits = log_odds.double().clamp(-largest, largest).add_(0.0).view(torch.int64)
        return cls((bits & ~1 | correct).view(torch.float64))

    @classmethod
    def merge(cls, states: Sequence[Self]) -> Self:
        """The state of all their rows together."""
        return cls(torch.cat([state.keys for state in states]))

    @cached_property
    def ranked(self) -> Ranked:
        """The rows in order, ties joined."""
        bits = sort_in_place(self.keys.clone()).view(torch.int64)
        right = (bits & 1).double()
        log_odds = bits.bitwise_and_(~1).view(torch.float64)
        last = torch.ones_like(bits, dtype=torch.bool)
        torch.ne(log_odds[1:], log_odds[:-1], out=last[:-1])
        ends = last.nonzero().flatten()
        if ends.numel() == bits.numel():
            return Ranked(log_odds, torch.sigmoid(log_odds), right, 1 - right)
        zero = ends.new_full((1,), -1)
        total = ends.diff(prepend=zero).double()
        right = right.cumsum(0)[ends].diff(prepend=right.new_zeros(1))
        log_odds = log_odds[ends]
        return Ranked(log_odds, torch.sigmoid(log_odds), right, total - right)


@final
@dataclass(frozen=True, eq=False)
class Cells(Sums):
    """Right and wrong answers in fixed cells of log-odds: ranks in bounded memory, with an error it can state itself.

    The cells are even in ``asinh(log-odds)``: fine where most answers lie, and reaching far out.
    """

    total: Tensor  # (..., cells)
    right: Tensor  # (..., cells)
    confidence: Tensor  # (..., cells) sum, not mean

    REACH: ClassVar[float] = 12.0  # asinh(80,000): beyond it all answers share the last cell

    @classmethod
    def gather(cls, log_odds: Tensor, confidence: Tensor, correct: Tensor, cells: int) -> Self:
        """From the rows' log-odds, confidence and correctness, (n,) each."""
        scaled = (torch.asinh(log_odds.double()) / cls.REACH + 1) * (cells / 2)
        index = scaled.clamp(0, cells - 1).long()
        columns = (torch.ones_like(confidence), correct.double(), confidence)
        return cls(*(sums_by(index, column, cells) for column in columns))

    @property
    def ranked(self) -> Ranked:
        """The cells as if their rows were tied."""
        seen = (self.total > 0).nonzero().flatten()
        total, right = self.total[seen], self.right[seen]
        confidence = self.confidence[seen] / total
        return Ranked(torch.logit(confidence), confidence, right, total - right)

    @property
    def auroc_error(self) -> Tensor:
        """The most by which the area under the ROC curve can differ from the exact one."""
        n_right = self.right.sum(-1)
        n_wrong = self.total.sum(-1) - n_right
        return (self.right * (self.total - self.right)).sum(-1) / (2 * n_right * n_wrong)


TopState: TypeAlias = Sample | Cells | Ranked
"""Whatever can be read as ranked answers."""

"""What metrics remember of the rows they have seen: small records that add up.

Law: the state of two sets of rows together is the sum of their states. Batches, files, machines and the bootstrap all
rest on it. Fields may carry leading dimensions (one state per resample); metrics read the last ones.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Self, TypeVar, final

import torch
from torch import Tensor

from calibrant.errors import InputError
from calibrant.numerics.binning import bin_ends, bin_index, counts_by, sums_between, sums_by
from calibrant.predictions import TopLabel

if TYPE_CHECKING:
    from calibrant.metrics.ranking import Ranked

__all__ = ["Average", "BinMoments", "Bins", "ClassBins", "Grid", "State", "Sums", "merge"]


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

    def __getitem__(self, place: int) -> Self:
        """One of several states that lie side by side."""
        return type(self)(*(field[place] for field in self.tensors()))

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

    @classmethod
    def gather(cls, top: TopLabel, n_bins: int) -> Self:
        """From rows in any order."""
        index = bin_index(top.confidence, n_bins)
        count, correct = counts_by(index, top.correct, n_bins)
        return cls(count, sums_by(index, top.confidence, n_bins), correct)

    @classmethod
    def of_ranked(cls, ranked: "Ranked", n_bins: int) -> Self:
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
    def of_ranked(cls, ranked: "Ranked", n_bins: int) -> Self:
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

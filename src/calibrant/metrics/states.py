"""States of metrics: small records of the samples seen, which add up.

Law: the state of two sets of rows together is the sum of their states. Batches, files, machines and the bootstrap all
rest on it. Fields may carry leading dimensions (one state per resample); metrics read the last ones.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self, TypeVar, final

import torch
from torch import Tensor

from calibrant.errors import InputError

__all__ = ["Average", "State", "Sums", "merge"]


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

"""How a block of (row, class) entries lies in memory, so that one pass can serve few classes and many.

Rows of many classes are read along. Rows of few classes are too short to reduce along: those blocks are turned on
their side, and what was a sum over a short row becomes a sum of long columns.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Self, final

import torch
from torch import Tensor

from calibrant.numerics.fast import (
    argmax_rows,
    column_products,
    columns_first,
    max_of_few,
    row_products,
    row_sums,
    sum_columns,
)

__all__ = ["Layout"]

# Up to this many classes, on a CPU, a block is turned on its side.
_FEW = 32


@lru_cache(maxsize=1)
def _counting(n: int) -> Tensor:
    """0, 1, …, n - 1 on the CPU, kept because blocks are mostly of one size. Not to be changed."""
    return torch.arange(n)


@final
@dataclass(frozen=True)
class Layout:
    """The shape of a block of n rows and k classes."""

    n: int
    k: int
    sideways: bool

    @classmethod
    def of(cls, logits: Tensor) -> Self:
        """The layout that suits logits (n, k)."""
        n, k = logits.shape
        return cls(n, k, k <= _FEW and logits.device.type == "cpu")

    def lay_out(self, logits: Tensor, *, out: Tensor) -> Tensor:
        """The block in this layout: (n, k), or (k, n) if sideways; in ``out`` where it must be copied."""
        if self.sideways:
            return columns_first(logits, out=out)
        return logits if logits.is_contiguous() else out.copy_(logits)

    def reuse(self, memory: Tensor) -> Tensor:
        """The start of some flat memory, as a block in this layout."""
        return memory[: self.n * self.k].view((self.k, self.n) if self.sideways else (self.n, self.k))

    def largest(self, block: Tensor) -> tuple[Tensor, Tensor]:
        """Largest entry of every row and its class, the first on a tie, (n,) each."""
        if self.sideways:
            return max_of_few(block)
        top = argmax_rows(block)
        return block.view(-1).index_select(0, self.places(top)), top

    def places(self, classes: Tensor) -> Tensor:
        """Where the entry of the given class of each row lies in the flat block, (n,)."""
        if self.sideways:
            return torch.add(_counting(self.n), classes, alpha=self.n)
        starts = torch.arange(0, self.n * self.k, self.k, device=classes.device)
        return starts.add_(classes)

    def of_places(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Rows and classes of flat places, int32: the inverse of :meth:`places`."""
        length = self.n if self.sideways else self.k
        # Exact integer division, by way of floats: several times faster than dividing integers.
        line = places.double().add_(0.5).mul_(1 / length).int()
        column = torch.sub(places.int(), line, alpha=length)
        return (column, line) if self.sideways else (line, column)

    def beside(self, rows: Tensor) -> Tensor:
        """A number a row, shaped to be combined with a block."""
        return rows if self.sideways else rows[:, None]

    def by_rows(self, block: Tensor) -> Tensor:
        """The block as (n, k), whatever its layout."""
        return block.T if self.sideways else block

    def sum_classes(self, block: Tensor, out: Tensor) -> None:
        """Sum over the classes of every row, into (n,)."""
        if self.sideways:
            sum_columns(block, out=out)
        else:
            row_sums(block, out=out)

    def sum_products(self, first: Tensor, second: Tensor, *, memory: Tensor, out: Tensor) -> None:
        """Sum over the classes of the product of two blocks, into (n,)."""
        if self.sideways:
            column_products(first, second, out=out)
        elif first.device.type == "cpu":
            row_products(first, second, out=out)
        else:
            self.sum_classes(torch.mul(first, second, out=memory), out)

    def sum_rows(self, block: Tensor, weights: Tensor) -> Tensor:
        """Weighted sum over the rows for every class, (k,)."""
        return block @ weights if self.sideways else weights @ block

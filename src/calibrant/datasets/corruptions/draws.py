"""Chance that belongs to a row: the same numbers for it in whatever batch, and on whatever device, it comes."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

__all__ = ["RowDraws"]


@final
@dataclass(frozen=True)
class RowDraws:
    """Random numbers for some rows, from a generator that is started anew for each of them.

    They are drawn on the CPU and then moved, as a GPU's generator would give others. A row's numbers depend on the
    shape of an image, and on nothing else but these:

    Args:
        name: Of what is drawn for; another name gives other numbers.
        seed: At least 0.
        first_row: Number of the first row.

    Example:
        >>> draws = RowDraws("gaussian_noise", seed=0, first_row=0)
        >>> both, second = draws.normal(torch.zeros(2, 5)), RowDraws("gaussian_noise", 0, 1).normal(torch.zeros(1, 5))
        >>> bool((both[1:] == second).all())
        True
    """

    name: str
    seed: int
    first_row: int

    def normal(self, like: Tensor) -> Tensor:
        """Standard normal numbers, of the shape and on the device of a tensor whose first axis is rows."""
        drawn = torch.empty(like.shape)
        for row, generator in zip(drawn.unbind(), self._generators(), strict=False):
            row.normal_(generator=generator)
        return drawn.to(like.device)

    def uniform(self, like: Tensor) -> Tensor:
        """Numbers from 0 to below 1, of the shape and on the device of a tensor whose first axis is rows."""
        drawn = torch.empty(like.shape)
        for row, generator in zip(drawn.unbind(), self._generators(), strict=False):
            row.uniform_(generator=generator)
        return drawn.to(like.device)

    def poisson(self, rates: Tensor) -> Tensor:
        """Counts with these means, whose first axis is rows."""
        rows = zip(rates.cpu().unbind(), self._generators(), strict=False)
        drawn = [torch.poisson(row, generator=generator) for row, generator in rows]
        return torch.stack(drawn).to(rates.device)

    def _generators(self) -> Iterator[torch.Generator]:
        """One generator again and again, at the start of each row's numbers; without an end."""
        generator, row = torch.Generator(), self.first_row
        while True:
            digest = hashlib.sha256(f"{self.name} {self.seed} {row}".encode()).digest()
            generator.manual_seed(int.from_bytes(digest[:4], "big"))  # torch looks at no more than 32 bits
            yield generator
            row += 1

"""How rows are shown to the network while δ is learned: moved by δ, clipped, and augmented if that is wanted."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from calibrant.clamping.network.augmentation import Augmentation, augmented
from calibrant.clamping.network.input_space import InputSpace

__all__ = ["Showing"]

_SEEDS = 100_003  # draws that do not meet those of the next seed


@final
@dataclass(frozen=True)
class Showing:
    """What is done to inputs on their way to the network.

    Args:
        space: What they are; says whether x + δ is clipped.
        augmentation: Done before δ is added.
        views: How many augmented copies of a row a pass over all of them sees.
        seed: Of the augmentation.
    """

    space: InputSpace | None = None
    augmentation: Augmentation = "none"
    views: int = 4
    seed: int = 0

    @property
    def n_views(self) -> int:
        """How often a pass sees a row: copies that do not differ are not worth it."""
        return 1 if self.augmentation == "none" else self.views

    def chance(self, number: int) -> torch.Generator:
        """The draws of a view, or of an epoch."""
        return torch.Generator().manual_seed(self.seed * _SEEDS + number)

    def augmented(self, inputs: Tensor, chance: torch.Generator) -> Tensor:
        """Inputs as they are seen before δ is added."""
        if self.augmentation == "none":
            return inputs
        return augmented(inputs, self.augmentation, chance, self.space)

    def moved(self, inputs: Tensor, delta: Tensor) -> Tensor:
        """X + δ, clipped if the space says so."""
        moved = inputs + delta.to(inputs)
        return moved.clamp(*self.space.bounds(moved[0])) if self.space is not None and self.space.clips else moved

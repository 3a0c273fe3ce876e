"""What is done to inputs on their way to the network while δ is learned: moved by δ, clipped, augmented if wanted."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from calibrant.clamping.network.augmentation import Augmentation, augmented
from calibrant.clamping.network.input_space import InputSpace

__all__ = ["InputPreparation", "moved"]

_SEEDS = 100_003  # draws that do not meet those of the next seed
_KNOWN_SEEDS = 2**63  # to torch; a product may exceed them


@final
@dataclass(frozen=True)
class InputPreparation:
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
        return torch.Generator().manual_seed((self.seed * _SEEDS + number) % _KNOWN_SEEDS)

    def augmented(self, inputs: Tensor, chance: torch.Generator) -> Tensor:
        """Inputs as they are seen before δ is added."""
        if self.augmentation == "none":
            return inputs
        return augmented(inputs, self.augmentation, chance, self.space)

    def moved(self, inputs: Tensor, delta: Tensor) -> Tensor:
        """X + δ, clipped if the space says so."""
        ends = self.space.bounds(inputs[0]) if self.space is not None and self.space.clips else None
        return moved(inputs, delta, ends)


def moved(inputs: Tensor, delta: Tensor, ends: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """X + δ in the inputs' own type, and back between the ends where there are some.

    Args:
        inputs: Shape (n, ...).
        delta: Of an input's shape.
        ends: The lowest and the highest input, of its shape.

    Example:
        >>> moved(torch.tensor([[0.5, 0.25]]), torch.tensor([0.7, 0.0]), (torch.zeros(2), torch.ones(2)))
        tensor([[1.0000, 0.2500]])
    """
    # Not inputs + delta, by which -0 becomes 0: where δ is 0, nothing of an input may change.
    total = inputs - (0 - delta.to(inputs))
    return total if ends is None else total.clamp(*(end.to(inputs) for end in ends))

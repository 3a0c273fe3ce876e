"""Brightness: too much light."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from calibrant.datasets.corruptions.base import Corruption
from calibrant.datasets.corruptions.draws import RowDraws

__all__ = ["Brightness"]


@final
@dataclass(frozen=True)
class Brightness(Corruption):
    """The brightest channel of every pixel is raised by so much, at most to full; hue and saturation stay.

    So the other channels rise in proportion, and black becomes grey: adding to the value in the HSV colour space.
    """

    name: ClassVar[str] = "brightness"
    title: ClassVar[str] = "Brightness"
    strengths: ClassVar[tuple[float, ...]] = (0.05, 0.1, 0.15, 0.2, 0.3)
    unit: ClassVar[str] = "what is added, in parts of the full range"

    def spoil(self, pixels: Tensor, strength: float, draws: RowDraws) -> Tensor:
        del draws
        value = pixels.amax(1, keepdim=True)
        raised = (value + strength).clamp(max=1)
        return torch.where(value > 0, pixels / value * raised, raised)

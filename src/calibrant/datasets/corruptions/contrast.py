"""Contrast: fog, or light from everywhere."""

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from calibrant.datasets.corruptions.base import Corruption
from calibrant.datasets.corruptions.draws import RowDraws

__all__ = ["Contrast"]


@final
@dataclass(frozen=True)
class Contrast(Corruption):
    """Every channel of an image is drawn towards its mean."""

    name: ClassVar[str] = "contrast"
    title: ClassVar[str] = "Contrast"
    strengths: ClassVar[tuple[float, ...]] = (0.75, 0.5, 0.4, 0.3, 0.15)
    unit: ClassVar[str] = "part of the contrast that is left"

    def spoil(self, pixels: Tensor, strength: float, draws: RowDraws) -> Tensor:
        del draws
        return pixels.mean((2, 3), keepdim=True).lerp(pixels, strength)

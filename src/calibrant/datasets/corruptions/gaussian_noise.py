"""Gaussian noise: what a sensor adds in the dark."""

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from calibrant.datasets.corruptions.base import Corruption
from calibrant.datasets.corruptions.draws import RowDraws

__all__ = ["GaussianNoise"]


@final
@dataclass(frozen=True)
class GaussianNoise(Corruption):
    """Independent normal noise in every channel of every pixel; the same noise, scaled, at every severity."""

    name: ClassVar[str] = "gaussian_noise"
    title: ClassVar[str] = "Gaussian noise"
    strengths: ClassVar[tuple[float, ...]] = (0.04, 0.06, 0.08, 0.09, 0.10)
    unit: ClassVar[str] = "standard deviation, in parts of the full range"

    def spoil(self, pixels: Tensor, strength: float, draws: RowDraws) -> Tensor:
        return pixels + strength * draws.normal(pixels)

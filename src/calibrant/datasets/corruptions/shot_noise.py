"""Shot noise: light comes in grains, and a short exposure counts few of them."""

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from calibrant.datasets.corruptions.base import Corruption
from calibrant.datasets.corruptions.draws import RowDraws

__all__ = ["ShotNoise"]


@final
@dataclass(frozen=True)
class ShotNoise(Corruption):
    """Poisson noise: black stays black, and the variance grows with brightness."""

    name: ClassVar[str] = "shot_noise"
    title: ClassVar[str] = "Shot noise"
    strengths: ClassVar[tuple[float, ...]] = (500, 250, 100, 75, 50)
    unit: ClassVar[str] = "photons that make white"

    def spoil(self, pixels: Tensor, strength: float, draws: RowDraws) -> Tensor:
        return draws.poisson(pixels * strength) / strength

"""Impulse noise, salt and pepper: values that were lost on the way."""

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from calibrant.datasets.corruptions.base import Corruption
from calibrant.datasets.corruptions.draws import RowDraws

__all__ = ["ImpulseNoise"]


@final
@dataclass(frozen=True)
class ImpulseNoise(Corruption):
    """A share of all values, each channel by itself, becomes 0 or full, one as likely as the other.

    What is lost at one severity is lost at the next, too.
    """

    name: ClassVar[str] = "impulse_noise"
    title: ClassVar[str] = "Impulse noise"
    strengths: ClassVar[tuple[float, ...]] = (0.01, 0.02, 0.03, 0.05, 0.07)
    unit: ClassVar[str] = "share of the values that are lost"

    def spoil(self, pixels: Tensor, strength: float, draws: RowDraws) -> Tensor:
        fate = draws.uniform(pixels)
        return pixels.masked_fill(fate < strength / 2, 0.0).masked_fill_(fate >= 1 - strength / 2, 1.0)

"""Gaussian blur: a soft lens."""

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from calibrant.datasets.corruptions.base import Corruption
from calibrant.datasets.corruptions.draws import RowDraws
from calibrant.datasets.corruptions.shifting import weighted_shifts

__all__ = ["GaussianBlur"]

_REACH = 4  # standard deviations, as in the authors' code


@final
@dataclass(frozen=True)
class GaussianBlur(Corruption):
    """Every pixel becomes a mean of its neighbours, weighted by a bell."""

    name: ClassVar[str] = "gaussian_blur"
    title: ClassVar[str] = "Gaussian blur"
    strengths: ClassVar[tuple[float, ...]] = (0.4, 0.6, 0.7, 0.8, 1.0)
    unit: ClassVar[str] = "standard deviation, in pixels"

    def spoil(self, pixels: Tensor, strength: float, draws: RowDraws) -> Tensor:
        del draws
        # Differs from the paper: its code repeats the pixels at the edge, which changes an image's mean.
        reach = math.floor(_REACH * strength + 0.5)
        places = torch.arange(-reach, reach + 1, dtype=torch.float64)
        bell = (-(places**2) / (2 * strength**2)).exp()
        bell /= bell.sum()
        return weighted_shifts(weighted_shifts(pixels, bell[:, None]), bell[None])

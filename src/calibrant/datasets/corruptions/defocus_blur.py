"""Defocus blur: a lens that is set to another distance."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from calibrant.datasets.corruptions.base import Corruption
from calibrant.datasets.corruptions.draws import RowDraws
from calibrant.datasets.corruptions.shifting import weighted_shifts

__all__ = ["DefocusBlur"]

_EDGE = {0.3: 0.4, 0.4: 0.5, 0.5: 0.6, 1.0: 0.2, 1.5: 0.1}  # how soft the disk's edge is, for each radius


@final
@dataclass(frozen=True)
class DefocusBlur(Corruption):
    """Every pixel becomes the mean of a disk around it, whose edge is softened.

    On images as small as CIFAR's the disk is one pixel up to severity 3, so that these are blurs by the soft edge
    alone, much as :class:`GaussianBlur`; at severity 4 it is a cross of five pixels, at 5 a square of nine.
    """

    name: ClassVar[str] = "defocus_blur"
    title: ClassVar[str] = "Defocus blur"
    strengths: ClassVar[tuple[float, ...]] = tuple(_EDGE)
    unit: ClassVar[str] = "radius of the disk, in pixels"

    def spoil(self, pixels: Tensor, strength: float, draws: RowDraws) -> Tensor:
        del draws
        # Differs from the paper: its code mirrors at the middle of the outermost pixels, which changes an image's mean.
        places = torch.arange(-1, 2, dtype=torch.float64)
        disk = (places**2 + places[:, None] ** 2 <= strength**2).double()
        bell = (-(places**2) / (2 * _EDGE[strength] ** 2)).exp()
        return weighted_shifts(weighted_shifts(pixels, disk / disk.sum()), torch.outer(bell, bell) / bell.sum() ** 2)

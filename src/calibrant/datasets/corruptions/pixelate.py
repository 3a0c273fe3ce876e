"""Pixelation: an image made smaller and larger again."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from calibrant.datasets.corruptions.base import Corruption
from calibrant.datasets.corruptions.draws import RowDraws

__all__ = ["Pixelate"]


@final
@dataclass(frozen=True)
class Pixelate(Corruption):
    """Made smaller by a box filter, then as large as before by repeating pixels.

    A box takes the mean of the whole pixels whose middle it covers, as Pillow's does. Sizes are whole numbers, so that
    on very small images, of 8 x 8 pixels say, severities may be the same or even change places, and on a single pixel
    nothing happens.
    """

    name: ClassVar[str] = "pixelate"
    title: ClassVar[str] = "Pixelation"
    strengths: ClassVar[tuple[float, ...]] = (0.95, 0.9, 0.85, 0.75, 0.65)
    unit: ClassVar[str] = "part of the width and height that is left"

    def spoil(self, pixels: Tensor, strength: float, draws: RowDraws) -> Tensor:
        del draws
        return _coarse(_coarse(pixels, 2, strength), 3, strength)


def _coarse(pixels: Tensor, axis: int, left: float) -> Tensor:
    size = pixels.shape[axis]
    small = max(1, int(size * left))
    middles = torch.arange(size, device=pixels.device) + 0.5
    boxes = (middles * small / size).long()  # for every pixel, the box that its middle lies in
    counts = boxes.bincount(minlength=small).reshape([-1 if other == axis else 1 for other in range(pixels.ndim)])
    shape = [small if other == axis else length for other, length in enumerate(pixels.shape)]
    means = pixels.new_zeros(shape).index_add_(axis, boxes, pixels) / counts
    return means.index_select(axis, boxes)

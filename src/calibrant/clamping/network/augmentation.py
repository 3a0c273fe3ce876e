"""Calibration images shifted and mirrored, so that δ cannot learn them by heart."""

from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from calibrant.checks import are_images
from calibrant.clamping.network.input_space import InputSpace
from calibrant.errors import InputError

__all__ = ["Augmentation", "augmented"]

Augmentation: TypeAlias = Literal["none", "crop", "crop-flip"]
# Pixels on each side that an image of 32 or more is shifted by, as the papers have it; of smaller ones, in proportion.
_PADDING, _FULL_SIDE = 4, 32


def augmented(inputs: Tensor, kind: Augmentation, generator: torch.Generator, space: InputSpace | None) -> Tensor:
    """Images (n, c, h, w) shifted by up to 4 pixels (an eighth of a small side); ``crop-flip`` also mirrors half.

    Args:
        inputs: As the network takes them.
        kind: Not ``none``.
        generator: On the CPU.
        space: Its lowest pixel fills the border; without one, 0 does.
    """
    if not are_images(inputs):
        raise InputError(f"only images, (n, c, h, w), can be shifted; got inputs of shape {tuple(inputs.shape)}.")
    n, _, height, width = inputs.shape
    most = min(_PADDING, min(height, width) * _PADDING // _FULL_SIDE)
    # Row by row, so that a row meets the same fate in batches of any size.
    drawn = torch.rand((n, 3, 1), generator=generator, dtype=torch.float64).to(inputs.device)
    down, right = (drawn[:, axis].mul(2 * most + 1).long() for axis in range(2))
    mirrored = drawn[:, 2] < (0.5 if kind == "crop-flip" else 0.0)
    border = torch.zeros_like(inputs[0]) if space is None else space.bounds(inputs[0])[0]
    padded = F.pad(inputs - border, (most,) * 4)
    rows = torch.arange(height, device=inputs.device) + down
    columns = torch.arange(width, device=inputs.device)
    columns = torch.where(mirrored, width - 1 - columns, columns) + right
    every = torch.arange(n, device=inputs.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[every, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2) + border

"""JPEG: what saving a picture too small does to it."""

from dataclasses import dataclass
from io import BytesIO
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from calibrant.datasets.corruptions.base import Corruption
from calibrant.datasets.corruptions.draws import RowDraws

__all__ = ["JPEGCompression"]

_PEAK = 255  # of a pixel in eight bits, which is what JPEG stores


@final
@dataclass(frozen=True)
class JPEGCompression(Corruption):
    """Every image is saved as JPEG and read again, in memory; colour at half the resolution, as is usual."""

    name: ClassVar[str] = "jpeg_compression"
    title: ClassVar[str] = "JPEG compression"
    strengths: ClassVar[tuple[float, ...]] = (80, 65, 58, 50, 40)
    unit: ClassVar[str] = "quality"

    def spoil(self, pixels: Tensor, strength: float, draws: RowDraws) -> Tensor:
        from PIL import Image

        del draws
        stored = (pixels * _PEAK).round().to(torch.uint8).movedim(1, -1).contiguous().cpu().numpy()
        spoilt = np.empty_like(stored)
        # One after the other: at 32 x 32 most of the work is Python's own, and threads made it slower.
        for image, result in zip(stored, spoilt, strict=True):
            file = BytesIO()
            plane = image[..., 0] if image.shape[-1] == 1 else image
            Image.fromarray(plane).save(file, "JPEG", quality=int(strength))
            with Image.open(file, formats=("JPEG",)) as read:
                result[:] = np.asarray(read).reshape(image.shape)
        return torch.from_numpy(spoilt).to(pixels.device).movedim(-1, 1) / _PEAK

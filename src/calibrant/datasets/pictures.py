"""Picture files (JPEG, PNG and the like) into one array of bytes, several at a time."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from calibrant.errors import FileError

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["PICTURE_ENDINGS", "fit_square", "read_pictures", "same_size"]

PICTURE_ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_SHOWN = 3


def read_pictures(paths: Sequence[Path], *, size: int, shape: Callable[["Image", int], "Image"]) -> Tensor:
    """Read colour pictures into one tensor, (n, 3, size, size) uint8; grey ones get three equal channels.

    Args:
        paths: The files.
        size: Side of the pictures, in pixels.
        shape: Makes a picture that size, or raises ValueError: :func:`same_size` or :func:`fit_square`.

    Raises:
        FileError: If some cannot be read; the first of them are named.
    """
    from PIL import Image, ImageOps

    images = np.empty((len(paths), 3, size, size), dtype=np.uint8)

    def read(row: int) -> str:
        try:
            with Image.open(paths[row]) as stored:
                # Cameras store how they were held.
                upright = ImageOps.exif_transpose(stored).convert("RGB")
                images[row] = np.asarray(shape(upright, size)).transpose(2, 0, 1)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            return f"{paths[row]} ({(str(error).splitlines() or [type(error).__name__])[0]})"
        return ""

    # Decoding happens outside Python's lock.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failed = list(filter(None, pool.map(read, range(len(paths)))))
    if failed:
        more = f" and {len(failed) - _SHOWN:,} more" if len(failed) > _SHOWN else ""
        raise FileError(
            f"every picture must be readable; these are not: {'; '.join(failed[:_SHOWN])}{more}. Remove them, or get "
            "them again."
        )
    return torch.from_numpy(images)


def same_size(picture: "Image", size: int) -> "Image":
    """The picture as it is, which must have the size already."""
    if picture.size != (size, size):
        message = f"it must have {size} x {size} pixels; got {picture.width} x {picture.height}"
        raise ValueError(message)
    return picture


def fit_square(picture: "Image", size: int) -> "Image":
    """The largest square in the middle of the picture, made smaller or larger."""
    from PIL import Image, ImageOps

    return ImageOps.fit(picture, (size, size), Image.Resampling.BICUBIC)

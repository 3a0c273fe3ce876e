"""Arrays from elsewhere as images and labels, and what to say of those that are none."""

from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from calibrant.errors import FileError

__all__ = ["ImageLayout", "as_class_numbers", "as_images"]

ImageLayout: TypeAlias = Literal["auto", "channels_first", "channels_last"]

_CHANNELS = {1, 3}


def as_images(images: np.ndarray, *, where: str, layout: ImageLayout = "auto") -> Tensor:
    """Images as the library keeps them, (n, c, h, w) uint8.

    Args:
        images: (n, h, w, c) or (n, c, h, w) with one or three channels, or grey (n, h, w).
        where: What messages call them.
        layout: Where the channels stand, if the shape leaves it open.

    Raises:
        FileError: If they are not bytes, have another shape, or one that may be read both ways.
    """
    if images.dtype != np.uint8:
        cure = (
            "If they lie in 0..1, save (images * full).round().astype('uint8'), where full is the brightest pixel of "
            "the data set, mostly 255"
            if images.dtype.kind == "f"
            else "Save images.astype('uint8'), if all lie in 0..255"
        )
        raise FileError(f"{where} must be pixels as their data set stores them, in uint8; got {images.dtype}. {cure}.")
    if images.ndim == 3:
        images = images[:, None]
        layout = "channels_first"
    if images.ndim != 4 or not images.size:
        raise FileError(
            f"{where} must be images, (n, h, w, c), (n, c, h, w) or (n, h, w), at least one; got shape {images.shape}. "
            "Reshape them before they are saved."
        )
    first, last = images.shape[1] in _CHANNELS, images.shape[3] in _CHANNELS
    if layout == "auto" and first and last:
        raise FileError(
            f"{where} must have its channels in one place; shape {images.shape} may be read both ways. Pass "
            "layout='channels_first' or layout='channels_last'."
        )
    is_first = first if layout == "auto" else layout == "channels_first"
    if not (first if is_first else last):
        asked = "" if layout == "auto" else f" where layout={layout!r} has them"
        raise FileError(f"{where} must have one or three channels{asked}; got shape {images.shape}.")
    return torch.from_numpy(np.ascontiguousarray(images if is_first else images.transpose(0, 3, 1, 2)))


def as_class_numbers(labels: np.ndarray, n: int, *, where: str, n_classes: int | None = None) -> Tensor:
    """Labels as the library keeps them, (n,) int64.

    Args:
        labels: Whole numbers of any integer type, (n,).
        n: How many images there are.
        where: What messages call the labels.
        n_classes: They must be below it; None if that is not known.

    Raises:
        FileError: If they are not whole numbers, one an image, or lie outside the classes.
    """
    if labels.dtype.kind not in "iu" or labels.shape != (n,):
        raise FileError(
            f"{where} must be a whole number for each of {n:,} images, one axis; got {labels.dtype} "
            f"of shape {labels.shape}."
        )
    numbers = labels.astype(np.int64)
    outside = (numbers < 0) | (False if n_classes is None else numbers >= n_classes)
    if outside.any():
        row = int(outside.argmax())
        bounds = "be 0 or more" if n_classes is None else f"lie in 0..{n_classes - 1}, the classes of the network"
        cure = " If labels start at 1, subtract 1." if numbers[row] == n_classes and numbers.min() >= 1 else ""
        cure = " Remove rows without a label." if numbers[row] < 0 else cure
        raise FileError(f"{where} must {bounds}; got {numbers[row]} at image {row}.{cure}")
    return torch.from_numpy(numbers)

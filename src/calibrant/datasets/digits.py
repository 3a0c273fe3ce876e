"""1,797 hand-written digits of 8 x 8 pixels, shipped with the package: a real data set that needs no download.

Attribution: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits (1998), UCI Machine Learning
Repository, https://doi.org/10.24432/C50P49, licence CC BY 4.0; its test part, as NIST's pre-processing left it (43
people; every pixel counts the set bits of a 4 x 4 patch, 0 to 16). Here: the same numbers, stored as uint8.
"""

from importlib.resources import files
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["Digits", "load_digits"]


class Digits(NamedTuple):
    """Images and what they show."""

    images: Tensor  # (1797, 1, 8, 8) float32 in 0..1
    labels: Tensor  # (1797,) int64


def load_digits() -> Digits:
    """Read the digits.

    Example:
        >>> digits = load_digits()
        >>> tuple(digits.images.shape), digits.labels[:5].tolist()
        ((1797, 1, 8, 8), [0, 1, 2, 3, 4])
    """
    with (files("calibrant.datasets") / "digits.npz").open("rb") as stream, np.load(stream) as archive:
        images, labels = archive["images"], archive["labels"]
    return Digits(torch.from_numpy(images).float().div_(16)[:, None], torch.from_numpy(labels).long())

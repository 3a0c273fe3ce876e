"""How many rows are read at a time: as a person says, or by the size of an input."""

import sys
from math import prod

import torch

from calibrant.checks import check_at_least

__all__ = ["check_batch_size", "default_batch_size"]

_NUMBERS = 2**20  # of inputs in a batch: 341 images of 3 x 32 x 32
_ROWS = 1024
_TIMES_ON_CUDA = 4  # small batches leave a GPU idle


def check_batch_size(batch_size: object) -> int:
    """At least one row, and no more than torch can count."""
    return min(check_at_least(batch_size, 1, "batch_size"), sys.maxsize)


def default_batch_size(input_shape: tuple[int, ...], device: torch.device) -> int:
    """Rows that hold about a million numbers, at most 1,024; on a GPU four times as many.

    Example:
        >>> default_batch_size((3, 32, 32), torch.device("cpu"))
        341
    """
    rows = min(max(_NUMBERS // max(prod(input_shape), 1), 1), _ROWS)
    return rows * (_TIMES_ON_CUDA if device.type == "cuda" else 1)

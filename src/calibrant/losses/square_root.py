"""A square root to train with."""

import torch
from torch import Tensor

__all__ = ["square_root"]


def square_root(value: Tensor) -> Tensor:
    """The root of a number that is at least 0 but for rounding, with slope 0 instead of infinity where it is 0.

    Example:
        >>> zero = torch.zeros((), requires_grad=True)
        >>> square_root(zero).backward()
        >>> float(zero.grad)
        0.0
    """
    # Below this it is the rounding of a sum of numbers up to 1, and the slope of its root would be noise.
    positive = value > torch.finfo(value.dtype).eps ** 2
    return torch.where(positive, value, 1).sqrt() * positive

"""The precision that logits are worked on in."""

import torch
from torch import Tensor

__all__ = ["working"]


def working(values: Tensor) -> Tensor:
    """In float64 as they are, all else in float32: halves have too few digits, and whole numbers none after the point.

    Example:
        >>> working(torch.tensor([3, 1])).dtype
        torch.float32
    """
    return values if values.dtype == torch.float64 else values.float()

"""Weighted sums of shifted images: what a blur is. The edge is a mirror, so no size is too small."""

import torch
from torch import Tensor

__all__ = ["mirrored", "weighted_shifts"]


def weighted_shifts(pixels: Tensor, kernel: Tensor) -> Tensor:
    """Every pixel replaced by the mean of those around it, with these weights.

    An image's mean stays as it is if the kernel is symmetric and its weights sum to 1: what would leave at an edge
    comes back in.

    Args:
        pixels: (n, c, h, w).
        kernel: Weights, (rows, columns), both odd, the middle one for the pixel itself.

    Returns:
        (n, c, h, w).

    Example:
        >>> weighted_shifts(torch.tensor([[[[1.0, 2.0, 6.0]]]]), torch.tensor([[0.25, 0.5, 0.25]]))
        tensor([[[[1.2500, 2.7500, 5.0000]]]])
    """
    height, width = pixels.shape[2:]
    down, across = kernel.shape[0] // 2, kernel.shape[1] // 2
    rows = mirrored(torch.arange(-down, height + down, device=pixels.device), height)
    columns = mirrored(torch.arange(-across, width + across, device=pixels.device), width)
    framed = pixels[:, :, rows][..., columns]
    total = torch.zeros_like(pixels)
    # Kernels are small and mostly empty: adding up is as fast as a convolution, and the same on every device.
    for top, weights in enumerate(kernel.tolist()):
        for left, weight in enumerate(weights):
            if weight:
                total.add_(framed[:, :, top : top + height, left : left + width], alpha=weight)
    return total


def mirrored(places: Tensor, size: int) -> Tensor:
    """Places on an endless line as those of an image with a mirror at its edges: 1 0 | 0 1 2 | 2 1.

    Example:
        >>> mirrored(torch.arange(-2, 8), 3).tolist()
        [1, 0, 0, 1, 2, 2, 1, 0, 0, 1]
    """
    folded = places % (2 * size)
    return torch.minimum(folded, 2 * size - 1 - folded)

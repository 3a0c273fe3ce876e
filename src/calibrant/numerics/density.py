"""Density of points in a plane by Gaussian kernels, on a grid."""

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Axis", "grid_density", "normal_reference"]

# Points whose kernels are held at once.
_BLOCK = 1 << 13


class Axis(NamedTuple):
    """Evenly spaced nodes."""

    low: float
    high: float
    nodes: int

    def points(self, like: Tensor) -> Tensor:
        """The nodes, (nodes,), of the type and on the device of another tensor."""
        return torch.linspace(self.low, self.high, self.nodes, dtype=like.dtype, device=like.device)


def normal_reference(spread: float, n: int, *, variables: int = 2) -> float:
    """The bandwidth that would be best if the points were normal: 1.06 · spread · n^(-1/(4 + variables)).

    Example:
        >>> round(normal_reference(1.0, 64), 4)
        0.53
    """
    return float(1.06 * spread * n ** (-1 / (4 + variables)))


def grid_density(x: Tensor, y: Tensor, axes: tuple[Axis, Axis], bandwidths: tuple[float, float]) -> Tensor:
    """Points per unit area at every node, (nodes of x, nodes of y): the density times the number of points.

    Args:
        x: Shape (n,), float64.
        y: Shape (n,), float64.
        axes: Of x and y.
        bandwidths: Standard deviations of the kernel along x and y.
    """
    across, along = (axis.points(x)[:, None] for axis in axes)
    total = x.new_zeros(axes[0].nodes, axes[1].nodes)
    for xs, ys in zip(x.split(_BLOCK), y.split(_BLOCK), strict=True):
        # The kernel is a product, so that the sum over points is a product of matrices.
        total.addmm_(_gaussian((across - xs) / bandwidths[0]), _gaussian((along - ys) / bandwidths[1]).T)
    return total / (2 * torch.pi * bandwidths[0] * bandwidths[1])


def _gaussian(z: Tensor) -> Tensor:
    return z.square_().mul_(-0.5).exp_()

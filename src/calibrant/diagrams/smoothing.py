"""Smoothing of rows that lie on evenly spaced nodes of 0..1: their density, and the share of right ones."""

import math

import torch
from torch import Tensor

from calibrant.metrics.bins import Grid
from calibrant.numerics.kernels import cosine_transform, gaussian_damping, inverse_cosine_transform

__all__ = ["local_accuracy", "nodes", "smoothed_density", "thinned", "usual_width"]

# Share of the kernel's variance added to that of the rows under it, so that rows at one place still have a line.
_RIDGE = 1e-3


def nodes(size: int) -> Tensor:
    """Evenly spaced numbers from 0 to 1."""
    return torch.linspace(0, 1, size, dtype=torch.float64)


def thinned(values: Tensor) -> Tensor:
    """About five hundred of the nodes' values, (..., m): enough for a figure."""
    return values[..., :: max(1, (values.shape[-1] - 1) // 512)]


def usual_width(grid: Grid) -> float:
    """Kernel width by the rule of thumb 1.06 s n^(-1/5), s the standard deviation of the confidences."""
    t, n = nodes(grid.total.shape[-1]), grid.total.sum()
    mean = (grid.total * t).sum() / n
    spread = ((grid.total * t.square()).sum() / n - mean.square()).clamp(min=0).sqrt()
    # No narrower than can be told apart in a figure.
    return max(0.01, float(1.06 * spread * n ** (-1 / 5)))


def smoothed_density(mass: Tensor, width: float) -> Tensor:
    """Density at the nodes of masses that add up to 1, by a Gaussian reflected at 0 and 1, (..., m)."""
    damping = gaussian_damping(mass.new_tensor(width), mass.shape[-1])
    return inverse_cosine_transform(cosine_transform(mass) * damping).clamp(min=0)


def local_accuracy(grid: Grid, width: float) -> tuple[Tensor, Tensor]:
    """Share of right answers at every node by local linear regression, and the rows it rests on, (m,) each.

    A weighted mean would be pulled towards wherever most rows are; a weighted line is not, inside or at the ends.

    Reference: Fan (1993), Local Linear Regression Smoothers and Their Minimax Efficiencies, doi:10.1214/aos/1176349022.
    """
    t = nodes(grid.total.shape[-1])
    powers = torch.stack([torch.ones_like(t), t, t.square()])
    s0, first, second = _gaussian_sums(powers * grid.total, width)
    right, right_first = _gaussian_sums(powers[:2] * grid.right, width)
    # Moments about the node: of distance, of its square, and of distance times right.
    s1, moment = first - t * s0, right_first - t * right
    s2 = second - 2 * t * first + t.square() * s0 + _RIDGE * width**2 * s0
    accuracy = (s2 * right - s1 * moment) / (s2 * s0 - s1.square()).clamp(min=1e-300)
    # A Gaussian of height 1 is worth a box of √2 times its area.
    return accuracy.clamp(0, 1), math.sqrt(2) * s0


def _gaussian_sums(mass: Tensor, width: float) -> Tensor:
    """Sums of the masses around every node, weighted by a Gaussian of height 1 that ends with 0..1, (..., m)."""
    m = mass.shape[-1]
    away = torch.fft.fftfreq(2 * m, 1 / (2 * m), dtype=torch.float64) / (m - 1)
    kernel = torch.exp(-(away / width).square() / 2)
    around: Tensor = torch.fft.irfft(torch.fft.rfft(mass, n=2 * m) * torch.fft.rfft(kernel), n=2 * m)
    return around[..., :m]

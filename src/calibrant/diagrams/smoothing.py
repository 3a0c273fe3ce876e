"""Smoothing over evenly spaced nodes of 0..1: densities, and local accuracy with its precision."""

import math

import torch
from torch import Tensor

from calibrant.metrics.bins import Grid
from calibrant.numerics.binning import cosine_transform, gaussian_damping, inverse_cosine_transform

__all__ = ["local_accuracy", "nodes", "rule_of_thumb_width", "smoothed_density", "thinned"]

# Share of the kernel's variance added to that of the samples under it, so that samples at one place still have a line.
_RIDGE = 1e-3


def nodes(size: int) -> Tensor:
    """Return evenly spaced numbers from 0 to 1."""
    return torch.linspace(0, 1, size, dtype=torch.float64)


def thinned(values: Tensor) -> Tensor:
    """Return the values, (..., m), at about five hundred of the nodes: enough for a figure."""
    return values[..., :: max(1, (values.shape[-1] - 1) // 512)]


def rule_of_thumb_width(grid: Grid) -> float:
    """Return the kernel width 1.06 s n^(-1/5), s the standard deviation of the confidences; at least .01."""
    t, n = nodes(grid.total.shape[-1]), grid.total.sum()
    mean = (grid.total * t).sum() / n
    spread = ((grid.total * t.square()).sum() / n - mean.square()).clamp(min=0).sqrt()
    return max(0.01, float(1.06 * spread * n ** (-1 / 5)))


def smoothed_density(mass: Tensor, width: float) -> Tensor:
    """Return the density at the nodes of masses that add up to 1, by a Gaussian reflected at 0 and 1, (..., m)."""
    damping = gaussian_damping(mass.new_tensor(width), mass.shape[-1])
    return inverse_cosine_transform(cosine_transform(mass) * damping).clamp(min=0)


def local_accuracy(grid: Grid, width: float) -> tuple[Tensor, Tensor]:
    """Return the accuracy at every node by local linear regression, and its effective number of samples, (m,) each.

    A weighted mean would be pulled towards wherever most samples are; a weighted line is not, inside or at the ends.
    The estimate is a weighted sum of outcomes with weights l that add up to 1; 1 / Σ l² independent samples would have
    the same variance. It falls towards the ends, where the line has to be extended.

    Reference: Fan (1993), Local Linear Regression Smoothers and Their Minimax Efficiencies, doi:10.1214/aos/1176349022.
    """
    t = nodes(grid.total.shape[-1])
    powers = torch.stack([torch.ones_like(t), t, t.square()])
    s0, first, second = _gaussian_sums(powers * grid.total, width)
    right, right_first = _gaussian_sums(powers[:2] * grid.right, width)
    # Moments about the node: of distance, of its square, and of distance times correctness.
    s1, moment = first - t * s0, right_first - t * right
    s2 = second - 2 * t * first + t.square() * s0 + _RIDGE * width**2 * s0
    determinant = (s2 * s0 - s1.square()).clamp(min=1e-300)
    accuracy = (s2 * right - s1 * moment) / determinant
    # The squared kernel is a Gaussian too, narrower by √2.
    q0, first, second = _gaussian_sums(powers * grid.total, width / math.sqrt(2))
    q1, q2 = first - t * q0, second - 2 * t * first + t.square() * q0
    variance = (s2.square() * q0 - 2 * s1 * s2 * q1 + s1.square() * q2) / determinant.square()
    return accuracy.clamp(0, 1), 1 / variance.clamp(min=1e-300)


def _gaussian_sums(mass: Tensor, width: float) -> Tensor:
    """Return sums of the masses around every node, weighted by a Gaussian of height 1 that ends with 0..1, (..., m)."""
    m = mass.shape[-1]
    away = torch.fft.fftfreq(2 * m, 1 / (2 * m), dtype=torch.float64) / (m - 1)
    kernel = torch.exp(-(away / width).square() / 2)
    around: Tensor = torch.fft.irfft(torch.fft.rfft(mass, n=2 * m) * torch.fft.rfft(kernel), n=2 * m)
    return around[..., :m]

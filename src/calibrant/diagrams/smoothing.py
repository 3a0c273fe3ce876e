"""Densities over 0..1 by kernel smoothing, and how many rows stand behind them."""

import math

import torch
from torch import Tensor

from calibrant.numerics.kernels import cosine_transform, gaussian_damping, inverse_cosine_transform

__all__ = ["nodes", "rows_under_kernel", "smoothed"]


def nodes(size: int) -> Tensor:
    """Evenly spaced numbers from 0 to 1."""
    return torch.linspace(0, 1, size, dtype=torch.float64)


def smoothed(mass: Tensor, width: float) -> Tensor:
    """Density of point masses at the nodes after a Gaussian of this width, reflected at 0 and 1, (..., m)."""
    damping = gaussian_damping(mass.new_tensor(width), mass.shape[-1])
    return inverse_cosine_transform(cosine_transform(mass) * damping).clamp(min=0)


def rows_under_kernel(rows_density: Tensor, width: float) -> Tensor:
    """Effective number of rows behind a smoothed value: those in a box as wide as the kernel, (m,).

    A kernel is as wide as ``1/∫K²``: 2√π σ for a Gaussian inside 0..1, and half of that at the ends, where its
    reflection falls on itself.
    """
    t = nodes(rows_density.shape[-1])
    overlap = 1 + torch.exp(-(t / width).square()) + torch.exp(-((1 - t) / width).square())
    return rows_density * (2 * math.sqrt(math.pi) * width) / overlap

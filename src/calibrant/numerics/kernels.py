"""Smoothing of mass on evenly spaced nodes of 0..1, reflected at both ends.

Reflection makes the smoothing diagonal in cosines: transform, damp, transform back. The nodes are 0, 1/(m-1), …, 1.
"""

import math

import torch
from torch import Tensor

__all__ = ["cosine_transform", "gaussian_damping", "integrate", "inverse_cosine_transform", "triweight_damping"]


def cosine_transform(mass: Tensor) -> Tensor:
    """Cosine coefficients of point masses at the nodes, (..., m) -> (..., m)."""
    # A mass inside 0..1 and its mirror image; the end nodes are their own mirror images and so count twice.
    mass = mass.clone()
    mass[..., [0, -1]] *= 2
    mirrored = torch.cat([mass, mass[..., 1:-1].flip(-1)], dim=-1)
    return torch.fft.rfft(mirrored).real


def inverse_cosine_transform(coefficients: Tensor) -> Tensor:
    """The density at the nodes whose masses have these coefficients, (..., m) -> (..., m)."""
    m = coefficients.shape[-1]
    # Point masses become a density on divided by the node spacing; half the mirrored circle is 0..1.
    return torch.fft.irfft(coefficients, n=2 * (m - 1))[..., :m] * (m - 1)


def gaussian_damping(width: Tensor, nodes: int) -> Tensor:
    """Fourier transform of a Gaussian of this standard deviation, (...) -> (..., nodes)."""
    frequency = math.pi * torch.arange(nodes, dtype=torch.float64, device=width.device)
    return torch.exp(-(frequency * width[..., None]).square() / 2)


def triweight_damping(width: Tensor, nodes: int) -> Tensor:
    """Fourier transform of the triweight kernel of this standard deviation, (...) -> (..., nodes)."""
    reach = 3 * width  # the triweight on -1..1 has standard deviation 1/3
    x = math.pi * torch.arange(nodes, dtype=torch.float64, device=width.device) * reach[..., None]
    # 105/x^7 ((15 - 6x^2) sin x - x (15 - x^2) cos x) with its Taylor series where that cancels.
    square = x * x
    exact = 105 * ((15 - 6 * square) * torch.sin(x) - x * (15 - square) * torch.cos(x)) / (square * square * square * x)
    series = 1 - square * (1 / 18 - square * (1 / 792 - square / 61776))
    return torch.where(x < 0.7, series, exact)


def integrate(values: Tensor) -> Tensor:
    """Trapezoid rule over 0..1, (..., m) -> (...)."""
    spacing = 1 / (values.shape[-1] - 1)
    return spacing * (values.sum(dim=-1) - (values[..., 0] + values[..., -1]) / 2)

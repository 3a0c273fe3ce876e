"""Smoothing of mass on evenly spaced nodes of 0..1, reflected at both ends.

Reflection makes the smoothing diagonal in cosines: transform, damp, transform back. The nodes are 0, 1/(m-1), …, 1.
"""

import math

import torch
from torch import Tensor

__all__ = [
    "cosine_transform",
    "gaussian_damping",
    "integrate",
    "integrate_smoothed",
    "inverse_cosine_transform",
    "triweight_damping",
]

# Arguments beyond which exp(-x²/2) is below 2**-60: nothing beside the terms that stay.
_NEGLIGIBLE = 9.2


def cosine_transform(mass: Tensor) -> Tensor:
    """Cosine coefficients of point masses at the nodes, (..., m) -> (..., m)."""
    # A mass inside 0..1 and its mirror image; the end nodes are their own mirror images and so count twice.
    mirrored = torch.cat([mass, mass[..., 1:-1].flip(-1)], dim=-1)
    mirrored[..., 0] *= 2
    mirrored[..., mass.shape[-1] - 1] *= 2
    return torch.fft.rfft(mirrored).real.contiguous()


def inverse_cosine_transform(coefficients: Tensor) -> Tensor:
    """The density at the nodes whose masses have these coefficients, (..., m) -> (..., m)."""
    m = coefficients.shape[-1]
    # Point masses become a density on divided by the node spacing; half the mirrored circle is 0..1.
    return torch.fft.irfft(coefficients, n=2 * (m - 1))[..., :m] * (m - 1)


def gaussian_damping(width: Tensor, nodes: int) -> Tensor:
    """Fourier transform of a Gaussian of this standard deviation, (...) -> (..., nodes)."""
    frequency = math.pi * torch.arange(nodes, dtype=torch.float64, device=width.device)
    return torch.exp(-(frequency * width[..., None]).square() / 2)


def integrate_smoothed(coefficients: Tensor, width: Tensor) -> Tensor:
    """Integral over 0..1 of the magnitude of a density smoothed by a Gaussian.

    Args:
        coefficients: Cosine coefficients of the masses, (..., m).
        width: Standard deviations of the Gaussian, (...).

    Returns:
        What ``integrate`` gives for the magnitude at the nodes, (...), in fewer passes.
    """
    m = coefficients.shape[-1]
    few = min(m, 2 + int(_NEGLIGIBLE / (math.pi * max(float(width.min()), 1e-12))))  # the rest is damped to nothing
    decay = torch.arange(few, dtype=torch.float64, device=width.device).mul_(math.pi).square_().div_(-2)
    damped = (width.square()[..., None] * decay).exp_() * coefficients[..., :few]
    # Half the plain sum over the mirrored circle, which holds the ends once and all else twice: the trapezoid rule.
    return torch.fft.irfft(damped, n=2 * (m - 1)).abs_().sum(dim=-1).div_(2)


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

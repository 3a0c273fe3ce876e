"""Gaussian smoothing: of mass on nodes of 0..1, reflected at both ends, and of points in a plane."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = [
    "Axis",
    "cosine_transform",
    "gaussian_damping",
    "grid_density",
    "integrate",
    "integrate_smoothed",
    "inverse_cosine_transform",
    "normal_reference",
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
        axes: Grid points of x and of y.
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

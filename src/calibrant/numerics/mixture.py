"""Proportions of known components in a sample, by maximum likelihood: a concave problem, solved to a certificate."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from calibrant.errors import FitError
from calibrant.numerics.newton import Certificate
from calibrant.numerics.softmax import row_blocks

_EM_STEPS, _STEPS, _ROUNDS, _HALVINGS = 30, 200, 10, 40
_SAMPLE, _OPEN = 20_000, 1e-3  # samples of a part, and what is added to all shares that it gives
_TOLERANCE = 1e-9  # nats that the mean log-likelihood may lie below its maximum
_NEAR = 0.1  # of the mean share: up to it, a step may take a share for 0
_ENOUGH = 1e-6  # beyond which the end of a search that made no more progress is an error
_RIDGE = 1e-7  # relative: components that no sample tells apart leave the curvature singular, and single precision too
_NUMBERS = 1 << 20  # in a block


class MixtureFit(NamedTuple):
    """Proportions of most likelihood, and the mean log-likelihood around them."""

    shares: Tensor  # (k,)
    gradient: Tensor  # (k,): 1 where a share is above 0, at most 1 elsewhere
    curvature: Tensor  # (k, k): minus the second derivatives
    certificate: Certificate  # whose gradient bounds how far the mean log-likelihood lies below its maximum


def fit_mixture(ratios: Tensor, mass: Tensor) -> MixtureFit:
    """Return the shares w of most likelihood, the maximum of Σ_i mass_i log Σ_j w_j ratios_ij over the simplex.

    The maximum over all w ≥ 0 of this less Σ_j w_j is the same, and takes Newton's steps cut off at 0 (Bertsekas),
    after a few of EM. Because the function is concave and Σ_j w_j gradient_j = 1, no shares are better by more than the
    largest entry of the gradient less 1 (Lindsay, 1983): it is the certificate, whatever led there.

    Args:
        ratios: Density of every component at every sample, (n, k), not negative, with one above 0 in every row. A
            factor for a row changes nothing.
        mass: Weights of the samples, (n,), which sum to one.

    Raises:
        FitError: If the search ends far from the maximum.

    References: Bertsekas (1982), Projected Newton Methods for Optimization Problems with Simple Constraints, SIAM
    Journal on Control and Optimization; Lindsay (1983), The Geometry of Mixture Likelihoods, The Annals of Statistics.

    Example:
        >>> fit = fit_mixture(torch.eye(2, dtype=torch.float64)[[0, 0, 0, 1]], torch.full((4,), 0.25).double())
        >>> fit.shares.tolist()
        [0.75, 0.25]
    """
    n, k = ratios.shape
    ratios = ratios / ratios.amax(dim=1, keepdim=True)
    shares, passes = ratios.new_full((k,), 1 / k), _EM_STEPS
    if n > 2 * _SAMPLE:  # begin where a part of the samples ends, and leave no share at 0, which EM would keep there
        part = torch.arange(0, n, n // _SAMPLE)
        shares, passes = (1 - _OPEN) * fit_mixture(ratios[part], mass[part] / mass[part].sum()).shares + _OPEN / k, 1
    for _ in range(passes):
        shares = shares * ((mass / (ratios @ shares)) @ ratios)
    step = 0
    while True:
        shares = shares / shares.sum()
        gradient = (mass / (ratios @ shares)) @ ratios
        gap = float(gradient.max()) - 1
        if not gap > _TOLERANCE or step == _STEPS:
            break
        moved = _advance(ratios, mass, shares, gradient - 1)
        if moved is None:
            break
        shares, step = moved, step + 1
    if not gap <= _ENOUGH:
        raise FitError(
            f"the proportions must have a likelihood near the largest; after {step} steps it may still be higher by "
            f"{gap:.2g} a sample. Check the scores for infinite or constant ones."
        )
    certificate = Certificate(-1 - _value(ratios, mass, shares), max(gap, 0.0), step, float(passes + step))
    return MixtureFit(shares, gradient, curvature_at(shares, ratios, mass), certificate)


def curvature_at(shares: Tensor, ratios: Tensor, mass: Tensor) -> Tensor:
    """Return minus the second derivatives of the mean log-likelihood, (k, k), from products in single precision."""
    n, k = ratios.shape
    curvature = ratios.new_zeros(k, k)
    for rows in row_blocks(n, max(1, _NUMBERS // k)):
        relative = ratios[rows] * (mass[rows].sqrt() / (ratios[rows] @ shares))[:, None]
        curvature += relative.float().T @ relative.float()
    return curvature


def _value(ratios: Tensor, mass: Tensor, shares: Tensor) -> float:
    return float(mass @ (ratios @ shares).log() - shares.sum())


def inverse_of(curvature: Tensor) -> Tensor:
    """Return the inverse of a curvature, (k, k), which may be singular by rounding."""
    scale = curvature.diagonal().clamp(min=1e-300).rsqrt()
    scaled = curvature * scale[:, None] * scale + _RIDGE * torch.eye(len(scale)).to(curvature)
    inverse: Tensor = torch.linalg.inv(scaled) * scale[:, None] * scale
    return inverse


def _advance(ratios: Tensor, mass: Tensor, shares: Tensor, slope: Tensor) -> Tensor | None:
    """Return better shares along Newton's step, cut off at 0; None where rounding hides any progress."""
    # Shares near 0 that should fall go there directly: cut off on their way, they would shorten every step. So do those
    # that the step of the others would make negative.
    near = min(_NEAR / len(shares), float((shares * slope).norm()))
    value, wide = _value(ratios, mass, shares), ((shares > near) | (slope > 0)).nonzero()[:, 0]
    curvature = curvature_at(shares[wide], ratios if len(wide) == len(shares) else ratios[:, wide], mass)
    own, rise, free = shares[wide], slope[wide], torch.ones(len(wide), dtype=torch.bool)
    for _ in range(_ROUNDS):
        inside = -own
        inside[free] = inverse_of(curvature[free][:, free]) @ (rise + curvature[:, ~free] @ own[~free])[free]
        if not bool((negative := free & (own + inside < 0)).any()):
            break
        free &= ~negative
    direction = -shares
    direction[wide] = inside
    length = 1.0
    for _ in range(_HALVINGS):
        moved = (shares + length * direction).clamp(min=0)
        gain = float(slope @ (moved - shares))
        if gain > 0 and (after := _value(ratios, mass, moved)) >= value + 1e-4 * gain - 1e-15 and not math.isnan(after):
            return moved
        length /= 2
    em = shares * (slope + 1)
    return em if _value(ratios, mass, em) > value else None

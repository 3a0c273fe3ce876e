"""Convex functions of a few shares that sum to one: minimised exactly, with a bound on what is left to gain."""

from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from calibrant.errors import FitError
from calibrant.numerics.certificate import Certificate

__all__ = ["BestShares", "Curved", "minimise_on_simplex"]

# A value, its gradient (m,) and its Hessian (m, m).
Curved: TypeAlias = Callable[[Tensor], tuple[float, Tensor, Tensor]]

_TOLERANCE = 1e-9
_MAX_STEPS = 100


class BestShares(NamedTuple):
    """The shares, (m,), and how well they are known: no shares have a value lower by more than the gradient says."""

    shares: Tensor
    certificate: Certificate


def minimise_on_simplex(function: Curved, size: int) -> BestShares:
    """Shares, none negative and summing to one, at which a convex function is smallest.

    Newton's method, each step to the lowest point that the quadratic model has on the simplex. The certificate is the
    gap ``g·w - min g``, which by convexity bounds how much lower the function can be anywhere.

    Args:
        function: Convex, smooth inside the simplex; may be infinite at its edges.
        size: Number of shares, a few: every set of them that may be above zero is tried.

    Raises:
        FitError: If the gap did not fall below 1e-9.

    Example:
        >>> def squares(w):
        ...     return float((w * w).sum()), 2 * w, 2 * torch.eye(2, dtype=torch.float64)
        >>> minimise_on_simplex(squares, 2).shares.tolist()
        [0.5, 0.5]
    """
    shares = torch.full((size,), 1 / size, dtype=torch.float64)
    value, gradient, hessian = function(shares)
    looks = 1
    for step in range(_MAX_STEPS):
        gap = float(gradient @ shares - gradient.min())
        if gap <= _TOLERANCE:
            return BestShares(shares, Certificate(value, max(gap, 0.0), step, looks))
        towards = _lowest_of_quadratic(gradient - hessian @ shares, hessian) - shares
        slope, length = float(gradient @ towards), 1.0
        there = function(shares + towards)
        looks += 1
        while not there[0] <= value + 1e-4 * length * slope + 1e-14 and length > 1e-9:
            length /= 2
            there = function(shares + length * towards)
            looks += 1
        shares = (shares + length * towards).clamp(min=0)
        value, gradient, hessian = there
    raise FitError(f"the shares of a mixture were not found in {_MAX_STEPS} steps; {gap:.2g} may be left to gain.")


def _lowest_of_quadratic(linear: Tensor, hessian: Tensor) -> Tensor:
    """Where ``linear·w + w·H w / 2`` is smallest on the simplex: the best of the lowest points of all its faces."""
    size = len(linear)
    best, lowest = torch.zeros(size, dtype=torch.float64), torch.inf
    for count in range(1, size + 1):
        for chosen in combinations(range(size), count):
            inside = torch.tensor(chosen)
            # Lagrange's equations; least squares, because components may be alike.
            system = torch.ones(count + 1, count + 1, dtype=torch.float64)
            system[:count, :count] = hessian[inside][:, inside]
            system[count, count] = 0
            right = torch.cat([-linear[inside], torch.ones(1, dtype=torch.float64)])
            solved = torch.linalg.lstsq(system, right[:, None], driver="gelsd").solution[:count, 0]
            if solved.min() < 0:
                continue
            shares = torch.zeros(size, dtype=torch.float64)
            shares[inside] = solved / solved.sum()
            value = float(linear @ shares + shares @ hessian @ shares / 2)
            if value < lowest:
                best, lowest = shares, value
    return best

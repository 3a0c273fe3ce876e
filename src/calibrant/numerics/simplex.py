"""Convex functions of a few shares that sum to one, minimised with a bound on the remaining gap."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant.errors import FitError
from calibrant.numerics.newton import Certificate

# A value, its gradient (m,) and its Hessian (m, m).
Curved: TypeAlias = Callable[[Tensor], tuple[float, Tensor, Tensor]]
Array: TypeAlias = NDArray[np.float64]

_TOLERANCE = 1e-9
_MAX_STEPS = 200
# Final weight of the barrier relative to the tolerance; share of the way to the boundary that a step may take.
_WEAKEST, _TO_EDGE = 1e-3, 0.99
# Smaller shares are tried as 0.
_NEGLIGIBLE = 1e-6


class BestShares(NamedTuple):
    """The shares, (m,); no others have a value lower by more than the certificate's gradient."""

    shares: Tensor
    certificate: Certificate


@np.errstate(all="ignore")  # NaN ends in an error below
def minimise_on_simplex(function: Curved, size: int) -> BestShares:
    """Minimise a convex function over shares that are not negative and sum to one.

    An interior-point method: ``function - μ Σ ln w`` is lowered by Newton's method while μ decreases, and steps end
    short of the boundary. So a function that is nearly infinite there, such as the log-loss of a mixture whose parts
    give a label the probability 10⁻³⁰⁰, is approached from inside. At the end negligible shares become exactly 0 where
    that costs nothing. The certificate is the gap ``g·w - min g`` at the shares returned, which by convexity bounds how
    much lower the function can be anywhere.

    Args:
        function: Convex, smooth inside the simplex; may be infinite on its boundary.
        size: Number of shares, a few.

    Raises:
        FitError: If the gap did not fall below 1e-9.

    Example:
        >>> def squares(w):
        ...     return float((w * w).sum()), 2 * w, 2 * torch.eye(2, dtype=torch.float64)
        >>> [round(share, 9) for share in minimise_on_simplex(squares, 2).shares.tolist()]
        [0.5, 0.5]
    """
    path, steps = _Path(function, size), 0
    while not path.ended and steps < _MAX_STEPS:
        path.advance()
        steps += 1
    path.settle()
    gap = _gap(path.shares, path.gradient)
    if not gap <= _TOLERANCE:
        raise FitError(f"the shares of a mixture did not converge in {steps} steps; the remaining gap is {gap:.2g}.")
    return BestShares(torch.from_numpy(path.shares), Certificate(path.value, max(gap, 0.0), steps, path.calls))


def _gap(shares: Array, gradient: Array) -> float:
    return float(gradient @ shares - gradient.min())


class _Path:
    """The shares reached, and the weight of the barrier there; in NumPy, which is faster for a few numbers."""

    def __init__(self, function: Curved, size: int) -> None:
        self._function, self.calls = function, 0
        self.shares = np.full(size, 1 / size)
        self.value, self.gradient, self._hessian = self._evaluate(self.shares)
        self._barrier = max(_gap(self.shares, self.gradient), _TOLERANCE) / size
        self._multipliers = self._barrier / self.shares
        self.ended = False

    def _evaluate(self, shares: Array) -> tuple[float, Array, Array]:
        self.calls += 1
        value, gradient, hessian = self._function(torch.from_numpy(shares))
        return value, gradient.numpy(), hessian.numpy()

    def _with_barrier(self, value: float, shares: Array) -> float:
        return value - self._barrier * float(np.log(shares).sum())

    def advance(self) -> None:
        """Take a Newton step, and weaken the barrier where that came close to its minimum."""
        shares, weight = self.shares, self._barrier
        # In units of the shares themselves, d = w s, so that tiny ones are as well conditioned as the others. The
        # multipliers, w z -> μ, give the model the barrier's curvature at its minimum.
        slope = shares * self.gradient - weight
        curved = shares[:, None] * self._hessian * shares + np.diag(self._multipliers * shares)
        relative = _newton_on_the_plane(curved, slope, shares)
        fall = -float(slope @ relative)
        longest = min(1.0, _TO_EDGE / max(-float(relative.min()), 1e-300))
        start, length = self._with_barrier(self.value, shares), longest
        while True:
            trial = shares * (1 + length * relative)
            trial = trial / trial.sum()
            seen = self._evaluate(trial)
            lower = start - 1e-4 * length * fall + 1e-15 * max(1.0, abs(start))
            if self._with_barrier(seen[0], trial) <= lower or length < 1e-12:
                break
            length /= 2
        towards = weight / shares - self._multipliers * (1 + relative)
        back = float((towards / self._multipliers).min())
        self._multipliers = self._multipliers + min(1.0, _TO_EDGE / max(-back, 1e-300)) * towards
        # Kept near the barrier's own multipliers, so that a bad step is forgotten.
        own = weight / trial
        self._multipliers = self._multipliers.clip(own / 1e3, own * 1e3)
        self.shares, (self.value, self.gradient, self._hessian) = trial, seen
        if fall <= 0.1 * weight * len(shares) or length < 1e-12:
            self.ended = weight <= _WEAKEST * _TOLERANCE
            self._barrier = max(weight / 20, _WEAKEST * _TOLERANCE)

    def settle(self) -> None:
        """Make negligible shares exactly 0 and re-optimise the others without the barrier, where the gap allows it."""
        inside = self.shares >= _NEGLIGIBLE
        self._take(np.where(inside, self.shares, 0.0))
        kept = self.shares > 0
        gradient, hessian = self.gradient[kept], self._hessian[kept][:, kept]
        step = np.zeros_like(self.shares)
        step[kept] = _newton_on_the_plane(hessian, gradient, np.ones_like(gradient))
        self._take((self.shares + step).clip(min=0))

    def _take(self, shares: Array) -> None:
        shares = shares / shares.sum()
        seen = self._evaluate(shares)
        allowed = max(_gap(self.shares, self.gradient), _TOLERANCE)
        if seen[0] <= self.value + _TOLERANCE and _gap(shares, seen[1]) <= allowed:
            self.shares, (self.value, self.gradient, self._hessian) = shares, seen


def _newton_on_the_plane(hessian: Array, gradient: Array, normal: Array) -> Array:
    """Minimise ``gradient·s + s·H s / 2`` over s with ``normal·s = 0``."""
    size = len(gradient)
    system = np.zeros((size + 1, size + 1))
    system[:size, :size] = hessian
    system[:size, size] = system[size, :size] = normal
    if not np.isfinite(system).all() or not np.isfinite(gradient).all():
        return np.full(size, np.nan)
    # Least squares, because parts may be alike.
    solution: Array = np.linalg.lstsq(system, np.append(-gradient, 0.0), rcond=None)[0]
    return solution[:size]

"""Convex functions of a few shares that sum to one: minimised exactly, with a bound on what is left to gain."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant.errors import FitError
from calibrant.numerics.newton import Certificate

__all__ = ["BestShares", "Curved", "minimise_on_simplex"]

# A value, its gradient (m,) and its Hessian (m, m).
Curved: TypeAlias = Callable[[Tensor], tuple[float, Tensor, Tensor]]
Array: TypeAlias = NDArray[np.float64]

_TOLERANCE = 1e-9
_MAX_STEPS = 200
# The barrier's weight at the end, as a share of the tolerance; how much of the way to the edge a step may go.
_WEAKEST, _TO_EDGE = 1e-3, 0.99
# A share below is tried as 0.
_NEGLIGIBLE = 1e-6


class BestShares(NamedTuple):
    """The shares, (m,), and how well they are known: no shares have a value lower by more than the gradient says."""

    shares: Tensor
    certificate: Certificate


@np.errstate(all="ignore")  # what is no number ends in an error below
def minimise_on_simplex(function: Curved, size: int) -> BestShares:
    """Shares, none negative and summing to one, at which a convex function is smallest.

    An interior-point method: ``function - μ Σ ln w`` is lowered by Newton's method while μ falls, steps ending short of
    the edge. So a function that is next to infinite there, as the log-loss of a mixture is where its parts give a label
    the probability 10⁻³⁰⁰, is lowered from where it is not. At last shares that came out next to nothing are made
    exactly 0 where that costs nothing. The certificate is the gap ``g·w - min g`` at the shares returned, which by
    convexity bounds how much lower the function can be anywhere.

    Args:
        function: Convex, smooth inside the simplex; may be infinite at its edges.
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
        raise FitError(f"the shares of a mixture were not found in {steps} steps; {gap:.2g} may be left to gain.")
    return BestShares(torch.from_numpy(path.shares), Certificate(path.value, max(gap, 0.0), steps, path.calls))


def _gap(shares: Array, gradient: Array) -> float:
    """How much lower the function can be at the most."""
    return float(gradient @ shares - gradient.min())


class _Path:
    """The shares reached, and the weight of the barrier there; in numpy, which is faster for a few numbers."""

    def __init__(self, function: Curved, size: int) -> None:
        self._function, self.calls = function, 0
        self.shares = np.full(size, 1 / size)
        self.value, self.gradient, self._hessian = self._look(self.shares)
        self._barrier = max(_gap(self.shares, self.gradient), _TOLERANCE) / size
        self._multipliers = self._barrier / self.shares
        self.ended = False

    def _look(self, shares: Array) -> tuple[float, Array, Array]:
        self.calls += 1
        value, gradient, hessian = self._function(torch.from_numpy(shares))
        return value, gradient.numpy(), hessian.numpy()

    def _with_barrier(self, value: float, shares: Array) -> float:
        return value - self._barrier * float(np.log(shares).sum())

    def advance(self) -> None:
        """One Newton step, and a weaker barrier where that was close to what the barrier allows."""
        shares, weight = self.shares, self._barrier
        # In units of the shares themselves, d = w s, so that tiny ones are as well conditioned as the others. The
        # multipliers, w z -> μ, bend the model as the barrier does at its minimum.
        slope = shares * self.gradient - weight
        curved = shares[:, None] * self._hessian * shares + np.diag(self._multipliers * shares)
        relative = _newton_on_the_plane(curved, slope, shares)
        fall = -float(slope @ relative)
        longest = min(1.0, _TO_EDGE / max(-float(relative.min()), 1e-300))
        start, length = self._with_barrier(self.value, shares), longest
        while True:
            trial = shares * (1 + length * relative)
            trial = trial / trial.sum()
            seen = self._look(trial)
            lower = start - 1e-4 * length * fall + 1e-15 * max(1.0, abs(start))
            if self._with_barrier(seen[0], trial) <= lower or length < 1e-12:
                break
            length /= 2
        towards = weight / shares - self._multipliers * (1 + relative)
        back = float((towards / self._multipliers).min())
        self._multipliers = self._multipliers + min(1.0, _TO_EDGE / max(-back, 1e-300)) * towards
        # Kept within reach of the barrier's own, or a bad step would be remembered.
        own = weight / trial
        self._multipliers = self._multipliers.clip(own / 1e3, own * 1e3)
        self.shares, (self.value, self.gradient, self._hessian) = trial, seen
        if fall <= 0.1 * weight * len(shares) or length < 1e-12:
            self.ended = weight <= _WEAKEST * _TOLERANCE
            self._barrier = max(weight / 20, _WEAKEST * _TOLERANCE)

    def settle(self) -> None:
        """Make negligible shares exactly 0, and the others best without the barrier, where the gap allows it."""
        inside = self.shares >= _NEGLIGIBLE
        self._take(np.where(inside, self.shares, 0.0))
        kept = self.shares > 0
        gradient, hessian = self.gradient[kept], self._hessian[kept][:, kept]
        step = np.zeros_like(self.shares)
        step[kept] = _newton_on_the_plane(hessian, gradient, np.ones_like(gradient))
        self._take((self.shares + step).clip(min=0))

    def _take(self, shares: Array) -> None:
        shares = shares / shares.sum()
        seen = self._look(shares)
        allowed = max(_gap(self.shares, self.gradient), _TOLERANCE)
        if seen[0] <= self.value + _TOLERANCE and _gap(shares, seen[1]) <= allowed:
            self.shares, (self.value, self.gradient, self._hessian) = shares, seen


def _newton_on_the_plane(hessian: Array, gradient: Array, normal: Array) -> Array:
    """Where ``gradient·s + s·H s / 2`` is smallest among s with ``normal·s = 0``."""
    size = len(gradient)
    system = np.zeros((size + 1, size + 1))
    system[:size, :size] = hessian
    system[:size, size] = system[size, :size] = normal
    if not np.isfinite(system).all() or not np.isfinite(gradient).all():
        return np.full(size, np.nan)
    # Least squares, because parts may be alike.
    solution: Array = np.linalg.lstsq(system, np.append(-gradient, 0.0), rcond=None)[0]
    return solution[:size]

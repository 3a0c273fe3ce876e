"""Roots of functions of one number: of one function with a certificate, and of many at once."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from calibrant.errors import FitError

__all__ = ["Root", "falling_root", "find_root"]


class Root(NamedTuple):
    """Where the function is zero, and how well that is known."""

    value: float
    residual: float  # what the function may still be there
    low: float
    high: float
    calls: int


def find_root(
    function: Callable[[float], Sequence[float]],
    *,
    start: float,
    low: float,
    high: float,
    tolerance: float = 1e-10,
    max_calls: int = 100,
) -> Root:
    """Root of a rising function that also tells its slope.

    A Newton step that leaves the bracket, or does not shrink it fast enough, gives way to bisection in the logarithm,
    so the search cannot run away: low and high must be positive. Where the function tells its second derivative, too,
    steps are of third order, and the last one need not be checked by another call.

    Args:
        function: Returns the value, the slope and, if it can, the second derivative.
        start: First guess, inside the bracket.
        low: Where the function is at most 0, or the smallest answer allowed.
        high: Where the function is at least 0, or the largest answer allowed.
        tolerance: Relative error of the answer.
        max_calls: How often the function may be asked.

    Raises:
        FitError: If it is not found in ``max_calls``.

    Example:
        >>> round(find_root(lambda x: (x * x - 2, 2 * x), start=1.0, low=0.1, high=10.0).value, 9)
        1.414213562
    """
    x, width = start, math.log(high / low)
    for calls in range(1, max_calls + 1):
        value, slope, *bend = function(x)
        low, high = (low, x) if value > 0 else (x, high)
        step, error = _step(value, slope, bend[0] if bend else math.nan, x)
        inside = low <= x + step <= high
        if value == 0 or (inside and error <= tolerance * x) or high - low <= tolerance * high:
            return Root(x + step if inside else x, slope * error if inside and slope > 0 else value, low, high, calls)
        # Every fourth time the bracket must have halved since the last check, or it is halved now.
        slow = calls % 4 == 0 and math.log(high / low) > width / 2
        width = math.log(high / low) if calls % 4 == 0 else width
        x = x + step if low < x + step < high and not slow else (low * high) ** 0.5
    raise FitError(
        f"no root found in {max_calls} evaluations; the bracket is still {low:.6g} to {high:.6g}. "
        "The data may be separable: check that some predictions are wrong."
    )


def _step(value: float, slope: float, bend: float, x: float) -> tuple[float, float]:
    """The step to the root, and how far from it that may end."""
    if not slope > 0:
        return 0.0, math.inf
    newton = -value / slope
    correction = -bend * newton * newton / (2 * slope)
    if not abs(correction) <= abs(newton) / 4:  # too far away to trust it, or not known
        return newton, abs(newton)
    if newton == 0:
        return 0.0, 0.0
    # Three terms of the inverse series, but for the third derivative; what that would add is smaller than the second
    # term by about the relative size of the step.
    return newton + correction + 2 * correction * correction / newton, abs(correction * newton / x)


# What functions of the size of 1 leave where their root is met.
_SETTLED = 1e-8


def falling_root(
    function: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, *, at_high: Tensor | None = None, steps: int = 10
) -> Tensor:
    """Roots of many falling functions at once, by false position that halves a side kept twice (Illinois).

    A function already negative at ``low`` has its root put there.

    Args:
        function: Takes and gives one number for each, (...).
        low: Left ends, (...).
        high: Right ends, (...), where the functions are negative.
        at_high: What they are there, where that is known.
        steps: How often they are all asked at most; 10 reach 1e-7 for functions without sharp bends.

    Example:
        >>> round(falling_root(lambda x: 2 - x * x, torch.tensor([0.0]), torch.tensor([2.0])).item(), 5)
        1.41421
    """
    at_low = function(low)
    at_high = function(high) if at_high is None else at_high
    outside = at_low <= 0
    kept_low = torch.zeros_like(outside)
    kept_high = torch.zeros_like(outside)
    middle = high
    for _ in range(steps):
        middle = low + (high - low) * (at_low / (at_low - at_high).clamp(min=1e-300)).clamp(0, 1)
        value = function(middle)
        if bool((outside | (value.abs() <= _SETTLED)).all()):
            break
        left = value > 0
        at_high = torch.where(left & kept_high, at_high / 2, torch.where(left, at_high, value))
        at_low = torch.where(~left & kept_low, at_low / 2, torch.where(left, value, at_low))
        low, high = torch.where(left, middle, low), torch.where(left, high, middle)
        kept_low, kept_high = ~left, left
    return torch.where(outside, low, middle)

"""The root of a rising function of one number, by Newton's method inside a bracket, with a certificate."""

from collections.abc import Callable
from typing import NamedTuple

from calibrant.errors import FitError

__all__ = ["Root", "find_root"]


class Root(NamedTuple):
    """Where the function is zero, and how well that is known."""

    value: float
    residual: float
    low: float
    high: float
    calls: int


def find_root(
    function: Callable[[float], tuple[float, float]],
    *,
    start: float,
    low: float,
    high: float,
    tolerance: float = 1e-10,
    max_calls: int = 100,
) -> Root:
    """Root of a rising function that also tells its slope.

    A Newton step that leaves the bracket, or does not shrink it fast enough, gives way to bisection in the logarithm,
    so the search cannot run away: low and high must be positive.

    Args:
        function: Returns the value and the slope.
        start: First guess, inside the bracket.
        low: Where the function is at most 0, or the smallest answer allowed.
        high: Where the function is at least 0, or the largest answer allowed.
        tolerance: Relative width of the last step.
        max_calls: How often the function may be asked.

    Raises:
        FitError: If it is not found in ``max_calls``.

    Example:
        >>> round(find_root(lambda x: (x * x - 2, 2 * x), start=1.0, low=0.1, high=10.0).value, 9)
        1.414213562
    """
    x = start
    for calls in range(1, max_calls + 1):
        value, slope = function(x)
        if value > 0:
            high = x
        else:
            low = x
        step = x - value / slope if slope > 0 else x
        if value == 0 or (abs(step - x) <= tolerance * x and slope > 0) or high - low <= tolerance * high:
            return Root(x, value, low, high, calls)
        x = step if low < step < high else (low * high) ** 0.5
    raise FitError(
        f"no root found in {max_calls} evaluations; the bracket is still {low:.6g} to {high:.6g}. "
        "The data may be separable: check that some predictions are wrong."
    )

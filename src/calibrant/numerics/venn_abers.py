"""Isotonic regression with one more point, for every place that point could be: what Venn-Abers predictors are made of.

Adding one row to n and fitting anew takes n fits of n rows. In the cumulative sum diagram (rows up to a score along,
hits up) it is one tangent for each place: the row shifts the diagram left of it by (1, 1), and the value fitted to it
is the slope of the line that touches the shifted left part and the right part from below. Which corners such a line can
touch is known from the lower hulls of all beginnings and all ends of the diagram, and runs of nothing but hits, or
nothing but misses, need only their two ends in it.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["fits_with_one_more"]

Array: TypeAlias = NDArray[np.float64]
Index: TypeAlias = NDArray[np.int64]


def fits_with_one_more(count: Array, hits: Array) -> tuple[Array, Array]:
    """The isotonic fit at each of m distinct scores once a row is added there: a miss, or a hit, (m,) each.

    A hit added between two scores is fitted as if it were added at the upper one, a miss as at the lower one; above all
    scores a hit is fitted 1, below all a miss 0. Both columns are rising.

    Args:
        count: Rows at each score, scores rising, (m,).
        hits: Of those, how many were hits, (m,).

    Example:
        >>> fits_with_one_more(np.array([1.0, 1.0, 1.0]), np.array([0.0, 0.0, 1.0]))
        (array([0. , 0. , 0.5]), array([0.33333333, 0.5       , 1.        ]))
    """
    if not hits.any():
        # As of most of many classes: one hit among misses is pooled with all that stand above it.
        return np.zeros(len(count)), 1 / (1 + count[::-1].cumsum()[::-1])
    # A miss is a hit to one who turns labels and order round.
    with_miss = 1 - _with_hit(count[::-1], (count - hits)[::-1])[::-1]
    return with_miss, _with_hit(count, hits)


class _Corners(NamedTuple):
    """Points that a line may touch, each with the next one of its hull, away from the gap that the line spans."""

    across: Array
    up: Array
    next: Index


def _with_hit(count: Array, hits: Array) -> Array:
    """The isotonic fit at each score once a hit is added there, (m,)."""
    run, first = _runs(count, hits)
    across, up = (np.concatenate([[0.0], np.add.reduceat(each, first).cumsum()]) for each in (count, hits))
    left_part = _Corners(across - 1, up - 1, _next_to_the_left(across, up))
    right_part = _Corners(across, up, _next_to_the_right(across, up))
    starts = np.arange(len(first))
    slope, right = _touching(left_part, right_part, starts, starts + 1)
    fit = slope[run]
    # Within a run of misses the left part may also end inside the run: a lone corner, of use if below the line so far.
    inside = np.flatnonzero((hits == 0) & (np.arange(len(run)) > first[run]))
    of, x = run[inside], count.cumsum()[inside - 1] - 1
    below = up[of] - 1 < up[right[of]] - slope[of] * (across[right[of]] - x)
    inside, of, x = inside[below], of[below], x[below]
    alone = np.arange(len(inside))
    fit[inside], _ = _touching(_Corners(x, up[of] - 1, alone), right_part, alone, right[of])
    return fit


def _runs(count: Array, hits: Array) -> tuple[Index, Index]:
    """Which run each score is in, and where each run starts; scores with hits and misses are runs of their own."""
    kind = np.where(hits == 0, 0, np.where(hits == count, 1, 2))
    begins = np.concatenate([[True], (kind[1:] != kind[:-1]) | (kind[1:] == 2)])
    return np.cumsum(begins) - 1, np.flatnonzero(begins)


def _next_to_the_left(across: Array, up: Array) -> Index:
    """The previous corner of the lower hull of points 0..j, for every j; the first is its own."""
    xs, ys = across.tolist(), up.tolist()
    previous = [0] * len(xs)
    for j in range(1, len(xs)):
        corner = j - 1
        while corner:
            earlier = previous[corner]
            # The corner stays if the line turns upwards there.
            if (ys[corner] - ys[earlier]) * (xs[j] - xs[corner]) < (ys[j] - ys[corner]) * (xs[corner] - xs[earlier]):
                break
            corner = earlier
        previous[j] = corner
    return np.array(previous)


def _next_to_the_right(across: Array, up: Array) -> Index:
    """The next corner of the lower hull of points j.., for every j; the last is its own."""
    return len(across) - 1 - _next_to_the_left(-across[::-1], up[::-1])[::-1]


def _touching(left_part: _Corners, right_part: _Corners, left: Index, right: Index) -> tuple[Array, Index]:
    """Lines that touch both parts from below, found by walking out from the given corners: slope, right corner."""
    left, right = left.copy(), right.copy()
    moving = np.arange(len(left))
    while len(moving):
        a, b = left[moving], right[moving]
        x, y = left_part.across[a], left_part.up[a]
        beyond = right_part.next[b]
        run, rise = right_part.across[b] - x, right_part.up[b] - y
        flatter = (right_part.up[beyond] - y) * run < rise * (right_part.across[beyond] - x)
        right[moving] = b = np.where(flatter, beyond, b)
        x, y = right_part.across[b] - x, right_part.up[b] - y
        before = left_part.next[a]
        run, rise = right_part.across[b] - left_part.across[before], right_part.up[b] - left_part.up[before]
        steeper = rise * x > y * run
        left[moving] = np.where(steeper, before, a)
        moving = moving[flatter | steeper]
    slope = (right_part.up[right] - left_part.up[left]) / (right_part.across[right] - left_part.across[left])
    return slope, right

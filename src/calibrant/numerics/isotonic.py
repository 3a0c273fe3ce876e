"""Isotonic regression by pooling adjacent violators, and with one more point, for Venn-Abers predictors."""

from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Blocks", "fits_with_one_more", "isotonic_blocks", "pool_falling", "tie_blocks"]

Floats: TypeAlias = NDArray[np.floating]
Index: TypeAlias = NDArray[np.intp]

# Scores closer than this, relative to their size and at least to 1, are ties: eight steps of float32.
_TIE = 1e-6
# Passes that pool falling neighbours are fast while they pool many; the rest is left to a sequential algorithm.
_WORTH_A_PASS = 0.9


class Blocks(NamedTuple):
    """Neighbouring scores that share a value, in rising order; all (b,), float64.

    The scores are known up to the last bit of the type they came in.
    """

    low: Tensor  # lowest score
    high: Tensor  # highest score
    rows: Tensor
    hits: Tensor  # of those, how many were hits

    @property
    def mean(self) -> Tensor:
        """Share of hits, (b,)."""
        return self.hits / self.rows

    @property
    def edges(self) -> Tensor:
        """Halfway between the scores of neighbouring blocks, (b - 1,)."""
        return (self.high[:-1] + self.low[1:]) / 2


def tie_blocks(scores: Tensor, hit: Tensor) -> Blocks:
    """One block for each distinct score.

    Args:
        scores: Shape (n,), float32 or float64, finite, n >= 1.
        hit: Shape (n,), bool.

    Example:
        >>> tie_blocks(torch.tensor([2.0, 1.0, 2.0]), torch.tensor([True, False, False])).hits.tolist()
        [0.0, 1.0]
    """
    rising, starts, count, hits = _tied(scores, hit)
    return _blocks(rising, starts, count, hits, scores.device)


def isotonic_blocks(scores: Tensor, hit: Tensor) -> Blocks:
    """The blocks of the least-squares fit that never falls; their means are its values, strictly rising.

    Args:
        scores: Shape (n,), float32 or float64, finite, n >= 1.
        hit: Shape (n,), bool.

    Example:
        >>> scores, hit = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([False, True, False, True])
        >>> isotonic_blocks(scores, hit).mean.tolist()
        [0.0, 0.5, 1.0]
    """
    rising, starts, count, hits = _tied(scores, hit)
    pooled = pool_falling(count, hits)
    return _blocks(rising, starts[pooled], _sums(count, pooled), _sums(hits, pooled), scores.device)


def pool_falling(count: Floats, total: Floats) -> Index:
    """Where the blocks of the isotonic fit start, (b,).

    Args:
        count: Weight of each point, above 0, (m,).
        total: Weight times value, (m,).

    Example:
        >>> pool_falling(np.array([1.0, 1.0, 2.0]), np.array([0.0, 1.0, 1.0]))
        array([0, 1])
    """
    starts = np.arange(len(count))
    while len(count) > 1:
        # Neighbours that do not rise end up in one block, whatever happens around them: all such are pooled at once.
        mean = total / count
        kept = np.append(0, np.flatnonzero(mean[1:] > mean[:-1]) + 1)
        slow = len(kept) > _WORTH_A_PASS * len(count)
        if len(kept) < len(count):
            starts, count, total = starts[kept], _sums(count, kept), _sums(total, kept)
        if slow:
            break
    return starts[_pool_one_by_one(count, total)]


def _pool_one_by_one(count: Floats, total: Floats) -> Index:
    mean = total / count
    if bool((mean[1:] > mean[:-1]).all()):
        return np.arange(len(count))
    from scipy.optimize import isotonic_regression

    starts: Index = isotonic_regression(mean, weights=count).blocks[:-1]
    return starts


def _tied(scores: Tensor, hit: Tensor) -> tuple[Floats, Index, Floats, Floats]:
    """Scores in rising order; where each group of ties starts among them, its rows and its hits."""
    rising, hits = _sorted(scores.cpu().numpy(), hit.cpu().numpy())
    starts = _starts_of_ties(rising)
    ends = np.append(starts[1:], len(rising))
    hits_up_to = hits.cumsum(dtype=np.int64)[ends - 1]
    return rising, starts, (ends - starts).astype(np.float64), np.diff(hits_up_to, prepend=0).astype(np.float64)


def _sorted(scores: Floats, hit: NDArray[np.bool_]) -> tuple[Floats, NDArray[np.signedinteger]]:
    """Scores in rising order, and the hits beside them as 0 and 1.

    Sorting numbers alone is several times faster than finding the order in which to take two columns. So the hit rides
    in the last bit of its score, which then sorts as a whole number; that bit is far below what counts as a tie.
    """
    whole = np.int64 if scores.dtype == np.float64 else np.int32
    code = _ordered(np.ascontiguousarray(scores).view(whole))
    code &= ~whole(1)
    code |= hit.view(np.int8)
    code.sort()
    hits = code & whole(1)
    code &= ~whole(1)
    return _ordered(code).view(scores.dtype), hits


def _ordered(code: NDArray[np.signedinteger]) -> NDArray[np.signedinteger]:
    """Bits of floats as whole numbers of the same order, and back: below zero all bits but the sign are turned."""
    most = np.iinfo(code.dtype).max
    return code ^ ((code >> (np.iinfo(code.dtype).bits - 1)) & most)


def _starts_of_ties(rising: Floats) -> Index:
    """Where the groups of equal scores start among scores in rising order."""
    apart = rising[1:] - rising[:-1] > _tolerance(rising[:-1])
    starts = np.append(0, np.flatnonzero(apart) + 1)
    ends = np.append(starts[1:], len(rising))
    wide = np.flatnonzero(rising[ends - 1] - rising[starts] > _tolerance(rising[starts]))
    if len(wide):
        # Scores so dense that each is tied to the next must not all become one group: cut it into pieces of that width.
        lengths = ends[wide] - starts[wide]
        first = np.repeat(starts[wide], lengths)
        place = first + np.arange(len(first)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        piece = np.floor((rising[place] - rising[first]) / _tolerance(rising[first]))
        apart[place[1:][(piece[1:] != piece[:-1]) & (first[1:] == first[:-1])] - 1] = True
        starts = np.append(0, np.flatnonzero(apart) + 1)
    return starts


def _tolerance(scores: Floats) -> Floats:
    return np.maximum(np.abs(scores), 1) * np.asarray(_TIE, dtype=scores.dtype)


def _sums(values: Floats, starts: Index) -> Floats:
    """Sums of the pieces that start there."""
    return np.add.reduceat(values, starts)


def _blocks(rising: Floats, starts: Index, count: Floats, hits: Floats, device: torch.device) -> Blocks:
    ends = np.append(starts[1:], len(rising)) - 1
    columns = (rising[starts], rising[ends], count, hits)
    return Blocks(*(torch.from_numpy(column.astype(np.float64)).to(device) for column in columns))


Array: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]


def fits_with_one_more(count: Array, hits: Array) -> tuple[Array, Array]:
    """The isotonic fit at each of m distinct scores once a row is added there: a miss, or a hit, (m,) each.

    A hit added between two scores is fitted as if it were added at the upper one, a miss as at the lower one; above all
    scores a hit is fitted 1, below all a miss 0. Both columns are rising.

    Args:
        count: Rows at each score, scores rising, (m,).
        hits: Number of hits among them, (m,).

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
    next: Indices


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


def _runs(count: Array, hits: Array) -> tuple[Indices, Indices]:
    """Which run each score is in, and where each run starts; scores with hits and misses are runs of their own."""
    kind = np.where(hits == 0, 0, np.where(hits == count, 1, 2))
    begins = np.concatenate([[True], (kind[1:] != kind[:-1]) | (kind[1:] == 2)])
    return np.cumsum(begins) - 1, np.flatnonzero(begins)


def _next_to_the_left(across: Array, up: Array) -> Indices:
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


def _next_to_the_right(across: Array, up: Array) -> Indices:
    """The next corner of the lower hull of points j.., for every j; the last is its own."""
    return len(across) - 1 - _next_to_the_left(-across[::-1], up[::-1])[::-1]


def _touching(left_part: _Corners, right_part: _Corners, left: Indices, right: Indices) -> tuple[Array, Indices]:
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

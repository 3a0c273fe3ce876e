"""Ties, isotonic regression, its fits with one more point (Venn-Abers), and bins of equal mass or most information."""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array: TypeAlias = NDArray[np.float64]
Floats: TypeAlias = NDArray[np.floating]
Index: TypeAlias = NDArray[np.intp]
# Of neighbouring scores that share a value: the lowest, the highest, the number of samples and of hits, (b,) each.
_Columns: TypeAlias = tuple[Floats, Floats, Floats, Floats]

_TIE = 1e-6  # scores closer than this, relative to their size and at least to 1, are ties: eight steps of float32
_EVEN = 1e-11  # distances from a rank that differ by less, relative to all samples, are the same
# Passes that pool all falling neighbours are fast while they pool many, and on few blocks; a sequential algorithm does
# the rest, whose module takes as long to import as thousands of passes.
_WORTH_A_PASS, _FEW_BLOCKS = 0.9, 1000
_PART, _NEAR = 1 << 20, 1 << 12  # scores that are counted at a time, and among which a part's end is searched


class Blocks(NamedTuple):
    """Neighbouring scores that share a value, in rising order, exact but for the last bit; all (b,), float64."""

    low: Tensor  # lowest score
    high: Tensor  # highest score
    rows: Tensor  # number of samples, or the sum of their weights
    hits: Tensor  # number of hits among them, or the sum of their weights

    @classmethod
    def of(cls, columns: _Columns, device: torch.device | str = "cpu") -> "Blocks":
        return cls(*(torch.from_numpy(column.astype(np.float64)).to(device) for column in columns))

    @property
    def mean(self) -> Tensor:
        return self.hits / self.rows

    @property
    def edges(self) -> Tensor:
        """Midpoints between the scores of neighbouring blocks, (b - 1,)."""
        return (self.high[:-1] + self.low[1:]) / 2


def tie_blocks(scores: Tensor, hit: Tensor, weights: Tensor | None = None) -> Blocks:
    """Return one block for each distinct score, (n,) float32 or float64, finite, n >= 1, with hits (n,), bool.

    Samples count once each, or by their weights, (n,), float64, above 0.

    Example:
        >>> tie_blocks(torch.tensor([2.0, 1.0, 2.0]), torch.tensor([True, False, False])).hits.tolist()
        [0.0, 1.0]
    """
    return Blocks.of(_tied(scores, hit, weights), scores.device)


def isotonic_blocks(scores: Tensor, hit: Tensor, weights: Tensor | None = None) -> Blocks:
    """Return the blocks of the non-decreasing least-squares fit to hits at scores; their means rise strictly.

    Example:
        >>> scores, hit = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([False, True, False, True])
        >>> isotonic_blocks(scores, hit).mean.tolist()
        [0.0, 0.5, 1.0]
    """
    parts = [pooled(*tied) for tied in _tied_parts(scores, hit, weights)]
    columns = parts[0]
    if len(parts) > 1:  # whatever is pooled within a part is pooled in the whole
        columns = pooled(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    return Blocks.of(columns, scores.device)


def pooled(low: Floats, high: Floats, count: Floats, hits: Floats) -> _Columns:
    """Join neighbours whose means fall: the columns of :func:`isotonic_blocks`, from those of ties."""
    starts = pool_falling(count, hits)
    last = np.append(starts[1:], len(count)) - 1
    return low[starts], high[last], np.add.reduceat(count, starts), np.add.reduceat(hits, starts)


def pool_falling(count: Floats, total: Floats) -> Index:
    """Return where the blocks of the isotonic fit start, (b,), given weights above 0 and weighted values, (m,) each.

    Example:
        >>> pool_falling(np.array([1.0, 1.0, 2.0]), np.array([0.0, 1.0, 1.0]))
        array([0, 1])
    """
    starts = np.arange(len(count))
    while len(count) > 1:
        # Neighbours that do not rise end up in one block, whatever happens around them: all such are pooled at once.
        mean = total / count
        kept = np.append(0, np.flatnonzero(mean[1:] > mean[:-1]) + 1)
        if len(kept) == len(count):
            break
        slow = len(kept) > max(_WORTH_A_PASS * len(count), _FEW_BLOCKS)
        starts, count, total = starts[kept], np.add.reduceat(count, kept), np.add.reduceat(total, kept)
        if slow:
            from scipy.optimize import isotonic_regression

            starts = starts[isotonic_regression(total / count, weights=count).blocks[:-1]]
            break
    return starts


def _tied(scores: Tensor, hit: Tensor, weights: Tensor | None) -> _Columns:
    if weights is None:
        return _counted(*_sorted(scores.cpu().numpy(), hit.cpu().numpy()))
    rising, order = (column.cpu().numpy() for column in scores.sort(stable=True))
    starts = _starts_of_ties(rising)
    last = np.append(starts[1:], len(rising)) - 1
    count, of_hits = weights.cpu().numpy()[order], (weights * hit).cpu().numpy()[order]
    return rising[starts], rising[last], np.add.reduceat(count, starts), np.add.reduceat(of_hits, starts)


def _tied_parts(scores: Tensor, hit: Tensor, weights: Tensor | None) -> Iterator[_Columns]:
    """Yield the tied scores of consecutive parts, in rising order, so that memory stays small with many scores."""
    if weights is not None or len(scores) <= _PART:
        yield _tied(scores, hit, weights)
        return
    rising, hits = _sorted(scores.cpu().numpy(), hit.cpu().numpy())
    start, origin = 0, None
    while start < len(rising):
        stop, next_origin = _end_of_part(rising, start, origin)
        yield _counted(rising[start:stop], hits[start:stop], origin)
        start, origin = stop, next_origin


def _end_of_part(rising: Floats, start: int, origin: np.floating | None) -> tuple[int, np.floating | None]:
    """Return where a part ends, between two groups of ties, and the lowest score of the dense ones that it cuts."""
    stop = start + _PART
    part = rising[start:stop]
    distinct = np.flatnonzero(part[1:] - part[:-1] > _tolerance(part[:-1]))
    if len(distinct) or origin is None:
        origin = part[distinct[-1] + 1 if len(distinct) else 0]
    while stop < len(rising):
        near = rising[stop - 1 : stop + _NEAR]
        is_distinct = near[1:] - near[:-1] > _tolerance(near[:-1])
        piece = np.floor((near - origin) / _tolerance(origin))
        is_end = is_distinct | ((piece[1:] != piece[:-1]) & (near[1:] - origin > _tolerance(origin)))
        if is_end.any():
            place = int(is_end.argmax())
            return stop + place, None if is_distinct[place] else origin
        stop += _NEAR
    return len(rising), None


def _counted(rising: Floats, hits: NDArray[np.signedinteger], origin: np.floating | None = None) -> _Columns:
    starts = _starts_of_ties(rising, origin)
    last = np.append(starts[1:], len(rising)) - 1
    count = (last + 1 - starts).astype(np.float64)
    hits_up_to = hits.cumsum(dtype=np.int64)[last]
    return rising[starts], rising[last], count, np.diff(hits_up_to, prepend=0).astype(np.float64)


def _sorted(scores: Floats, hit: NDArray[np.bool_]) -> tuple[Floats, NDArray[np.signedinteger]]:
    """Return scores in rising order, and their hits as 0 and 1.

    Sorting numbers alone is several times faster than an indirect sort of two columns. So the hit is stored in the last
    bit of its score, which then sorts as an integer; that bit is far below what counts as a tie.
    """
    whole = np.int64 if scores.dtype == np.float64 else np.int32
    code = _ordered(np.ascontiguousarray(scores).view(whole))
    code &= ~whole(1)
    code |= hit.view(np.int8)
    code.sort()
    hits = (code & whole(1)).astype(np.int8)
    code &= ~whole(1)
    return _ordered(code).view(scores.dtype), hits


def _ordered(code: NDArray[np.signedinteger]) -> NDArray[np.signedinteger]:
    """Map the bits of floats to integers of the same order, and back: below zero all bits but the sign are flipped."""
    most = np.iinfo(code.dtype).max
    mapped = code >> (np.iinfo(code.dtype).bits - 1)
    mapped &= most
    mapped ^= code
    return mapped


def _starts_of_ties(rising: Floats, origin: np.floating | None = None) -> Index:
    distinct = rising[1:] - rising[:-1] > _tolerance(rising[:-1])
    starts = np.append(0, np.flatnonzero(distinct) + 1)
    ends = np.append(starts[1:], len(rising))
    lowest = rising[starts]
    if origin is not None:  # the first group continues
        lowest[0] = origin
    wide = np.flatnonzero(rising[ends - 1] - lowest > _tolerance(lowest))
    if len(wide):
        # Scores so dense that each is tied to the next must not all become one group: cut them into pieces as wide.
        lengths = ends[wide] - starts[wide]
        first = np.repeat(starts[wide], lengths)
        place = first + np.arange(len(first)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        low = np.repeat(lowest[wide], lengths)
        piece = np.floor((rising[place] - low) / _tolerance(low))
        distinct[place[1:][(piece[1:] != piece[:-1]) & (first[1:] == first[:-1])] - 1] = True
        starts = np.append(0, np.flatnonzero(distinct) + 1)
    return starts


def _tolerance(scores: Any) -> Any:
    return np.maximum(np.abs(scores), 1) * np.asarray(_TIE, dtype=scores.dtype)


def fits_with_one_more(count: Array, hits: Array) -> tuple[Array, Array]:
    """Return the isotonic fit at each of m rising scores once a sample is added there: a miss, or a hit, (m,) each.

    ``count`` are the samples at each score, ``hits`` the hits among them. A hit added between two scores is fitted as
    if added at the upper one, a miss as at the lower one; above all scores a hit is fitted 1, below all a miss 0. Both
    columns are rising.

    Example:
        >>> fits_with_one_more(np.array([1.0, 1.0, 1.0]), np.array([0.0, 0.0, 1.0]))
        (array([0. , 0. , 0.5]), array([0.33333333, 0.5       , 1.        ]))
    """
    if not hits.any():
        # The common case with many classes: one hit among misses is pooled with all scores above it.
        return np.zeros(len(count)), 1 / (1 + count[::-1].cumsum()[::-1])
    # A miss is a hit with labels and order reversed.
    with_miss = 1 - _with_hit(count[::-1], (count - hits)[::-1])[::-1]
    return with_miss, _with_hit(count, hits)


class _Corners(NamedTuple):
    """Points that a line may touch, each with the next one of its hull, away from the gap that the line spans."""

    across: Array
    up: Array
    next: Index


def _with_hit(count: Array, hits: Array) -> Array:
    run, first = _runs(count, hits)
    across, up = (np.concatenate([[0.0], np.add.reduceat(column, first).cumsum()]) for column in (count, hits))
    left_part = _Corners(across - 1, up - 1, _next_to_the_left(across, up))
    # The next corner of the lower hull of points j.., for every j, is the previous one in the reversed order.
    right_part = _Corners(across, up, len(across) - 1 - _next_to_the_left(-across[::-1], up[::-1])[::-1])
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
    """Return which run each score is in, and where each starts; scores with hits and misses are runs of their own."""
    kind = np.where(hits == 0, 0, np.where(hits == count, 1, 2))
    begins = np.concatenate([[True], (kind[1:] != kind[:-1]) | (kind[1:] == 2)])
    return np.cumsum(begins) - 1, np.flatnonzero(begins)


def _next_to_the_left(across: Array, up: Array) -> Index:
    """Return the previous corner of the lower hull of points 0..j, for every j; the first is its own."""
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


def _touching(left_part: _Corners, right_part: _Corners, left: Index, right: Index) -> tuple[Array, Index]:
    """Return slopes and right corners of lines that touch both parts from below, searched outwards from corners."""
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


def equal_mass_starts(up_to: Tensor, n_bins: int) -> Tensor:
    """Return where bins of even size start among distinct scores, (b,), given the samples up to each, (m,).

    Each cut lies between the two scores nearest its rank. Without ties the bins differ in size by at most one sample.
    With ties there can be fewer bins, but none is empty.

    Example:
        >>> equal_mass_starts(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), 3).tolist()
        [0, 2, 4]
    """
    n_bins = min(n_bins, max(1, round(float(up_to[-1]))))  # more bins than samples cut between all of them
    rank = torch.arange(1, n_bins, dtype=torch.float64, device=up_to.device) * up_to[-1] / n_bins
    ends = torch.cat([up_to.new_zeros(1), up_to])
    above = torch.searchsorted(ends, rank)
    # Of two at the same distance the lower one, whatever rounding of weights says.
    closer = rank - ends[above - 1] - _EVEN * up_to[-1]
    nearest = torch.where(ends[above] - rank < closer, above, above - 1)
    return torch.cat([nearest.new_zeros(1), nearest[nearest < len(up_to)]]).unique()


def equal_mass_edges(scores: Tensor, n_bins: int, weights: Tensor | None = None) -> Tensor:
    """Return the edges of at most ``n_bins`` bins of equal mass, rising, (b - 1,), float64, of scores (n,)."""
    ties = tie_blocks(scores, torch.zeros_like(scores, dtype=torch.bool), weights)
    starts = equal_mass_starts(ties.rows.cumsum(0), n_bins)
    return ties.edges[starts[1:] - 1]


_MOST_ROUNDS = 10_000
_WORTH_A_ROUND = 1e-12  # nats per sample that a round must gain, or it is the last
_SUREST = 500.0  # beyond this the exponential of a float64 would underflow


class InformativeBins(NamedTuple):
    """Rising edges of the bins, and the information kept after each round, in nats per sample, rising too."""

    edges: Array  # (b - 1,)
    information: list[float]


def informative_bins(rising: NDArray[np.floating], n_bins: int, weights: Array | None = None) -> InformativeBins:
    """Cut rising log-odds, (n,), into bins that keep as much information about the label as rounds from a start reach.

    There are fewer bins if there are fewer distinct numbers, since no bin is left empty. ``weights``, (n,), are those
    of the samples in the same order.

    Example:
        >>> informative_bins(np.array([-4.0, -3.9, -0.1, 0.1, 5.0]), 3).edges.round(1)
        array([-1.6,  1.8])
    """
    diagram = _Diagram(rising.astype(np.float64).clip(-_SUREST, _SUREST), weights)
    size = len(rising) if weights is None else float(weights.sum())
    unbinned = _minus_entropy(*diagram.in_bins(np.empty(0, dtype=np.intp)))
    edges = diagram.even_edges(n_bins)
    information: list[float] = []
    for _ in range(_MOST_ROUNDS):
        edges, cuts = diagram.cut(edges)
        hits, misses = diagram.in_bins(cuts)
        information.append((_minus_entropy(hits, misses) - unbinned) / size)
        if len(information) > 1 and information[-1] - information[-2] < _WORTH_A_ROUND:
            break
        # Log-odds with equal loss, σ(s) ln σ(φ) + σ(-s) ln σ(-φ), in the bins below and above.
        phi = np.log(hits / misses)
        of_miss, of_hit = np.diff(np.logaddexp(0, phi)), -np.diff(np.logaddexp(0, -phi))
        differ = (of_miss > 0) & (of_hit > 0)  # else φ differ by rounding only
        ratio = np.divide(of_miss, of_hit, out=np.ones_like(phi[1:]), where=differ)
        edges = np.where(differ, np.log(ratio), (phi[1:] + phi[:-1]) / 2)
    return InformativeBins(edges, information)


class _Diagram:
    """Cumulative expected hits and misses in the order of the log-odds, from which any bin is a difference."""

    def __init__(self, rising: Array, weights: Array | None) -> None:
        self.rising = rising
        odds_against = np.exp(-rising)
        hit = (1 if weights is None else weights) / (1 + odds_against)
        miss = odds_against * hit
        # Each is summed from the side where it is small, so that no digits are lost.
        self.hits_below = np.concatenate([[0.0], hit.cumsum()])
        self.misses_above = np.concatenate([miss[::-1].cumsum()[::-1], [0.0]])
        self.weight = np.sqrt(hit * miss).cumsum()

    def even_edges(self, n_bins: int) -> Array:
        """Return a start close to the best: bins even in Σ √(σ(s) σ(-s)), few where the label is nearly certain."""
        share = np.arange(1, n_bins) / n_bins * self.weight[-1]
        return self.rising[np.searchsorted(self.weight, share).clip(max=len(self.rising) - 1)]

    def cut(self, edges: Array) -> tuple[Array, Index]:
        """Return the edges with samples on either side, and the number of samples up to each."""
        edges = np.maximum.accumulate(edges)  # rounding may have swapped edges of nearly equal bins
        cuts = np.searchsorted(self.rising, edges, side="right")
        parts = (np.diff(cuts, prepend=0) > 0) & (cuts < len(self.rising))
        return edges[parts], cuts[parts]

    def in_bins(self, cuts: Index) -> tuple[Array, Array]:
        """Return expected hits and misses in each bin."""
        ends = np.concatenate([[0], cuts, [len(self.rising)]])
        return np.diff(self.hits_below[ends]), -np.diff(self.misses_above[ends])


def _minus_entropy(hits: Array, misses: Array) -> float:
    """Return the negative entropy of the label within the bins, in nats, summed over the samples."""
    rows = hits + misses
    return float((hits * np.log(hits / rows) + misses * np.log(misses / rows)).sum())

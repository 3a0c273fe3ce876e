"""Isotonic regression of hits and misses: the rising steps nearest to them, found by pooling neighbours that fall.

Ties are pooled first, because rows of one score can only get one value, and near-ties with them: a score that went
through a logarithm and back differs in its last bits from what it was, and the order of two such scores is noise.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Blocks", "isotonic_blocks", "pool_falling", "tie_blocks"]

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

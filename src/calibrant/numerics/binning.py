"""Bins of equal width, of equal mass, and of most information about the label; sums by bin."""

from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant.numerics.isotonic import tie_blocks

__all__ = [
    "InformativeBins",
    "bin_ends",
    "bin_index",
    "counts_by",
    "equal_mass_edges",
    "equal_mass_starts",
    "informative_bins",
    "inner_edges",
    "sums_between",
    "sums_by",
]

_ON_THE_EDGE = 2.0**-22
# Numbers that a matrix product adds up by bin faster than bin after bin does.
_FEW = 1024


def bin_index(values: Tensor, n_bins: int) -> Tensor:
    """The bin of each number in 0..1, as int32 (which counts twice as fast as int64).

    Example:
        >>> bin_index(torch.tensor([0.0, 0.1, 0.2, 0.21, 1.0]), 10).tolist()
        [0, 0, 1, 2, 9]
    """
    scaled = (values - _ON_THE_EDGE).mul_(n_bins)
    return scaled.ceil_().sub_(1).clamp_(0, n_bins - 1).int()


def inner_edges(n_bins: int, device: torch.device | None = None) -> Tensor:
    """Upper ends of all bins but the last, (n_bins - 1,), float64: what searching among them finds, bin_index says."""
    return torch.arange(1, n_bins, dtype=torch.float64, device=device) / n_bins + _ON_THE_EDGE


def sums_by(index: Tensor, values: Tensor, size: int) -> Tensor:
    """Add up the last dimension of ``values`` (..., m) by ``index`` (m,), giving (..., size) in float64."""
    if values.ndim == 1:
        return torch.bincount(index, weights=values, minlength=size).double()
    sums = values.new_zeros((*values.shape[:-1], size), dtype=torch.float64)
    return sums.index_add_(-1, index, values.double())


def counts_by(index: Tensor, flag: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """How often each index occurs, and how often with the flag set, (size,) each in float64, counted in one go."""
    counts = torch.bincount(torch.add(flag.to(index.dtype), index, alpha=2), minlength=2 * size).double().view(size, 2)
    return counts.sum(dim=1), counts[:, 1]


def bin_ends(rising: Tensor, n_bins: int) -> list[int]:
    """Where each bin ends among numbers in rising order: bin b holds the positions ends[b] to ends[b + 1]."""
    edges = torch.arange(1, n_bins, dtype=rising.dtype, device=rising.device) / n_bins + _ON_THE_EDGE
    inner: list[int] = torch.searchsorted(rising, edges, right=True).tolist()
    return [0, *inner, rising.shape[0]]


def sums_between(ends: list[int], values: Tensor) -> Tensor:
    """Add up the last dimension of ``values`` (..., m) between the ends, giving (..., len(ends) - 1)."""
    if values.ndim > 1 and values.shape[-1] <= _FEW:
        place = torch.arange(values.shape[-1], device=values.device)[:, None]
        edges = torch.tensor(ends, device=values.device)
        return values.double() @ ((place >= edges[:-1]) & (place < edges[1:])).double()
    return torch.stack([values[..., low:high].sum(-1, dtype=torch.float64) for low, high in pairwise(ends)], dim=-1)


def equal_mass_starts(up_to: Tensor, n_bins: int) -> Tensor:
    """Where bins of even size start among distinct scores, (b,): each cut lies between the two nearest its rank.

    Without ties the bins differ in size by at most one row. With ties there can be fewer bins, but none is empty.

    Args:
        up_to: Rows up to each distinct score, rising, (m,).
        n_bins: The most bins.

    Example:
        >>> equal_mass_starts(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), 3).tolist()
        [0, 2, 4]
    """
    n_bins = min(n_bins, int(up_to[-1]))  # more than there are rows cut between all of them, as so many do
    rank = torch.arange(1, n_bins, dtype=torch.float64, device=up_to.device) * up_to[-1] / n_bins
    ends = torch.cat([up_to.new_zeros(1), up_to])
    above = torch.searchsorted(ends, rank)
    nearest = torch.where(ends[above] - rank < rank - ends[above - 1], above, above - 1)
    return torch.cat([nearest.new_zeros(1), nearest[nearest < len(up_to)]]).unique()


def equal_mass_edges(scores: Tensor, n_bins: int) -> Tensor:
    """Edges of bins of equal mass, rising, (b - 1,), float64.

    Args:
        scores: In any order, (n,).
        n_bins: The most bins.
    """
    ties = tie_blocks(scores, torch.zeros_like(scores, dtype=torch.bool))
    starts = equal_mass_starts(ties.rows.cumsum(0), n_bins)
    return ties.edges[starts[1:] - 1]


Array: TypeAlias = NDArray[np.float64]

_MOST_TURNS = 10_000
# Nats a row that a turn must gain, or it is the last.
_WORTH_A_TURN = 1e-12
# Beyond, the exponential of a float64 would underflow; no row tells a bin more than this anyway.
_SUREST = 500.0


class InformativeBins(NamedTuple):
    """Edges of the bins, rising, and the information in nats a row that was kept after each turn, rising too."""

    edges: Array  # (b - 1,)
    information: list[float]


def informative_bins(rising: NDArray[np.floating], n_bins: int) -> InformativeBins:
    """Cut log-odds into bins that keep as much information about the label as turns from a good start can reach.

    Args:
        rising: Log-odds in rising order, (n,).
        n_bins: The most bins; fewer if there are fewer distinct numbers, since no bin is left empty.

    Example:
        >>> informative_bins(np.array([-4.0, -3.9, -0.1, 0.1, 5.0]), 3).edges.round(1)
        array([-1.6,  1.8])
    """
    diagram = _Diagram(rising.astype(np.float64).clip(-_SUREST, _SUREST))
    unbinned = _minus_entropy(*diagram.in_bins(np.empty(0, dtype=np.intp)))
    edges = diagram.even_edges(n_bins)
    information: list[float] = []
    for _ in range(_MOST_TURNS):
        edges, cuts = diagram.cut(edges)
        hits, misses = diagram.in_bins(cuts)
        information.append((_minus_entropy(hits, misses) - unbinned) / len(rising))
        if len(information) > 1 and information[-1] - information[-2] < _WORTH_A_TURN:
            break
        edges = _edges_between(np.log(hits / misses))
    return InformativeBins(edges, information)


def _edges_between(phi: Array) -> Array:
    """Where a row loses as much to the bin below as to the one above: σ(s) ln σ(φ) + σ(-s) ln σ(-φ) equal for both."""
    of_miss, of_hit = np.diff(np.logaddexp(0, phi)), -np.diff(np.logaddexp(0, -phi))
    apart = (of_miss > 0) & (of_hit > 0)  # else φ differ by rounding only
    ratio = np.divide(of_miss, of_hit, out=np.ones_like(phi[1:]), where=apart)
    return np.where(apart, np.log(ratio), (phi[1:] + phi[:-1]) / 2)


class _Diagram:
    """Expected hits and misses summed up in the order of the log-odds, from which any bin is read off in one go."""

    def __init__(self, rising: Array) -> None:
        self.rising = rising
        hit, miss = 1 / (1 + np.exp(-rising)), 1 / (1 + np.exp(rising))
        # Each from the side where it is small, or the small ones would be lost beside the others.
        self.hits_below = np.concatenate([[0.0], hit.cumsum()])
        self.misses_above = np.concatenate([miss[::-1].cumsum()[::-1], [0.0]])
        self.weight = np.sqrt(hit * miss).cumsum()

    def even_edges(self, n_bins: int) -> Array:
        """A start close to the best: bins even in Σ √(σ(s) σ(-s)), few where the label is all but known."""
        share = np.arange(1, n_bins) / n_bins * self.weight[-1]
        return self.rising[np.searchsorted(self.weight, share).clip(max=len(self.rising) - 1)]

    def cut(self, edges: Array) -> tuple[Array, NDArray[np.intp]]:
        """Edges with rows on either side of each, and how many rows lie up to each."""
        edges = np.maximum.accumulate(edges)  # those of bins that are almost alike may have changed places by rounding
        cuts = np.searchsorted(self.rising, edges, side="right")
        parts = (np.diff(cuts, prepend=0) > 0) & (cuts < len(self.rising))
        return edges[parts], cuts[parts]

    def in_bins(self, cuts: NDArray[np.intp]) -> tuple[Array, Array]:
        """Expected hits and misses in each bin."""
        ends = np.concatenate([[0], cuts, [len(self.rising)]])
        return np.diff(self.hits_below[ends]), -np.diff(self.misses_above[ends])


def _minus_entropy(hits: Array, misses: Array) -> float:
    """Of the label within the bins, in nats, summed over the rows."""
    rows = hits + misses
    return float((hits * np.log(hits / rows) + misses * np.log(misses / rows)).sum())

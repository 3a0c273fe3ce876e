"""Where to cut log-odds into a few bins so that the bin tells as much as possible about the label.

Knowing only the log-odds s, the label is a hit with probability σ(s). A bin keeps of it the mean of these, σ(φ). The
information lost by that is a sum over rows, and is made smaller in turns: by the best φ of given bins, and by the best
bins of given φ, each known in closed form. So the information kept never falls, until a turn gains nothing to speak of.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["InformativeBins", "informative_bins"]

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

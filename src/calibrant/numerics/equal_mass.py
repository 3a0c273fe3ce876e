"""Bins of equal mass: cut by rank, with equal scores kept together."""

import torch
from torch import Tensor

from calibrant.numerics.isotonic import tie_blocks

__all__ = ["equal_mass_edges", "equal_mass_starts"]


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

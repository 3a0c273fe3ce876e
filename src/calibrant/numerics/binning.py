"""Bins of equal width, and sums by bin.

Edges are ``(lo, hi]``; 0 goes to the first bin and 1 to the last. A probability of 0.2 arrives as 0.20000000298 in
float32, so a number within 2.4e-7 above an edge counts as lying on it: the scores of a ten-tree forest fall where a
person expects them.
"""

from itertools import pairwise

import torch
from torch import Tensor

__all__ = ["bin_ends", "bin_index", "counts_by", "inner_edges", "sums_between", "sums_by"]

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

"""Binned calibration error at each temperature of a grid: it jumps and has many minima, so a grid is all that helps."""

import math

import torch
from torch import Tensor

from calibrant.numerics.binning import bin_index, sums_by

__all__ = ["errors_at_temperatures", "excess_in_bins", "top_confidences"]

# Numbers in a block: few enough to stay in a processor's cache for all temperatures, or many enough to fill a GPU.
_BLOCK, _BLOCK_ON_GPU = 1 << 18, 1 << 26


def errors_at_temperatures(logits: Tensor, labels: Tensor, temperatures: Tensor, *, n_bins: int) -> Tensor:
    """Mean gap between confidence and accuracy over equal-width bins, at each temperature.

    Args:
        logits: Shape (n, k).
        labels: Shape (n,).
        temperatures: Above 0, (t,).
        n_bins: Of confidence.

    Returns:
        Shape (t,), float64.
    """
    excess = torch.zeros(len(temperatures), n_bins, dtype=torch.float64, device=logits.device)
    for block, of_rows in zip(*(part.split(_rows_in_a_block(logits)) for part in (logits, labels)), strict=True):
        correct = (block.argmax(dim=1) == of_rows).float()
        excess += excess_in_bins(top_confidences(block, temperatures), correct, n_bins=n_bins)
    return excess.abs().sum(dim=1) / len(logits)


def top_confidences(logits: Tensor, temperatures: Tensor) -> Tensor:
    """Probability of the top class at each temperature, (t, n), in the logits' precision and no lower than float32.

    Args:
        logits: Shape (n, k).
        temperatures: Above 0, (t,).
    """
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    scales = (math.log2(math.e) / temperatures.double()).tolist()
    found = torch.empty(len(scales), len(logits), dtype=dtype, device=logits.device)
    size = _rows_in_a_block(logits)
    for block, out in zip(logits.split(size), found.split(size, dim=1), strict=True):
        gaps = block.to(dtype)
        gaps = gaps - gaps.amax(dim=1, keepdim=True)
        powers = torch.empty_like(gaps)
        for place, scale in enumerate(scales):
            torch.exp2(torch.mul(gaps, scale, out=powers), out=powers)
            out[place] = powers.sum(dim=1).reciprocal_()
    return found


def excess_in_bins(confidences: Tensor, correct: Tensor, *, n_bins: int) -> Tensor:
    """Sum of confidence minus that of right answers in each bin, (t, n_bins) in float64.

    Args:
        confidences: Shape (t, n).
        correct: 1 where the answer is right, else 0, (n,).
        n_bins: Of confidence.
    """
    sums = [sums_by(bin_index(each, n_bins), each - correct, n_bins) for each in confidences]
    return torch.stack(sums)


def _rows_in_a_block(logits: Tensor) -> int:
    return max(1, (_BLOCK if logits.device.type == "cpu" else _BLOCK_ON_GPU) // logits.shape[1])

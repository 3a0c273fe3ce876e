"""Binned calibration error at each temperature of a grid: it jumps and has many minima, so a grid is all that helps."""

import math

import torch
from torch import Tensor

from calibrant.numerics.binning import bin_index, sums_by

__all__ = ["errors_at_temperatures"]

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
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    scales = (math.log2(math.e) / temperatures.double()).tolist()
    excess = torch.zeros(len(scales), n_bins, dtype=torch.float64, device=logits.device)
    size = max(1, (_BLOCK if logits.device.type == "cpu" else _BLOCK_ON_GPU) // logits.shape[1])
    for block, of_rows in zip(*(part.split(size) for part in (logits, labels)), strict=True):
        highest, top = block.to(dtype).max(dim=1, keepdim=True)
        gaps = block - highest
        correct = (top[:, 0] == of_rows).to(dtype)
        powers = torch.empty_like(gaps)
        for place, scale in enumerate(scales):
            confidence = torch.exp2(torch.mul(gaps, scale, out=powers), out=powers).sum(dim=1).reciprocal_()
            index = bin_index(confidence, n_bins)
            excess[place] += sums_by(index, confidence - correct, n_bins)
    return excess.abs().sum(dim=1) / len(logits)

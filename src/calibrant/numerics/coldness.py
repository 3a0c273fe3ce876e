"""Derivatives of the log-loss in the inverse temperature: one pass, one exponential a logit."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from calibrant.numerics.layout import Layout
from calibrant.numerics.workspace import workspace

__all__ = ["ColdRows", "cold_rows"]

# Numbers in a block: two such blocks stay in a processor's last cache. On a GPU blocks only bound the memory.
_BLOCK, _GPU_BLOCK = 1 << 21, 1 << 26


class ColdRows(NamedTuple):
    """What a block of rows tells at one inverse temperature β, all of shape (m,)."""

    rows: slice
    log_prob: Tensor  # of the label
    slope: Tensor  # d(-log_prob)/dβ: the expected logit minus the label's
    curvature: Tensor  # d²(-log_prob)/dβ²: the variance of the logit
    bend: Tensor  # d³(-log_prob)/dβ³: its third central moment


def cold_rows(logits: Tensor, labels: Tensor, coldness: float) -> Iterator[ColdRows]:
    """Log-probability of the label and its derivatives at ``softmax(coldness * logits)``, block by block.

    Works in the logits' own precision (float64 stays, the rest is float32).

    Args:
        logits: Shape (n, k), finite.
        labels: Shape (n,).
        coldness: Inverse temperature.
    """
    n, k = logits.shape
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    most = max(1, (_BLOCK if logits.device.type == "cpu" else _GPU_BLOCK) // k)
    step = math.ceil(n / math.ceil(n / most))  # blocks of even size
    memory = workspace(3, step * k, dtype, logits.device)
    # Powers of two are a third faster than powers of e.
    scale = coldness * math.log2(math.e)
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        block, layout = logits[rows].to(dtype), Layout.of(logits[rows])
        gaps, powers, scratch = (layout.reuse(part) for part in memory)
        block = layout.lay_out(block, out=scratch)
        highest = block.amax(dim=0 if layout.sideways else 1)
        torch.add(layout.beside(highest * -scale), block, alpha=scale, out=gaps)
        label_gap = gaps.view(-1).index_select(0, layout.places(labels[rows]))
        torch.exp2(gaps, out=powers)
        sums = torch.empty(4, rows.stop - rows.start, dtype=dtype, device=logits.device)
        layout.sum_classes(powers, out=sums[0])
        layout.sum_products(powers, gaps, memory=scratch, out=sums[1])
        layout.sum_products(powers.mul_(gaps), gaps, memory=scratch, out=sums[2])
        layout.sum_products(powers.mul_(gaps), gaps, memory=scratch, out=sums[3])
        total, (mean, square, cube) = sums[0], sums[1:] / sums[0]
        variance = square - mean.square()
        yield ColdRows(
            rows,
            (label_gap - total.log2()) * math.log(2),
            (mean - label_gap) / scale,
            variance / scale**2,
            (cube - mean * (square + 2 * variance)) / scale**3,
        )

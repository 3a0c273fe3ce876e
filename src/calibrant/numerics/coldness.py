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
# Above this a scaled top logit leaves its difference to another too few digits: 8e-6 of float32's.
_LARGE = 128.0
# Two to the minus this is zero in every type, and its cube is a number in every type.
_FAR = 1e9


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
        label_gap, sums = _block_sums(logits[rows].to(dtype), labels[rows], scale, memory, careful=False)
        if not math.isfinite(float(sums[1].sum())):  # logits near the largest number of their type
            label_gap, sums = _block_sums(logits[rows].to(dtype), labels[rows], scale, memory, careful=True)
        total, (mean, square, cube) = sums[0], sums[1:].div_(sums[0]).unbind()
        variance = square - mean.square()
        yield ColdRows(
            rows,
            total.log2().mul_(-math.log(2)).add_(label_gap, alpha=coldness).clamp_(min=torch.finfo(dtype).min),
            mean / scale - label_gap,
            variance / scale**2,
            (cube - mean * (square + 2 * variance)) / scale**3,
        )


def _block_sums(
    logits: Tensor, labels: Tensor, scale: float, memory: Tensor, *, careful: bool
) -> tuple[Tensor, Tensor]:
    """The label's logit minus the top one, (m,), and Σ_k p_k g_k^j for j = 0..3, g = scale x (logit - top), p = 2^g."""
    layout = Layout.of(logits)
    gaps, powers, scratch = (layout.reuse(part) for part in memory)
    block = layout.lay_out(logits, out=scratch)
    highest = block.amax(dim=0 if layout.sideways else 1)
    label_gap = block.view(-1).index_select(0, layout.places(labels)).sub_(highest)
    if careful or float(highest.abs().max()) * scale > _LARGE:
        torch.sub(block, layout.beside(highest), out=gaps).mul_(scale).clamp_(min=-_FAR)
    else:  # in one go, which rounds the logits instead of their differences
        torch.add(layout.beside(highest * -scale), block, alpha=scale, out=gaps)
    torch.exp2(gaps, out=powers)
    sums = torch.empty(4, layout.n, dtype=block.dtype, device=block.device)
    layout.sum_classes(powers, out=sums[0])
    layout.sum_products(powers, gaps, memory=scratch, out=sums[1])
    layout.sum_products(powers.mul_(gaps), gaps, memory=scratch, out=sums[2])
    layout.sum_products(powers.mul_(gaps), gaps, memory=scratch, out=sums[3])
    return label_gap, sums

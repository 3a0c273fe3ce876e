"""Softmax statistics on a GPU by a kernel that reads every logit once and writes no array of their size; by Triton."""

import torch
import triton
import triton.language as tl
from torch import Tensor

# Numbers of some samples and all classes, padded to powers of two, that a program holds at a time; fewer where most
# samples are passed over. Programs a multiprocessor.
_TILE, _LIST_TILE, _PROGRAMS = 4096, 1024, 8


def sum_rows(logits: Tensor, labels: Tensor, top: Tensor, columns: Tensor, above: float) -> tuple[Tensor, Tensor]:
    """Fill in the largest entry and the sums of every sample.

    Args:
        logits: Shape (n, k), finite, rows contiguous.
        labels: Shape (n,).
        top: Shape (n,), to be filled with the class of the largest logit, the first on a tie.
        columns: Shape (4, n), to be filled, as ``SoftmaxRows`` has them, with the sum of the others' exponentials, the
            label's gap, and the sums of the exponentials times their gaps and of their squares.
        above: Probability above which others are counted.

    Returns:
        The sum of every class's probabilities where it is not the top, (k,) float64; the others above that probability
        of every sample, (n,) int32.
    """
    n, k = logits.shape
    block, rows, programs = _shape_of(logits, _TILE)
    sums = torch.empty(programs, k, device=logits.device)
    counts = torch.empty(n, dtype=torch.int32, device=logits.device)
    with torch.cuda.device(logits.device):
        _sum[(programs,)](logits, labels, top, columns, counts, sums, n, logits.stride(0), above, k, rows, block)
    return sums.sum(dim=0, dtype=torch.float64), counts


def list_above(
    logits: Tensor, top: Tensor, rest: Tensor, counts: Tensor, above: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return samples, classes and probabilities of the others above a probability, in order, as they were counted."""
    n, k = logits.shape
    block, rows, programs = _shape_of(logits, _LIST_TILE)
    ends = counts.cumsum(0)
    sizes = (int(ends[-1]),)
    samples, classes = (torch.empty(sizes, dtype=torch.int32, device=logits.device) for _ in range(2))
    probabilities = torch.empty(sizes, device=logits.device)
    listed = (samples, classes, probabilities)
    with torch.cuda.device(logits.device):
        _list[(programs,)](logits, top, rest, counts, ends, *listed, n, logits.stride(0), above, k, rows, block)
    return listed


def _shape_of(logits: Tensor, tile: int) -> tuple[int, int, int]:
    """Return the classes and samples of a tile, and the number of programs."""
    block = triton.next_power_of_2(logits.shape[1])
    rows = max(1, tile // block)
    return block, rows, _PROGRAMS * torch.cuda.get_device_properties(logits.device).multi_processor_count


@triton.jit
def _tile(logits, start, n, stride, k, rows: tl.constexpr, block: tl.constexpr):
    """Load some samples; minus infinity beyond the classes."""
    row, column = start + tl.arange(0, rows), tl.arange(0, block)[None, :]
    places = row[:, None].to(tl.int64) * stride + column
    values = tl.load(logits + places, mask=(row[:, None] < n) & (column < k), other=-float("inf")).to(tl.float32)
    return row, column, values


@triton.jit
def _others(values, column, top):
    """Return the largest entry of every sample, and the others' exponentials."""
    highest = tl.max(values, 1)
    return highest, tl.where(column == top[:, None], 0.0, tl.exp(values - highest[:, None]))


@triton.jit
def _sum(
    logits, labels, top_out, columns_out, counts_out, sums_out,
    n, stride, above, k, rows: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    sums = tl.zeros((rows, block), tl.float32)
    for start in range(tl.program_id(0) * rows, n, tl.num_programs(0) * rows):
        row, column, values = _tile(logits, start, n, stride, k, rows, block)
        inside = row < n
        top = tl.argmax(values, 1, tie_break_left=True)
        highest, others = _others(values, column, top)
        rest = tl.sum(others, 1)
        total = rest + 1.0
        gaps = tl.where(others > 0, values - highest[:, None], 0.0)
        label = tl.load(labels + row, mask=inside, other=0)
        of_label = tl.load(logits + row.to(tl.int64) * stride + label, mask=inside, other=0.0).to(tl.float32)
        tl.store(top_out + row, top.to(tl.int64), mask=inside)
        place = columns_out + row
        tl.store(place, rest, mask=inside)
        tl.store(place + n, of_label - highest, mask=inside)
        tl.store(place + 2 * n, tl.sum(others * gaps, 1), mask=inside)
        tl.store(place + 3 * n, tl.sum(others * others, 1), mask=inside)
        tl.store(counts_out + row, tl.sum((others > (total * above)[:, None]).to(tl.int32), 1), mask=inside)
        sums += tl.where(inside[:, None], others / total[:, None], 0.0)
    column = tl.arange(0, block)
    tl.store(sums_out + tl.program_id(0) * k + column, tl.sum(sums, 0), mask=column < k)


@triton.jit
def _list(
    logits, top_in, rest_in, counts, ends, samples_out, classes_out, probabilities_out,
    n, stride, above, k, rows: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    for start in range(tl.program_id(0) * rows, n, tl.num_programs(0) * rows):
        own = start + tl.arange(0, rows)
        count = tl.load(counts + own, mask=own < n, other=0)
        if tl.sum(count, 0) > 0:
            row, column, values = _tile(logits, start, n, stride, k, rows, block)
            top = tl.load(top_in + row, mask=row < n, other=0)
            _, others = _others(values, column, top)
            # Not summed again: in another order, it might be another number than that by which others were counted.
            total = tl.load(rest_in + row, mask=row < n, other=0.0) + 1.0
            listed = (others > (total * above)[:, None]) & (row[:, None] < n)
            end = tl.load(ends + row, mask=row < n, other=0)
            place = (end - count)[:, None] + tl.cumsum(listed.to(tl.int32), 1) - 1
            tl.store(samples_out + place, tl.broadcast_to(row[:, None], (rows, block)), mask=listed)
            tl.store(classes_out + place, tl.broadcast_to(column, (rows, block)), mask=listed)
            tl.store(probabilities_out + place, others / total[:, None], mask=listed)

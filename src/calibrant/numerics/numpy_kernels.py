"""Operations on samples for which NumPy is faster than torch on a CPU, and the working precision of logits."""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

__all__ = [
    "argmax_rows",
    "column_products",
    "columns_first",
    "logaddexp",
    "max_of_few",
    "positions",
    "positions_above",
    "row_products",
    "row_sums",
    "run_ends",
    "sigmoid",
    "sort_in_place",
    "sum_columns",
    "working",
]


def working(values: Tensor) -> Tensor:
    """In float64 as they are, all else in float32: halves have too few digits, and whole numbers none after the point.

    Example:
        >>> working(torch.tensor([3, 1])).dtype
        torch.float32
    """
    return values if values.dtype == torch.float64 else values.float()


# Below this length torch does not divide a column among threads, either.
_WORTH_THREADS = 1 << 15


def argmax_rows(values: Tensor) -> Tensor:
    """The column of each row's first largest entry, (n, k) -> (n,)."""
    if values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64):
        return torch.from_numpy(values.numpy().argmax(axis=1))
    return values.argmax(dim=1)


def columns_first(values: Tensor, *, out: Tensor) -> Tensor:
    """The transpose, laid out anew in ``out``, on a CPU, (n, k) -> (k, n)."""
    rows, columns = values.numpy(), out.numpy()
    for start in range(0, len(rows), 8192):  # pieces that stay in the first cache
        columns[:, start : start + 8192] = rows[start : start + 8192].T
    return out


def max_of_few(columns: Tensor) -> tuple[Tensor, Tensor]:
    """Each row's largest entry and its class, the first on a tie, for k < 256 classes on a CPU, (k, n) -> (n,) each."""
    highest = columns.amax(dim=0)
    differs = np.not_equal(columns.numpy(), highest.numpy())
    # 255 where the entry is not the largest, else the class: the smallest of these is the first largest entry.
    number = np.arange(columns.shape[0], dtype=np.uint8)[:, None]
    first = (np.negative(differs.view(np.int8)).view(np.uint8) | number).min(axis=0)
    return highest, torch.from_numpy(first).long()


def positions_above(values: Tensor, threshold: Tensor) -> Tensor:
    """Flat positions of the entries that exceed the threshold (any shape that broadcasts)."""
    if values.device.type == "cpu":
        return torch.from_numpy(np.flatnonzero(np.greater(values.numpy(), threshold.numpy())))
    return positions(values > threshold)


def positions(mask: Tensor) -> Tensor:
    """Flat positions of the true entries."""
    if mask.device.type == "cpu":
        return torch.from_numpy(np.flatnonzero(mask.numpy()))
    return mask.flatten().nonzero().flatten()


def row_products(first: Tensor, second: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Sum of the products of each row of (n, k) with that of (n, k) or with the only one of (1, k), giving (n,)."""
    if first.device.type != "cpu":
        return torch.sum(first * second.to(first.device), dim=1, out=out)
    # On a CPU no third array is written on the way.
    out = first.new_empty(len(first)) if out is None else out
    return _sum_each_row("ij,ij->i", first, second if second.shape == first.shape else second.expand_as(first), out=out)


def column_products(first: Tensor, second: Tensor, *, out: Tensor) -> Tensor:
    """Sum of each row's products, where rows lie as columns, on a CPU, (k, n) -> (n,)."""
    return _sum_each_row("ji,ji->i", first, second, out=out)


def row_sums(values: Tensor, *, out: Tensor) -> Tensor:
    """Sum of each row, (n, k) -> (n,)."""
    if values.shape[0] == 1:  # which torch would divide among its threads if it is long
        return out.copy_(values.expand(2, -1).contiguous().sum(dim=1)[:1])
    return torch.sum(values, dim=1, out=out)


def _sum_each_row(formula: str, *values: Tensor, out: Tensor) -> Tensor:
    if out.shape[0] == 1:  # numpy would join the axes of a single row, and then add in another order than elsewhere
        pair = np.einsum(formula, *(value.numpy().repeat(2, axis=formula.index("i")) for value in values))
        return out.copy_(torch.from_numpy(pair[:1]))
    np.einsum(formula, *(value.numpy() for value in values), out=out.numpy())
    return out


def sum_columns(columns: Tensor, *, out: Tensor) -> Tensor:
    """Sum of each row's entries, which lie one column after another, on a CPU, (k, n) -> (n,), k >= 2.

    Plain additions of two columns at a time: these are rounded alike at every position, by whatever instructions.
    """
    if columns.shape[1] >= _WORTH_THREADS and torch.get_num_threads() > 1:
        torch.add(columns[0], columns[1], out=out)
        for column in columns[2:]:
            out.add_(column)
        return out
    arrays, total = columns.numpy(), out.numpy()
    np.add(arrays[0], arrays[1], out=total)
    for array in arrays[2:]:
        np.add(total, array, out=total)
    return out


def logaddexp(first: Tensor, second: Tensor) -> Tensor:
    """log(exp(a) + exp(b)) of every pair, of which one may be minus infinity; with slopes."""
    return torch.maximum(first, second) - logsigmoid((first - second).abs())


def sigmoid(log_odds: Tensor) -> Tensor:
    """1/(1 + exp(-x)) of every entry."""
    return torch.exp(-log_odds).add_(1).reciprocal_()


def run_ends(values: Tensor) -> Tensor:
    """Positions of the last of each run of equal neighbours, (n,) -> (runs,)."""
    last = torch.tensor([len(values) - 1], device=values.device)
    if values.device.type == "cpu":
        array = values.numpy()
        return torch.cat([torch.from_numpy(np.flatnonzero(np.not_equal(array[1:], array[:-1]))), last])
    return torch.cat([(values[1:] != values[:-1]).nonzero().flatten(), last])


def sort_in_place(values: Tensor) -> Tensor:
    """The numbers in rising order, without the index array that ``torch.sort`` makes on the way."""
    if values.device.type == "cpu":
        values.numpy().sort()
        return values
    return values.sort().values

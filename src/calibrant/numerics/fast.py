"""Row operations for which numpy is several times faster than torch on a CPU.

On other devices torch does them. All return torch tensors on the input's device.
"""

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "argmax_rows",
    "columns_first",
    "max_of_few",
    "positions",
    "positions_above",
    "row_products",
    "run_ends",
    "sort_in_place",
]


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


def row_products(first: Tensor, second: Tensor, *, out: Tensor) -> Tensor:
    """Sum of each row's products, on a CPU, (n, k) -> (n,): no third array is written on the way."""
    np.einsum("ij,ij->i", first.numpy(), second.numpy(), out=out.numpy())
    return out


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

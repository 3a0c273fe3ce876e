"""The rows that a network is asked about: of a loader those that it gives, in its order and its batches."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from calibrant.labelled_rows.batch_size import check_batch_size
from calibrant.labelled_rows.loader_rows import StreamRows
from calibrant.labelled_rows.open_rows import open_rows
from calibrant.labelled_rows.reading import moved, read_checked
from calibrant.labelled_rows.row_source import RowSource

__all__ = ["labelled_batches", "rows_as_given"]


def rows_as_given(data: object) -> RowSource:
    """Rows of ``(inputs, labels)`` or of a map-style ``Dataset`` by number, and of a ``DataLoader`` as they come.

    Raises:
        InputError: If it is none of them.
    """
    return StreamRows(data) if isinstance(data, DataLoader) else open_rows(data)


def labelled_batches(
    rows: RowSource, *, device: torch.device, batch_size: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """One pass: inputs (m, ...) as they are and labels (m,), both on the device, and positions (m,) on the CPU.

    Args:
        rows: Where they are read.
        device: Where they are wanted.
        batch_size: Rows at a time; a loader has its own.

    Raises:
        InputError: If there are no rows, or one cannot be read or has no class number.

    Example:
        >>> rows = rows_as_given((torch.zeros(5, 3), [0, 1, 1, 0, 2]))
        >>> [labels.tolist() for _, labels, _ in labelled_batches(rows, device=torch.device("cpu"), batch_size=3)]
        [[0, 1, 1], [0, 2]]
    """
    size = check_batch_size(batch_size)
    for inputs, labels, positions in read_checked(rows, None if rows.n_rows is None else size):
        yield moved(inputs, device), labels.to(device), positions

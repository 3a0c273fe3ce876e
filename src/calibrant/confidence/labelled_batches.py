"""The rows that a network is asked about: of a loader those that it gives, in its order and its batches."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from calibrant.inference import SampleSource, StreamedSamples, check_batch_size, open_samples, read_checked, to_device

__all__ = ["labelled_batches", "rows_as_given"]


def rows_as_given(data: object) -> SampleSource:
    """Rows of ``(inputs, labels)`` or of a map-style ``Dataset`` by number, and of a ``DataLoader`` as they come.

    Raises:
        InputError: If it is none of them.
    """
    return StreamedSamples(data) if isinstance(data, DataLoader) else open_samples(data)


def labelled_batches(
    rows: SampleSource, *, device: torch.device, batch_size: int
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
    for inputs, labels, positions in read_checked(rows, None if rows.n_samples is None else size):
        yield to_device(inputs, device), labels.to(device), positions

"""Which way of reading fits the data that a person has: tensors, a data set or a loader."""

from collections.abc import Iterable
from itertools import chain
from numbers import Integral
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Subset,
    TensorDataset,
    default_collate,
)

from calibrant.checks import as_tensor, check_class_numbers, check_same_length
from calibrant.errors import InputError
from calibrant.labelled_rows.loader_rows import LoaderRows, StreamRows, keeping_every_row, own_batch_size
from calibrant.labelled_rows.row_source import RowSource, TensorRows

__all__ = ["open_rows"]


def open_rows(data: object) -> RowSource:
    """Find how to read the data; no input is read yet.

    Args:
        data: A tuple (inputs, labels) of tensors or arrays, a map-style ``Dataset``, or a ``DataLoader``.

    Raises:
        InputError: If it is none of them, or its sampler gives a row twice.
    """
    if isinstance(data, DataLoader):
        return _of_loader(data)
    if isinstance(data, IterableDataset):
        raise InputError(
            f"an iterable data set must come in a DataLoader, which says how many rows are a batch; got "
            f"{type(data).__name__}. Pass DataLoader(data, batch_size=...)."
        )
    if isinstance(data, Dataset):
        return _of_dataset(DataLoader(data, batch_sampler=[]), torch.arange(_length(data)))
    if isinstance(data, tuple) and len(data) == 2:
        return _of_tensors(as_tensor(data[0], "inputs"), as_tensor(data[1], "labels"))
    got = f"a tuple of {len(data)}" if isinstance(data, tuple) else type(data).__name__
    raise InputError(
        f"data must be a tuple (inputs, labels), a Dataset or a DataLoader; got {got}. Pass both in one tuple."
    )


def _of_tensors(inputs: Tensor, labels: Tensor, rows: Tensor | None = None) -> TensorRows:
    if inputs.ndim == 0:
        raise InputError("inputs must be one input a row, shape (n, ...); got a single number.")
    check_same_length(inputs, "inputs", labels, "labels")
    return TensorRows(inputs, check_class_numbers(labels), rows)


def _of_loader(loader: DataLoader[Any]) -> RowSource:
    if type(loader).__iter__ is not DataLoader.__iter__:  # a class of its own, which may do more than load
        return StreamRows(loader)
    if isinstance(loader.dataset, IterableDataset):
        return StreamRows(keeping_every_row(loader))
    if loader.batch_sampler is None:  # the data set makes the batches
        return StreamRows(loader)
    return _of_dataset(loader, _drawn(loader))


def _of_dataset(loader: DataLoader[Any], rows: Tensor) -> RowSource:
    """Tensors stay tensors: item by item they would be read twenty times slower."""
    within: list[Subset[Any]] = []
    dataset = loader.dataset
    while type(dataset) is Subset:
        within.append(dataset)
        dataset = dataset.dataset
    if type(dataset) is not TensorDataset or len(dataset.tensors) != 2 or loader.collate_fn is not default_collate:
        return LoaderRows(loader, rows)
    places = rows
    for subset in within:
        places = torch.as_tensor(subset.indices, dtype=torch.int64)[places]
    inputs, labels = dataset.tensors
    places = places.where(places >= 0, places + len(labels))  # a subset may count from the end
    is_whole = torch.equal(places, torch.arange(len(labels)))
    source = _of_tensors(as_tensor(inputs, "inputs"), as_tensor(labels, "labels"), None if is_whole else places)
    source.own_batch_size = own_batch_size(loader)
    return source


def _drawn(loader: DataLoader[Any]) -> Tensor:
    """The rows that a loader's sampler gives, in ascending order."""
    n = _length(loader.dataset)
    batches = loader.batch_sampler
    sampler = batches.sampler if type(batches) is BatchSampler else None
    # Drawing a shuffle that is not wanted would move the person's random numbers.
    if type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == n:
        return torch.arange(n)
    drawn: set[int] = set()
    for key in chain.from_iterable(cast("Iterable[Any]", batches)) if sampler is None else sampler:
        row = key.item() if isinstance(key, Tensor) else key
        if not isinstance(row, Integral) or row in drawn:
            what = f"gave row {row} twice" if isinstance(row, Integral) else f"gave {row!r}"
            raise InputError(
                f"the loader's sampler must give the number of each row at most once; it {what}. Rows that count "
                "twice belong to both sides of a split: pass the data set, or a torch.utils.data.Subset of it."
            )
        drawn.add(int(row))
    return torch.tensor(sorted(drawn), dtype=torch.int64)


def _length(dataset: Dataset[Any]) -> int:
    try:
        return len(cast("Any", dataset))
    except (TypeError, NotImplementedError) as error:
        raise InputError(
            f"a data set must have a length, so that its rows can be read again by number; "
            f"{type(dataset).__name__} has none. Give it __len__, or make it an IterableDataset in a DataLoader."
        ) from error

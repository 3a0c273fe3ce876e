"""Labelled inputs as a person has them, in batches: tensors, a data set or a loader."""

from collections.abc import Iterator, Sequence, Sized
from typing import Any, final

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from calibrant.checks import as_tensor, check_at_least, check_class_numbers, check_same_length
from calibrant.errors import InputError, in_a_line

__all__ = ["LabelledRows"]


@final
class LabelledRows:
    """Pairs (inputs, labels), read in batches.

    Args:
        data: A tuple (inputs, labels) of tensors or arrays, inputs (n, ...) and labels (n,); a map-style ``Dataset`` of
            pairs (input, label), read in its order; or a ``DataLoader``, read as it comes, with its own batches.

    Raises:
        InputError: If it is none of them, or has no rows.

    Example:
        >>> rows = LabelledRows((torch.zeros(5, 3), [0, 1, 1, 0, 2]))
        >>> [labels.tolist() for _, labels in rows.batches(device="cpu", batch_size=3)]
        [[0, 1, 1], [0, 2]]
    """

    def __init__(self, data: object) -> None:
        self._loader = data if isinstance(data, DataLoader) else None
        self._dataset = None if isinstance(data, DataLoader) else _dataset(data)

    def check_numbered(self, purpose: str) -> None:
        """Rows that are read several times must be known by their numbers.

        Raises:
            InputError: If they come from a loader, whose order may change from pass to pass.
        """
        if self._dataset is None:
            raise InputError(
                f"{purpose} reads the rows several times, and needs them by number; got a DataLoader. Pass its data "
                "set, or (inputs, labels)."
            )

    def batches(
        self, chosen: Tensor | None = None, *, device: torch.device | str, batch_size: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """One pass: inputs (m, ...) as they are and labels (m,), int64, both on the device.

        Args:
            chosen: Numbers of rows, (c,), in the order wanted; None for all. Not of a loader.
            device: Where they are wanted.
            batch_size: Rows at a time; a loader has its own.

        Raises:
            InputError: If a batch is no such pair, or a row cannot be read.
        """
        check_at_least(batch_size, 1, "batch_size")
        came = 0
        for inputs, labels in self._pairs(chosen, batch_size):
            came += len(labels)
            if len(labels):
                yield inputs.to(device), check_class_numbers(labels).to(device)
        if not came:
            raise InputError("data must have at least one row; got none.")

    def _pairs(self, chosen: Tensor | None, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        dataset = self._dataset
        if type(dataset) is TensorDataset and len(dataset.tensors) == 2:
            # Item by item they would be read twenty times slower.
            inputs, labels = dataset.tensors
            order = torch.arange(len(labels)) if chosen is None else chosen.cpu()
            for part in order.split(batch_size):
                yield inputs[part.to(inputs.device)], labels[part.to(labels.device)]
            return
        if self._loader is not None:
            loader = self._loader
        else:
            numbers = range(len(_sized(dataset))) if chosen is None else chosen.tolist()
            # Its own generator, so that reading does not move the random numbers of the person's program.
            loader = DataLoader(
                dataset,  # type: ignore[arg-type]  # either this or the loader is there
                batch_size=batch_size,
                sampler=numbers,
                generator=torch.Generator(),
            )
        try:
            for batch in loader:
                yield _pair(batch)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"every row of the data must be readable; the data set or its loader raised {in_a_line(error)}. Mend "
                "that row, or leave it out."
            ) from error


def _dataset(data: object) -> Dataset[Any]:
    if isinstance(data, IterableDataset):
        raise InputError(
            f"an iterable data set must come in a DataLoader, which says how many rows are a batch; got "
            f"{type(data).__name__}. Pass DataLoader(data, batch_size=...)."
        )
    if isinstance(data, Dataset):
        _sized(data)
        return data
    if isinstance(data, tuple) and len(data) == 2:
        inputs, labels = as_tensor(data[0], "inputs"), as_tensor(data[1], "labels")
        if inputs.ndim == 0:
            raise InputError("inputs must be one input a row, shape (n, ...); got a single number.")
        check_same_length(inputs, "inputs", labels, "labels")
        return TensorDataset(inputs, check_class_numbers(labels))
    got = f"a tuple of {len(data)}" if isinstance(data, tuple) else type(data).__name__
    raise InputError(
        f"data must be a tuple (inputs, labels), a Dataset or a DataLoader; got {got}. Pass both in one tuple."
    )


def _sized(data: object) -> Sized:
    if not isinstance(data, Sized):
        raise InputError(f"a data set must have a length; {type(data).__name__} has none. Give it __len__.")
    return data


def _pair(batch: object) -> tuple[Tensor, Tensor]:
    if isinstance(batch, Sequence) and len(batch) == 2 and isinstance(batch[0], Tensor):
        inputs, labels = batch[0], as_tensor(batch[1], "labels")
        if inputs.ndim and inputs.shape[:1] == labels.shape[:1]:
            return inputs, labels
        got = f"shapes {tuple(inputs.shape)} and {tuple(labels.shape)}"
    else:
        inside = f" of {', '.join(type(one).__name__ for one in batch)}" if isinstance(batch, tuple | list) else ""
        got = f"{type(batch).__name__}{inside}"
    raise InputError(
        f"a batch must be a pair (inputs, labels) of as many rows each, shapes (m, ...) and (m,); got {got}. "
        "Give the loader a collate_fn that returns the pair."
    )

"""Readers of labelled samples: tensors, a map-style data set, a data loader or a stream, all read in batches."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias, cast, final

import numpy as np
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
from calibrant.errors import InputError, one_line

LabelledBatch: TypeAlias = tuple[Tensor, Tensor, Tensor]  # inputs (m, ...), labels (m,), positions (m,) on the CPU


class SampleSource(ABC):
    """Labelled samples that can be read repeatedly, in the same order at every pass."""

    own_batch_size: int | None = None  # of the user's loader; None if there is no loader, or it has none
    n_samples: int | None = None  # None for a stream, which shows its length and its batches only when it is read

    @abstractmethod
    def read(self, chosen: Tensor | None, batch_size: int | None) -> Iterator[LabelledBatch]:
        """Read one pass; the only check is that every batch is a pair of inputs and labels.

        ``chosen`` are positions, (m,) int64 on the CPU, in the order wanted; None for all. ``batch_size`` is the
        largest number of samples in a batch; None for a stream's own batches, else for one batch.
        """


def open_samples(data: object) -> SampleSource:
    """Choose the reader of a tuple (inputs, labels), a map-style ``Dataset`` or a ``DataLoader``; nothing is read."""
    if isinstance(data, DataLoader):
        return _open_loader(data)
    if isinstance(data, IterableDataset):
        raise InputError(
            f"an iterable data set must come in a DataLoader, which sets the batch size; got {type(data).__name__}. "
            "Pass DataLoader(data, batch_size=...)."
        )
    if isinstance(data, Dataset):
        return _open_dataset(DataLoader(data, batch_sampler=[]), torch.arange(_length(data)))
    if isinstance(data, tuple) and len(data) == 2:
        return _open_tensors(as_tensor(data[0], "inputs"), as_tensor(data[1], "labels"))
    got = f"a tuple of {len(data)}" if isinstance(data, tuple) else type(data).__name__
    raise InputError(
        f"data must be a tuple (inputs, labels), a Dataset or a DataLoader; got {got}. Pass both in one tuple."
    )


def _open_tensors(inputs: Tensor, labels: Tensor, indices: Tensor | None = None) -> "TensorSamples":
    if inputs.ndim == 0:
        raise InputError("inputs must have one input per sample, shape (n, ...); got a single number.")
    check_same_length(inputs, "inputs", labels, "labels")
    return TensorSamples(inputs, check_class_numbers(labels), indices)


def _open_loader(loader: DataLoader[Any]) -> SampleSource:
    if type(loader).__iter__ is not DataLoader.__iter__:  # a subclass, which may do more than load
        return StreamedSamples(loader)
    if isinstance(loader.dataset, IterableDataset):
        # The last batch may be smaller: no sample is dropped.
        return StreamedSamples(_rebuilt(loader, None, loader.generator) if loader.drop_last else loader)
    if loader.batch_sampler is None:  # the data set makes the batches
        return StreamedSamples(loader)
    return _open_dataset(loader, _sampled_indices(loader))


def _open_dataset(loader: DataLoader[Any], indices: Tensor) -> SampleSource:
    """Tensors stay tensors: reading them item by item takes twenty times as long."""
    subsets: list[Subset[Any]] = []
    dataset = loader.dataset
    while type(dataset) is Subset:
        subsets.append(dataset)
        dataset = dataset.dataset
    if type(dataset) is not TensorDataset or len(dataset.tensors) != 2 or loader.collate_fn is not default_collate:
        return LoaderSamples(loader, indices)
    for subset in subsets:
        indices = torch.as_tensor(subset.indices, dtype=torch.int64)[indices]
    inputs, labels = dataset.tensors
    indices = indices.where(indices >= 0, indices + len(labels))  # a subset may count from the end
    is_whole = torch.equal(indices, torch.arange(len(labels)))
    source = _open_tensors(as_tensor(inputs, "inputs"), as_tensor(labels, "labels"), None if is_whole else indices)
    source.own_batch_size = _batch_size_of(loader)
    return source


def _sampled_indices(loader: DataLoader[Any]) -> Tensor:
    """Return the indices that a loader's sampler gives, in ascending order."""
    n = _length(loader.dataset)
    batches = loader.batch_sampler
    sampler = batches.sampler if type(batches) is BatchSampler else None
    # Drawing a shuffle that is not used would advance the user's random state.
    if type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == n:
        return torch.arange(n)
    seen: set[int] = set()
    for key in chain.from_iterable(cast("Iterable[Any]", batches)) if sampler is None else sampler:
        index = key.item() if isinstance(key, Tensor) else key
        if not isinstance(index, Integral) or index in seen:
            what = f"gave index {index} twice" if isinstance(index, Integral) else f"gave {index!r}"
            raise InputError(
                f"the loader's sampler must give the index of each sample at most once; it {what}. A sample that "
                "counts twice ends up on both sides of a split: pass the data set, or a torch.utils.data.Subset of it."
            )
        seen.add(int(index))
    return torch.tensor(sorted(seen), dtype=torch.int64)


def _length(dataset: Dataset[Any]) -> int:
    try:
        return len(cast("Any", dataset))
    except (TypeError, NotImplementedError) as error:
        raise InputError(
            f"a data set must have a length, so that its samples can be read by index; {type(dataset).__name__} has "
            "none. Give it __len__, or make it an IterableDataset in a DataLoader."
        ) from error


@final
class TensorSamples(SampleSource):
    """Samples in memory, or those at ``indices``; a pass over all of them copies nothing."""

    def __init__(self, inputs: Tensor, labels: Tensor, indices: Tensor | None = None) -> None:
        self._inputs = inputs
        self._labels = labels.cpu() if indices is None else labels.cpu()[indices]
        self._indices = indices
        self.n_samples = len(self._labels)
        # Gathering would undo a channels-last layout, at three times the cost; gathering in memory order keeps it.
        in_memory_order = inputs.movedim(1, -1) if inputs.ndim > 1 else inputs
        self._channels_last = in_memory_order.is_contiguous() and not inputs.is_contiguous()
        self._gathered_from = in_memory_order if self._channels_last else inputs

    def read(self, chosen: Tensor | None, batch_size: int | None) -> Iterator[LabelledBatch]:
        n = len(self._labels)
        size = batch_size or n
        if chosen is None and self._indices is None:
            positions = torch.arange(n).split(size)
            yield from zip(self._inputs.split(size), self._labels.split(size), positions, strict=True)
            return
        wanted = torch.arange(n) if chosen is None else chosen
        indices = wanted if self._indices is None else self._indices[wanted]
        for part, index in zip(wanted.split(size), indices.to(self._inputs.device).split(size), strict=True):
            gathered = self._gathered_from.index_select(0, index)
            yield gathered.movedim(-1, 1) if self._channels_last else gathered, self._labels[part], part


@final
class LoaderSamples(SampleSource):
    """Samples of a map-style data set at ``indices``, read by the loader's workers and ``collate_fn`` in any order."""

    def __init__(self, loader: DataLoader[Any], indices: Tensor) -> None:
        self._loader = loader
        self._indices = indices
        self.n_samples = len(indices)
        self.own_batch_size = _batch_size_of(loader)
        # A generator of its own, so that reading does not advance the user's random state.
        self._generator = torch.Generator()
        # Persistent workers belong to one loader, whose order then changes from pass to pass.
        self._order: list[list[int]] = []
        self._kept = _rebuilt(loader, self._order, self._generator) if loader.persistent_workers else None
        self._is_reading = False

    def read(self, chosen: Tensor | None, batch_size: int | None) -> Iterator[LabelledBatch]:
        wanted = torch.arange(len(self._indices)) if chosen is None else chosen
        parts = wanted.split(batch_size or len(self._indices))
        with self._loader_over([self._indices[part].tolist() for part in parts]) as batches:
            for part, (inputs, labels) in zip(parts, _pairs(batches), strict=True):
                if len(inputs) != len(part):
                    raise InputError(
                        f"collate_fn must keep every sample; from {len(part)} it made {len(inputs)}. "
                        "Leave out unwanted samples with torch.utils.data.Subset."
                    )
                yield inputs, labels, part

    @contextmanager
    def _loader_over(self, order: list[list[int]]) -> Iterator[DataLoader[Any]]:
        # Persistent workers read one pass at a time; a second pass meanwhile gets workers of its own.
        if self._kept is None or self._is_reading:
            yield _rebuilt(self._loader, order, self._generator, persistent=False)
            return
        self._is_reading = True
        try:
            self._order[:] = order
            yield self._kept
        finally:
            self._is_reading = False


@final
class StreamedSamples(SampleSource):
    """Samples in the loader's own order and batches, such as those of an iterable data set; it restarts each pass."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loader = loader

    def read(self, chosen: Tensor | None, batch_size: int | None) -> Iterator[LabelledBatch]:
        is_chosen = None
        if chosen is not None:
            is_chosen = torch.zeros(int(chosen.max()) + 1, dtype=torch.bool)
            is_chosen[chosen] = True
        end = 0
        for pair in _pairs(self._loader):
            inputs, labels = pair
            start, end = end, end + len(inputs)
            positions = torch.arange(start, end)
            if is_chosen is not None:
                kept = is_chosen[start:end].nonzero()[:, 0]
                inputs, labels, positions = inputs[kept.to(inputs.device)], labels[kept], positions[kept]
            if len(positions):
                size = batch_size or len(positions)
                yield from zip(inputs.split(size), labels.split(size), positions.split(size), strict=True)
            if is_chosen is not None and end >= len(is_chosen):
                return


def _rebuilt(
    loader: DataLoader[Any],
    order: list[list[int]] | None,
    generator: torch.Generator | None,
    *,
    persistent: bool = True,
) -> DataLoader[Any]:
    """Return a loader with the same options, the given order, and no sample dropped."""
    return DataLoader(
        loader.dataset,
        batch_size=loader.batch_size if order is None else 1,
        batch_sampler=order,  # torch only iterates it
        collate_fn=_collate if loader.collate_fn is default_collate else loader.collate_fn,
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory and torch.cuda.is_available(),  # without a GPU, torch warns
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=persistent and loader.persistent_workers,
        generator=generator,
    )


def _batch_size_of(loader: DataLoader[Any]) -> int | None:
    size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
    return size if isinstance(size, int) else None


class _Refusal(NamedTuple):
    """Why samples cannot form a batch; an error raised in a worker would be buried in its traceback."""

    message: str


def _collate(items: list[Any]) -> Any:
    """Collate pairs (input, label) into one batch; a refusal instead of an error, which the main process raises."""
    try:
        return default_collate(items)
    except (RuntimeError, TypeError, KeyError) as error:
        # torch's message about ragged samples depends on whether a worker collates; the shapes do not.
        inputs = [item[0] for item in items if isinstance(item, Sequence) and item]
        shapes = list(dict.fromkeys(tuple(one.shape) for one in inputs if isinstance(one, Tensor)))
        got = f"shapes {shapes[0]} and {shapes[1]}" if len(shapes) > 1 else str(error).rstrip(".")
        return _Refusal(
            f"the samples of a data set must be pairs (input, label), the inputs tensors of one shape; got {got}. "
            "Give it a transform that makes such tensors, or a loader with a collate_fn."
        )


def _pairs(loader: DataLoader[Any]) -> Iterator[tuple[Tensor, Tensor]]:
    """Iterate the loader's batches as (inputs, labels on the CPU); any error of the data set becomes one sentence."""
    try:
        for batch in loader:
            yield _checked_pair(batch)
    except InputError:
        raise
    except Exception as error:
        if loader.num_workers:
            error.with_traceback(None)  # the traceback would keep the workers alive
        raise InputError(
            f"every sample of the data must be readable; the data set or its loader raised {one_line(error)}. Fix "
            "that sample, or leave it out."
        ) from error


def _checked_pair(batch: object) -> tuple[Tensor, Tensor]:
    if isinstance(batch, _Refusal):
        raise InputError(batch.message)
    if isinstance(batch, Sequence) and len(batch) == 2 and isinstance(batch[0], Tensor | np.ndarray):
        inputs, labels = as_tensor(batch[0], "inputs"), as_tensor(batch[1], "labels").cpu()
        if inputs.ndim and inputs.shape[:1] == labels.shape[:1]:
            return inputs, labels
        got = f"shapes {tuple(inputs.shape)} and {tuple(labels.shape)}"
    elif isinstance(batch, Mapping):
        got = f"a {type(batch).__name__} of {', '.join(map(str, batch))}"
    else:
        inside = f" of {', '.join(type(one).__name__ for one in batch)}" if isinstance(batch, tuple | list) else ""
        got = f"a {type(batch).__name__}{inside}"
    raise InputError(
        f"a batch must be a pair (inputs, labels) of equal length, shapes (m, ...) and (m,); got {got}. "
        "Give the loader a collate_fn that returns the pair."
    )

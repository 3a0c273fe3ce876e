"""Labelled samples, as tensors, a data set, a loader or a stream: read in batches, in one order, and checked."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias, cast, final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, Subset, TensorDataset
from torch.utils.data import default_collate as torch_collate

from calibrant.checks import as_tensor, check_at_least, check_class_numbers, check_same_length, first_not_finite
from calibrant.errors import InputError, Row, one_line

__all__ = ["LabelledInputs", "SampleSource", "labelled_batches", "sample_source", "to_device"]

_NUMBERS = 2**20  # in the inputs of a batch: 341 images of 3 x 32 x 32
_SAMPLES = 1024
_TIMES_ON_CUDA = 4  # small batches leave a GPU idle
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

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
        return TensorSamples(*data)
    got = f"a tuple of {len(data)}" if isinstance(data, tuple) else type(data).__name__
    raise InputError(f"data must be a tuple (inputs, labels), a Dataset or a DataLoader; got {got}. Pass one tuple.")


def _open_loader(loader: DataLoader[Any]) -> SampleSource:
    is_own = type(loader).__iter__ is not DataLoader.__iter__  # a subclass, which may do more than load
    if is_own or loader.batch_sampler is None:  # or the data set makes the batches
        return StreamedSamples(loader)
    if isinstance(loader.dataset, IterableDataset):
        # The last batch may be smaller: no sample is dropped.
        return StreamedSamples(_rebuilt(loader, None, loader.generator) if loader.drop_last else loader)
    return _open_dataset(loader, _sampled_indices(loader))


def _open_dataset(loader: DataLoader[Any], indices: Tensor) -> SampleSource:
    """Return a reader of a data set; a TensorDataset is read as tensors, twenty times as fast as item by item."""
    subsets: list[Subset[Any]] = []
    dataset = loader.dataset
    while type(dataset) is Subset:
        subsets.append(dataset)
        dataset = dataset.dataset
    if type(dataset) is not TensorDataset or len(dataset.tensors) != 2 or loader.collate_fn is not torch_collate:
        return LoaderSamples(loader, indices)
    for subset in subsets:
        indices = torch.as_tensor(subset.indices, dtype=torch.int64)[indices]
    n = len(dataset.tensors[1])
    indices = indices.where(indices >= 0, indices + n)  # a subset may count from the end
    is_whole = torch.equal(indices, torch.arange(n))
    source = TensorSamples(*dataset.tensors, indices=None if is_whole else indices)
    source.own_batch_size = _batch_size_of(loader)
    return source


def _sampled_indices(loader: DataLoader[Any]) -> Tensor:
    """Return the indices that a loader's sampler gives, in ascending order."""
    n, batches = _length(loader.dataset), loader.batch_sampler
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

    def __init__(self, inputs: object, labels: object, indices: Tensor | None = None) -> None:
        self._inputs, given, self._indices = as_tensor(inputs, "inputs"), as_tensor(labels, "labels"), indices
        if self._inputs.ndim == 0:
            raise InputError("inputs must have one input per sample, shape (n, ...); got a single number.")
        check_same_length(self._inputs, "inputs", given, "labels")
        self._labels = check_class_numbers(given).cpu()
        self._labels = self._labels if indices is None else self._labels[indices]
        self.n_samples = len(self._labels)
        # Gathering would undo a channels-last layout, at three times the cost; gathering in memory order keeps it.
        in_memory_order = self._inputs.movedim(1, -1) if self._inputs.ndim > 1 else self._inputs
        self._channels_last = in_memory_order.is_contiguous() and not self._inputs.is_contiguous()
        self._gathered_from = in_memory_order if self._channels_last else self._inputs

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
        self._loader, self._indices = loader, indices
        self.n_samples, self.own_batch_size = len(indices), _batch_size_of(loader)
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
        for inputs, labels in _pairs(self._loader):
            start, end = end, end + len(inputs)
            positions = torch.arange(start, end)
            if is_chosen is not None:
                kept = is_chosen[start:end].nonzero()[:, 0]
                inputs, labels, positions = inputs[kept.to(inputs.device)], labels[kept], positions[kept]  # noqa: PLW2901
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
        collate_fn=_collate if loader.collate_fn is torch_collate else loader.collate_fn,
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
    """Reason why samples cannot form a batch, raised in the main process without a worker's traceback."""

    message: str


def _collate(items: list[Any]) -> Any:
    """Collate pairs (input, label) into one batch; a refusal instead of an error, which the main process raises."""
    try:
        return torch_collate(items)
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


def check_batch_size(batch_size: object) -> int:
    """Return a batch size of at least 1 that torch can represent."""
    return min(check_at_least(batch_size, 1, "batch_size"), sys.maxsize)


def default_batch_size(input_shape: tuple[int, ...], device: torch.device) -> int:
    """Return how many samples hold about a million numbers, at most 1,024; four times as many on a GPU."""
    size = min(max(_NUMBERS // max(prod(input_shape), 1), 1), _SAMPLES)
    return size * (_TIMES_ON_CUDA if device.type == "cuda" else 1)


def to_device(inputs: Tensor, device: torch.device) -> Tensor:
    """Move inputs to the device, ready for gradients; inputs that are already there are not copied."""
    if inputs.is_inference() and not torch.is_inference_mode_enabled():
        inputs = inputs.clone()  # tensors made under inference_mode take no part in gradients
    if device.type != "cuda":  # only a copy to CUDA may run asynchronously
        return inputs.to(device)
    # From pinned memory the copy overlaps with the kernels of the batch before.
    return (inputs.pin_memory() if inputs.device.type == "cpu" else inputs).to(device, non_blocking=True)


def read_checked(source: SampleSource, batch_size: int | None) -> Iterator[LabelledBatch]:
    """Read all samples once, in batches, with labels checked and as int64; inputs are not checked."""
    is_empty, batches = True, iter(()) if source.n_samples == 0 else source.read(None, batch_size)
    for inputs, given, positions in batches:
        is_empty = False
        labels = check_class_numbers(given)
        below = (labels < 0).nonzero()
        if len(below):
            raise InputError(
                f"labels must be at least 0; got {int(labels[below[0]])} at {Row(int(positions[below[0]]))}. "
                "Remove samples without a label."
            )
        yield inputs, labels, positions
    if is_empty:
        raise InputError("data must have at least one sample; got none.")


def sample_source(data: object) -> SampleSource:
    """Open ``(inputs, labels)`` or a map-style ``Dataset``, read by number, or a ``DataLoader``, read in its order."""
    if isinstance(data, LabelledInputs):
        return data.source
    return StreamedSamples(data) if isinstance(data, DataLoader) else open_samples(data)


def labelled_batches(source: SampleSource, *, device: torch.device, batch_size: int) -> Iterator[LabelledBatch]:
    """Read all samples: inputs and checked labels on the device, positions on the CPU; a loader has its own batches."""
    size = check_batch_size(batch_size)
    for inputs, labels, positions in read_checked(source, None if source.n_samples is None else size):
        yield to_device(inputs, device), labels.to(device), positions


@final
@dataclass(frozen=True, eq=False)
class LabelledInputs:
    """Inputs and labels, read in batches and in a fixed order; made by ``of``.

    At most one batch of inputs is held in memory, unless the data are tensors. Labels are compared at every pass,
    inputs are not: with random augmentation, the fit is an average over the augmentations.
    """

    labels: Tensor  # (n,), int64 on the CPU, at least 0
    input_shape: tuple[int, ...]  # shape of one input, without the batch axis
    input_dtype: torch.dtype  # a floating-point type
    source: SampleSource
    batch_size: int | None  # default of a pass; None to derive it from the size of an input

    @classmethod
    def of(cls, data: object, *, batch_size: int | None = None) -> "LabelledInputs":
        """Read the user's data once and check them.

        Args:
            data: A tuple (inputs, labels) of tensors or arrays, inputs (n, ...) and labels (n,); a map-style
                ``Dataset`` of pairs (input, label); or a ``DataLoader``. A loader's workers and ``collate_fn`` are
                used, but not its order: every sample of its sampler is read once, in ascending order. A loader of an
                iterable data set is restarted at each pass, and must give the same labels each time.
            batch_size: Samples per batch. By default the loader's own, else as many as hold about a million numbers
                (four times that on a GPU). It changes speed and memory, not what is read.
        """
        if batch_size is not None:
            batch_size = check_batch_size(batch_size)
        if isinstance(data, cls):
            return replace(data, batch_size=batch_size or data.batch_size)
        source = open_samples(data)
        size = pass_size = batch_size or source.own_batch_size
        if pass_size is None and source.n_samples:
            first, _, _ = next(source.read(torch.zeros(1, dtype=torch.int64), 1))
            pass_size = default_batch_size(tuple(first.shape[1:]), first.device)
        shape: tuple[int, ...] = ()
        dtype, labels = torch.float32, list[Tensor]()
        for inputs, given, positions in read_checked(source, pass_size):
            if not labels:
                shape, dtype = tuple(inputs.shape[1:]), inputs.dtype
            _check_inputs(inputs, int(positions[0]))
            _check_alike(inputs, shape, dtype, int(positions[0]))
            labels.append(given)
        return cls(torch.cat(labels), shape, dtype, source, size)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def is_stream(self) -> bool:
        """Whether the source decides their order and batches, as an iterable data set does."""
        return self.source.n_samples is None

    def batches(
        self, chosen: Tensor | None = None, *, device: torch.device | str, batch_size: int | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Read one pass: inputs (m, ...) on the device, and their positions (m,), int64 on the CPU, in ``labels``.

        ``chosen`` are positions, (c,) int64 on the CPU, in the order wanted; an iterable data set gives them in its own
        order, each once. Where all samples are read and lie on the device already, inputs are views, which must not be
        changed. Data whose labels differ from those of the first pass are an error.
        """
        device, size = torch.device(device), self.batch_size if batch_size is None else check_batch_size(batch_size)
        if size is None and not self.is_stream:
            size = default_batch_size(self.input_shape, device)
        return self._pass(chosen, device, size)

    def _pass(self, chosen: Tensor | None, device: torch.device, size: int | None) -> Iterator[tuple[Tensor, Tensor]]:
        n_read, expected = 0, len(self) if chosen is None else len(chosen)
        if expected == 0:
            return
        for inputs, labels, positions in self.source.read(chosen, size):
            n_read += len(positions)
            if n_read > expected:
                break
            _check_alike(inputs, self.input_shape, self.input_dtype, int(positions[0]))
            first = self.labels[positions]
            if not torch.equal(first, labels.to(torch.int64)):
                place = int((first != labels).nonzero()[0])
                raise InputError(
                    "data must give the same samples in the same order at every pass; the label of sample "
                    f"{int(positions[place])} was {int(first[place])} and is now {int(labels[place])}. Turn shuffling "
                    "off, or give tensors."
                )
            yield to_device(inputs, device), positions
        if n_read != expected:
            got = f"{n_read:,} or more" if n_read > expected else f"{n_read:,}"
            raise InputError(
                f"data must give the same samples at every pass; expected {expected:,}, got {got}. A loader must be "
                "able to start again; or give tensors."
            )


def _check_alike(inputs: Tensor, shape: tuple[int, ...], dtype: torch.dtype, sample: int) -> None:
    """Check that inputs have the shape and type of the first."""
    if inputs.shape[1:] != shape:
        raise InputError(
            f"inputs must all have one shape, as one δ is added to all; got {shape} first and "
            f"{tuple(inputs.shape[1:])} at {Row(sample)}. Resize, crop or pad them alike."
        )
    if inputs.dtype != dtype:
        raise InputError(f"inputs must have one type; got {dtype}, and {inputs.dtype} at {Row(sample)}. Convert them.")


def _check_inputs(inputs: Tensor, sample: int) -> None:
    """Check that δ can be added to a batch of inputs, whose first has the number ``sample``."""
    if inputs.ndim < 2 or 0 in inputs.shape[1:]:
        raise InputError(
            f"inputs must have one input per sample, shape (n, ...), none of it empty; got shape "
            f"{tuple(inputs.shape)}. A single number per sample has shape (n, 1)."
        )
    if inputs.dtype == torch.uint8:
        raise InputError(
            "inputs must be floating-point numbers as the network takes them; got torch.uint8, as images are stored. "
            "Convert to float as in training: images.float() / 255, then its normalisation."
        )
    if inputs.dtype not in _DTYPES:
        advice = (
            "Convert them to float32, as the network takes them."
            if inputs.is_floating_point() or inputs.is_complex()
            else "δ has no meaning for tokens, categories and other whole numbers: give the network's embeddings of "
            "them as inputs."
        )
        raise InputError(f"inputs must be floating-point numbers of 16 to 64 bits; got {inputs.dtype}. {advice}")
    if (place := first_not_finite(inputs)) is not None:
        raise InputError(
            f"inputs must be finite; got {inputs[tuple(place)].item()} at {Row(sample + place[0])}, "
            f"entry {tuple(place[1:])}. Remove the sample, or fix its preprocessing."
        )

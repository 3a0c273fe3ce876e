"""Passes over labelled samples: batch sizes, checked labels, and calibration samples that δ can be added to."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import final

import torch
from torch import Tensor

from calibrant.checks import check_at_least, check_class_numbers, first_not_finite
from calibrant.errors import InputError
from calibrant.inference.loaders import LabelledBatch, SampleSource, open_samples

_NUMBERS = 2**20  # in the inputs of a batch: 341 images of 3 x 32 x 32
_SAMPLES = 1024
_TIMES_ON_CUDA = 4  # small batches leave a GPU idle
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


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
    is_empty = True
    for inputs, given, positions in source.read(None, batch_size) if source.n_samples != 0 else ():
        is_empty = False
        labels = check_class_numbers(given)
        below = (labels < 0).nonzero()
        if len(below):
            raise InputError(
                f"labels must be at least 0; got {int(labels[below[0]])} at row {int(positions[below[0]])}. "
                "Remove samples without a label."
            )
        yield inputs, labels, positions
    if is_empty:
        raise InputError("data must have at least one sample; got none.")


@final
@dataclass(frozen=True, eq=False)
class LabelledInputs:
    """Inputs and labels, read in batches and in a fixed order.

    Made by ``of``. At most one batch of inputs is held in memory, unless the data are tensors. Labels are compared at
    every pass, inputs are not: with random augmentation, the fit is an average over the augmentations.
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

        Raises:
            InputError: If there are no samples, inputs are not finite floating-point numbers of one shape, or labels
                are not whole numbers from 0.
        """
        if batch_size is not None:
            batch_size = check_batch_size(batch_size)
        if isinstance(data, cls):
            return replace(data, batch_size=data.batch_size if batch_size is None else batch_size)
        source = open_samples(data)
        size = source.own_batch_size if batch_size is None else batch_size
        pass_size = size
        if pass_size is None and source.n_samples:
            first, _, _ = next(source.read(torch.zeros(1, dtype=torch.int64), 1))
            pass_size = default_batch_size(tuple(first.shape[1:]), first.device)
        shape: tuple[int, ...] = ()
        dtype = torch.float32
        labels: list[Tensor] = []
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
        if batch_size is not None:
            batch_size = check_batch_size(batch_size)
        size = batch_size or self.batch_size
        if size is None and not self.is_stream:
            size = default_batch_size(self.input_shape, torch.device(device))
        return self._pass(chosen, torch.device(device), size)

    def _pass(self, chosen: Tensor | None, device: torch.device, size: int | None) -> Iterator[tuple[Tensor, Tensor]]:
        expected = len(self) if chosen is None else len(chosen)
        if expected == 0:
            return
        n_read = 0
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
            raise InputError(
                f"data must give the same samples at every pass; expected {expected:,}, got "
                f"{n_read:,}{' or more' * (n_read > expected)}. A loader must be able to start again; or give tensors."
            )


def _check_alike(inputs: Tensor, shape: tuple[int, ...], dtype: torch.dtype, sample: int) -> None:
    """Check that inputs have the shape and type of the first."""
    if inputs.shape[1:] != shape:
        raise InputError(
            f"inputs must all have one shape, as one δ is added to all; got {shape} at row 0 and "
            f"{tuple(inputs.shape[1:])} at row {sample}. Resize, crop or pad them alike."
        )
    if inputs.dtype != dtype:
        raise InputError(
            f"inputs must all have one type; got {dtype} first, and {inputs.dtype} at row {sample}. Convert them "
            "to one type."
        )


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
        advice = "Convert them to float32, as the network takes them."
        if not (inputs.is_floating_point() or inputs.is_complex()):
            advice = (
                "δ has no meaning for tokens, categories and other whole numbers: give the network's embeddings of "
                "them as inputs."
            )
        raise InputError(f"inputs must be floating-point numbers of 16 to 64 bits; got {inputs.dtype}. {advice}")
    place = first_not_finite(inputs)
    if place is not None:
        raise InputError(
            f"inputs must be finite; got {inputs[tuple(place)].item()} at row {sample + place[0]}, "
            f"entry {tuple(place[1:])}. Remove the sample, or fix its preprocessing."
        )

"""The first pass over calibration rows: all labels, and whether every input is one that δ can be added to."""

from dataclasses import dataclass
from math import prod
from typing import final

import torch
from torch import Tensor

from calibrant.clamping.rows.row_source import RowSource
from calibrant.errors import InputError

__all__ = ["FoundRows", "check_every_row", "check_one_shape", "default_batch_size"]

_NUMBERS = 2**20  # of inputs in a batch: 341 images of 3 x 32 x 32
_ROWS = 1024
_TIMES_ON_CUDA = 4  # small batches leave a GPU idle


@final
@dataclass(frozen=True, eq=False)
class FoundRows:
    """What all rows have in common, and their labels."""

    labels: Tensor  # (n,) int64 on the CPU
    input_shape: tuple[int, ...]
    input_dtype: torch.dtype


def check_every_row(source: RowSource, batch_size: int | None) -> FoundRows:
    """Read all rows once, holding a batch at a time.

    Args:
        source: Where they are read.
        batch_size: Rows at a time; None to choose it by the first input.

    Raises:
        InputError: If there are no rows, inputs are not finite floating-point numbers of one shape, or labels are not
            whole numbers from 0.
    """
    if batch_size is None and source.n_rows:
        first, _, _ = next(source.read(torch.zeros(1, dtype=torch.int64), 1))
        batch_size = default_batch_size(tuple(first.shape[1:]), first.device)
    shape: tuple[int, ...] = ()
    dtype = torch.float32
    labels: list[Tensor] = []
    for inputs, some, positions in source.read(None, batch_size) if source.n_rows != 0 else ():
        row = int(positions[0])
        if not labels:
            shape, dtype = tuple(inputs.shape[1:]), inputs.dtype
        _check_inputs(inputs, row)
        check_one_shape(inputs, shape, row)
        labels.append(_whole(some, row))
    if not labels:
        raise InputError("data must have at least one row; got none.")
    return FoundRows(torch.cat(labels), shape, dtype)


def check_one_shape(inputs: Tensor, shape: tuple[int, ...], row: int) -> None:
    """Every input has the shape of the first."""
    if inputs.shape[1:] != shape:
        raise InputError(
            f"inputs must all have one shape, as one δ is added to all; got {shape} at row 0 and "
            f"{tuple(inputs.shape[1:])} at row {row}. Resize, crop or pad them alike."
        )


def default_batch_size(input_shape: tuple[int, ...], device: torch.device) -> int:
    """Rows that hold about a million numbers, at most 1,024; on a GPU four times as many.

    Example:
        >>> default_batch_size((3, 32, 32), torch.device("cpu"))
        341
    """
    rows = min(max(_NUMBERS // max(prod(input_shape), 1), 1), _ROWS)
    return rows * (_TIMES_ON_CUDA if device.type == "cuda" else 1)


def _check_inputs(inputs: Tensor, row: int) -> None:
    if inputs.ndim < 2 or 0 in inputs.shape[1:]:
        raise InputError(
            f"inputs must be one input a row, shape (n, ...), none of it empty; got shape {tuple(inputs.shape)}. "
            "A single number a row has shape (n, 1)."
        )
    if inputs.dtype == torch.uint8:
        raise InputError(
            "inputs must be floating-point numbers as the network takes them; got torch.uint8, as images are stored. "
            "Convert to float as in training: images.float() / 255, then its normalisation."
        )
    if not inputs.is_floating_point():
        raise InputError(
            f"inputs must be floating-point numbers; got {inputs.dtype}. δ has no meaning for tokens, categories and "
            "other whole numbers, between which there is nothing: give the network's embeddings of them as inputs."
        )
    low, high = torch.aminmax(inputs)  # NaN passes through it, and nothing is written
    if torch.isfinite(low) and torch.isfinite(high):
        return
    place = (~torch.isfinite(inputs)).nonzero()[0].tolist()
    raise InputError(
        f"inputs must be finite; got {inputs[tuple(place)].item()} at row {row + place[0]}, "
        f"entry {tuple(place[1:])}. Remove the row, or mend what prepares it."
    )


def _whole(labels: Tensor, row: int) -> Tensor:
    if labels.ndim != 1:
        raise InputError(
            f"labels must be one number a row, shape (n,); got shape {tuple(labels.shape)}. "
            "If they are one-hot, pass labels.argmax(1)."
        )
    if labels.is_floating_point() or labels.is_complex():
        raise InputError(
            f"labels must be whole numbers of an integer type; got {labels.dtype}. "
            "If they are class numbers, convert them: labels.long()."
        )
    labels = labels.to("cpu", torch.int64)
    below = (labels < 0).nonzero()
    if len(below):
        raise InputError(
            f"labels must be at least 0; got {int(labels[below[0]])} at row {row + int(below[0])}. "
            "Remove rows without a label."
        )
    return labels

"""The first pass over calibration rows: all labels, and whether every input is one that δ can be added to."""

from dataclasses import dataclass
from math import prod
from typing import final

import torch
from torch import Tensor

from calibrant.checks import check_class_numbers, first_not_finite
from calibrant.clamping.rows.row_source import RowSource
from calibrant.errors import InputError

__all__ = ["FoundRows", "check_alike", "check_every_row", "default_batch_size"]

_NUMBERS = 2**20  # of inputs in a batch: 341 images of 3 x 32 x 32
_ROWS = 1024
_TIMES_ON_CUDA = 4  # small batches leave a GPU idle
_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


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
        check_alike(inputs, shape, dtype, row)
        labels.append(_whole(some, row))
    if not labels:
        raise InputError("data must have at least one row; got none.")
    return FoundRows(torch.cat(labels), shape, dtype)


def check_alike(inputs: Tensor, shape: tuple[int, ...], dtype: torch.dtype, row: int) -> None:
    """Every input has the shape and the type of the first."""
    if inputs.shape[1:] != shape:
        raise InputError(
            f"inputs must all have one shape, as one δ is added to all; got {shape} at row 0 and "
            f"{tuple(inputs.shape[1:])} at row {row}. Resize, crop or pad them alike."
        )
    if inputs.dtype != dtype:
        raise InputError(
            f"inputs must all have one type; got {dtype} first, and {inputs.dtype} at row {row}. Convert them alike."
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
    if inputs.dtype not in _TYPES:
        advice = "Convert them to float32, as the network takes them."
        if not (inputs.is_floating_point() or inputs.is_complex()):
            advice = (
                "δ has no meaning for tokens, categories and other whole numbers, between which there is nothing: give "
                "the network's embeddings of them as inputs."
            )
        raise InputError(f"inputs must be floating-point numbers of 16 to 64 bits; got {inputs.dtype}. {advice}")
    place = first_not_finite(inputs)
    if place is not None:
        raise InputError(
            f"inputs must be finite; got {inputs[tuple(place)].item()} at row {row + place[0]}, "
            f"entry {tuple(place[1:])}. Remove the row, or mend what prepares it."
        )


def _whole(labels: Tensor, row: int) -> Tensor:
    labels = check_class_numbers(labels).cpu()
    below = (labels < 0).nonzero()
    if len(below):
        raise InputError(
            f"labels must be at least 0; got {int(labels[below[0]])} at row {row + int(below[0])}. "
            "Remove rows without a label."
        )
    return labels

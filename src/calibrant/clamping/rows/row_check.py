"""The first pass over calibration rows: all labels, and whether every input is one that δ can be added to."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from calibrant.checks import first_not_finite
from calibrant.errors import InputError
from calibrant.labelled_rows.batch_size import default_batch_size
from calibrant.labelled_rows.reading import read_checked
from calibrant.labelled_rows.row_source import RowSource

__all__ = ["FoundRows", "check_alike", "check_every_row"]

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
    for inputs, some, positions in read_checked(source, batch_size):
        row = int(positions[0])
        if not labels:
            shape, dtype = tuple(inputs.shape[1:]), inputs.dtype
        _check_inputs(inputs, row)
        check_alike(inputs, shape, dtype, row)
        labels.append(some)
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

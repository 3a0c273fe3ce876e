"""Rows for what looks at inputs only, so that nobody has to make labels up."""

import numpy as np
import torch
from torch import Tensor

from calibrant.errors import InputError
from calibrant.inference import CalibrationSamples

__all__ = ["check_delta", "rows_of"]


def rows_of(data: object) -> CalibrationSamples:
    """Rows of data as a person has them; of inputs alone, (n, ...), the labels are zeros that nothing may look at.

    Raises:
        InputError: As :meth:`CalibrationSamples.of`.

    Example:
        >>> len(rows_of(torch.rand(5, 3))), len(rows_of((torch.rand(5, 3), torch.arange(5))))
        (5, 5)
    """
    if isinstance(data, Tensor | np.ndarray):
        return CalibrationSamples.of((data, torch.zeros(data.shape[:1], dtype=torch.int64)))
    return CalibrationSamples.of(data)


def check_delta(delta: Tensor, rows: CalibrationSamples) -> None:
    """δ can be added to each of the rows.

    Raises:
        InputError: If it has another shape.
    """
    if delta.shape != rows.input_shape:
        raise InputError(
            f"delta must have the shape of one input, {tuple(rows.input_shape)}, without a batch axis; "
            f"got {tuple(delta.shape)}."
        )

"""Rows for what looks at inputs only, so that nobody has to make labels up."""

import numpy as np
import torch
from torch import Tensor

from calibrant.inference import CalibrationSamples

__all__ = ["samples_of"]


def samples_of(data: object) -> CalibrationSamples:
    """Rows of data as a person has them; of inputs alone, (n, ...), the labels are zeros that nothing may look at.

    Raises:
        InputError: As :meth:`CalibrationSamples.of`.

    Example:
        >>> len(samples_of(torch.rand(5, 3))), len(samples_of((torch.rand(5, 3), torch.arange(5))))
        (5, 5)
    """
    if isinstance(data, Tensor | np.ndarray):
        return CalibrationSamples.of((data, torch.zeros(data.shape[:1], dtype=torch.int64)))
    return CalibrationSamples.of(data)

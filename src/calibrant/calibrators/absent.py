"""Classes that no calibration row belongs to: all that is known of them is that they are rare, and people are told."""

import warnings

import torch
from torch import Tensor

from calibrant.errors import CalibrantWarning
from calibrant.predictions import Predictions

__all__ = ["some_names", "warn_of_absent"]


def warn_of_absent(predictions: Predictions, name: str) -> None:
    """Say which classes have no calibration rows, if any.

    Args:
        predictions: The calibration rows.
        name: Of the method that will give them its smallest probability.
    """
    rows = torch.bincount(predictions.labels, minlength=predictions.n_classes)
    absent = (rows == 0).nonzero()[:, 0]
    if len(absent):
        warnings.warn(
            f"{name}: no calibration rows of class {some_names(absent, predictions)}; it gets the smallest probability "
            "that this many rows allow, whatever the network says. Add rows of it, or use a method of the top label.",
            CalibrantWarning,
            stacklevel=2,
        )


def some_names(classes: Tensor, predictions: Predictions, *, most: int = 5) -> str:
    """Names, or else numbers, of classes for a message; the first few if they are many."""
    names = predictions.class_names
    shown = ", ".join(names[j] if names else str(j) for j in classes[:most].tolist())
    return shown + (f" and {len(classes) - most} others" if len(classes) > most else "")

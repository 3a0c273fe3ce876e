"""Classes that no calibration row belongs to: all that is known of them is that they are rare, and people are told."""

import warnings

import torch
from torch import Tensor

from calibrant.errors import CalibrantWarning
from calibrant.predictions import Predictions

__all__ = ["absent_classes", "some_names", "warn_of_absent"]


def absent_classes(predictions: Predictions) -> Tensor:
    """Numbers of the classes that no row belongs to."""
    return (torch.bincount(predictions.labels, minlength=predictions.n_classes) == 0).nonzero()[:, 0]


def warn_of_absent(predictions: Predictions, name: str) -> None:
    """Say which classes have no calibration rows, if any.

    Args:
        predictions: The calibration rows.
        name: Of a method that learns something of each class by itself.
    """
    absent = absent_classes(predictions)
    if len(absent):
        warnings.warn(
            f"{name}: no calibration rows of class {some_names(absent, predictions)}; all that is learned of it is "
            "that it is rare, whatever the network says. Gather rows of it, or use a method that treats all classes "
            "alike, such as temperature or ets.",
            CalibrantWarning,
            stacklevel=2,
        )


def some_names(classes: Tensor, predictions: Predictions, *, most: int = 5) -> str:
    """Names, or else numbers, of classes for a message; the first few if they are many."""
    names = predictions.class_names
    shown = ", ".join(names[j] if names else str(j) for j in classes[:most].tolist())
    return shown + (f" and {len(classes) - most} others" if len(classes) > most else "")

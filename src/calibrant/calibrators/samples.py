"""Calibration samples: classes without any, folds, and log-odds computed as the map computes them."""

import warnings

import numpy as np
import torch
from torch import Tensor

from calibrant.errors import CalibrantWarning
from calibrant.maps import Curve, Map, OneVsRest, TwoClassMap
from calibrant.maps.curves import class_log_odds, predicted_log_odds
from calibrant.numerics.softmax import working
from calibrant.predictions import Predictions

__all__ = ["absent_classes", "class_by_class", "class_map", "deal_folds", "some_names", "top_label", "warn_of_absent"]


def absent_classes(predictions: Predictions) -> Tensor:
    """Numbers of the classes that no row belongs to."""
    return (torch.bincount(predictions.labels, minlength=predictions.n_classes) == 0).nonzero()[:, 0]


def warn_of_absent(predictions: Predictions, name: str) -> None:
    """Say which classes have no calibration rows, if any.

    Args:
        predictions: The calibration rows.
        name: Name of a method that fits every class separately.
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


def deal_folds(labels: Tensor, folds: int, seed: int) -> Tensor:
    """The fold of every row, (n,): at random, of even sizes.

    Not class by class: then the rows held out would have the very class counts that the map was fitted to, and methods
    with a shift for every class would be rewarded for learning the noise in them. (Of 100 classes and 1,000 rows,
    structured matrix scaling seemed .010 better than a temperature, and was .009 worse on new rows; dealt at random it
    was told to be .012 worse.) A class of few rows may therefore be absent from a fit, as it would be from a smaller
    sample.

    Args:
        labels: Shape (n,); only their number counts.
        folds: How many.
        seed: Random seed of the fold assignment.

    Example:
        >>> deal_folds(torch.zeros(7), 3, seed=0).bincount().tolist()
        [3, 2, 2]
    """
    fold = np.empty(len(labels), dtype=np.int64)
    fold[np.random.default_rng(seed).permutation(len(labels))] = np.arange(len(labels)) % folds
    return torch.from_numpy(fold).to(labels.device)


def top_label(predictions: Predictions) -> tuple[Tensor, Tensor]:
    """Log-odds of the predicted class and whether it is the label, (n,) each."""
    parts = [predicted_log_odds(working(block.logits)) for block in predictions.blocks()]
    predicted, log_odds = (torch.cat(column).squeeze(1) for column in zip(*parts, strict=True))
    return log_odds, predicted == predictions.labels


def class_by_class(predictions: Predictions) -> tuple[Tensor, range]:
    """Log-odds of every class against the rest, one class a line, (c, n), and which classes these are.

    Two classes are one problem, that of class 1, since the other is its mirror image.
    """
    if predictions.n_classes == 2:
        logits = working(predictions.logits)
        return (logits[:, 1] - logits[:, 0])[None], range(1, 2)
    log_odds = torch.cat([class_log_odds(working(block.logits)).T for block in predictions.blocks()], dim=1)
    return log_odds.contiguous(), range(predictions.n_classes)


def class_map(curve: Curve, n_classes: int) -> Map:
    """The map that applies a curve fitted on :func:`class_by_class`."""
    if n_classes == 2:
        return TwoClassMap(curve)
    return OneVsRest(curve, n_classes=n_classes)

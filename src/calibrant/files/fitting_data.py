"""What a map's file says about the rows it was fitted on: which they were, and the numbers on them before and after."""

import hashlib
from typing import Any

import torch
from torch import Tensor

from calibrant.errors import InputError
from calibrant.files.map_tree import AnyMap
from calibrant.maps import Map
from calibrant.metrics import ECE, NLL, Accuracy, Brier, Tally
from calibrant.numerics.neighbours import as_features
from calibrant.predictions import Predictions

__all__ = ["about_rows", "digest"]


def about_rows(fitted: AnyMap, fitted_on: Predictions | None, features: object) -> dict[str, Any]:
    """What they were, their fingerprint, and their numbers before and after; None each where the rows are not given.

    Raises:
        InputError: If they are not of the map's classes, not as many as it was fitted on, or lack features.
    """
    if fitted_on is None:
        return {"inputs": None, "digest": None, "before": None, "after": None}
    if fitted_on.n_classes != fitted.n_classes:
        raise InputError(f"fitted_on must have the map's {fitted.n_classes} classes; got {fitted_on.n_classes}.")
    if fitted.summary is not None and fitted.summary.rows != len(fitted_on):
        raise InputError(
            f"fitted_on must be the {fitted.summary.rows:,} rows that the map was fitted on; got {len(fitted_on):,}."
        )
    if isinstance(fitted, Map):
        seen, calibrated = None, fitted.transform(fitted_on)
    else:
        seen = as_features(features, rows=len(fitted_on))
        calibrated = fitted.transform(fitted_on, seen)
    return {
        "inputs": "probabilities" if fitted_on.normalised else "logits",
        "digest": digest(fitted_on, seen),
        "before": _numbers(fitted_on),
        "after": _numbers(calibrated),
    }


def digest(predictions: Predictions, features: Tensor | None = None) -> str:
    """A fingerprint of logits and labels, and of features; the same numbers in the same type and shape give the same.

    Example:
        >>> digest(Predictions.from_logits([[2.0, 0.0], [0.0, 1.0]], [0, 1]))[:20]
        'sha256:7156e019d9286'
    """
    taken = hashlib.sha256()
    for values in (predictions.logits, predictions.labels, features):
        if values is not None:
            taken.update(f"{values.dtype} {tuple(values.shape)} ".encode())
            taken.update(_memory(values))
    return f"sha256:{taken.hexdigest()}"


def _numbers(predictions: Predictions) -> dict[str, float]:
    return Tally([NLL(), Brier(), ECE(), Accuracy()]).add(predictions).values()


def _memory(values: Tensor) -> Any:
    return values.detach().cpu().contiguous().view(torch.uint8).numpy()

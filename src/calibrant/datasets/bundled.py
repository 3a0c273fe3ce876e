"""Predictions of a real network that come with the package: a ResNet-110 on CIFAR-100, to try things on.

Trained by this library with the cross-entropy for 120 epochs on 45,000 images (the protocol ``holdout``, seed 0):
overconfident, as such networks are. Logits are rounded to float16.
"""

from importlib.resources import files
from typing import NamedTuple

import numpy as np
import torch

from calibrant.datasets.cifar_classes import CIFAR100_CLASSES
from calibrant.predictions import Predictions

__all__ = ["BundledPredictions", "load_resnet110"]


class BundledPredictions(NamedTuple):
    """Predictions for the rows set apart to calibrate, and for those that judge."""

    calibration: Predictions  # 5,000 rows
    test: Predictions  # 10,000 rows


def load_resnet110() -> BundledPredictions:
    """Read them.

    Example:
        >>> calibration, test = load_resnet110()
        >>> len(calibration), len(test), calibration.n_classes
        (5000, 10000, 100)
    """
    with (files("calibrant.datasets") / "resnet110-cifar100.npz").open("rb") as stream, np.load(stream) as archive:
        parts = [(archive[f"{part}_logits"], archive[f"{part}_labels"]) for part in ("calibration", "test")]
    return BundledPredictions(
        *(
            Predictions.from_logits(
                torch.from_numpy(logits).float(), labels.astype(np.int64), class_names=CIFAR100_CLASSES
            )
            for logits, labels in parts
        )
    )

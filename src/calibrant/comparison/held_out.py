"""Check that calibration and test samples are different samples of the same distribution."""

import math
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from calibrant.errors import CalibrantWarning, InputError
from calibrant.predictions import Predictions

__all__ = ["Caution", "check_held_out", "samples_in_both", "z_between"]

# Share of the test samples that may be in both sets by chance.
_BY_CHANCE = 0.01
# Standard errors between the two accuracies; chance alone exceeds them in 6 of 100,000 cases.
_UNLIKE = 4.0


class Caution(NamedTuple):
    """A problem of the two sets that puts every result in doubt, and what it means."""

    problem: str
    consequence: str

    def __str__(self) -> str:
        return f"{self.problem}: {self.consequence}"


def check_held_out(calibration: Predictions, test: Predictions) -> tuple[Caution, ...]:
    """Refuse sets of different classes; warn if they share samples or differ in accuracy beyond chance.

    Returns:
        The warnings.

    Raises:
        InputError: If the classes differ in number or in name.
    """
    if calibration.n_classes != test.n_classes:
        raise InputError(
            "calibration and test samples must have the same classes; "
            f"got {calibration.n_classes} and {test.n_classes}. Take both from the same model."
        )
    names, others = calibration.class_names, test.class_names
    if names is not None and others is not None and names != others:
        place = next(i for i, pair in enumerate(zip(names, others, strict=True)) if pair[0] != pair[1])
        raise InputError(
            f"calibration and test samples must name the classes alike, in the same order; class {place} is "
            f"{names[place]!r} in one and {others[place]!r} in the other."
        )
    cautions = (*_shared(calibration, test), *_unlike(calibration, test))
    for caution in cautions:
        warnings.warn(str(caution), CalibrantWarning, stacklevel=3)
    return cautions


def _shared(calibration: Predictions, test: Predictions) -> Iterator[Caution]:
    common = samples_in_both(calibration, test)
    if common > _BY_CHANCE * len(test):
        yield Caution(
            f"{common:,} of {len(test):,} test samples are also calibration samples",
            "methods are evaluated on what they were fitted on, which favours flexible ones. Use different samples for "
            "one of the two.",
        )


def _unlike(calibration: Predictions, test: Predictions) -> Iterator[Caution]:
    right, other_right = (int(samples.correct.sum()) for samples in (calibration, test))
    if z_between(right, len(calibration), other_right, len(test)) > _UNLIKE:
        accuracy, other = right / len(calibration), other_right / len(test)
        yield Caution(
            "the two sets may not be drawn alike",
            f"accuracy is {accuracy:.1%} on the calibration samples and "
            f"{other:.1%} on the test samples, more than chance explains. Check that both are random parts of the same "
            "data, and that the network was trained on neither.",
        )


def z_between(right: int, n: int, other_right: int, other_n: int) -> float:
    """Return the number of standard errors between two shares.

    A success and a failure are added to each, which keeps a handful of samples from looking certain.

    Reference: Agresti and Caffo (2000), Simple and Effective Confidence Intervals for Proportions and Differences of
    Proportions Result from Adding Two Successes and Two Failures, The American Statistician.

    Example:
        >>> round(z_between(100, 100, 68, 100), 1), round(z_between(9900, 10000, 0, 1), 1)
        (6.6, 2.4)
    """
    first, second = (right + 1) / (n + 2), (other_right + 1) / (other_n + 2)
    variance = first * (1 - first) / (n + 2) + second * (1 - second) / (other_n + 2)
    return abs(first - second) / math.sqrt(variance)


def samples_in_both(first: Predictions, second: Predictions) -> int:
    """Count the samples of the second set (logits and label) that are also in the first.

    Samples that occur several times in their own set are not counted: such a model has few different outputs.

    Example:
        >>> samples = Predictions.from_logits([[0.5, 1.5], [2.5, 0.0], [3.5, 1.0]], [0, 1, 0])
        >>> samples_in_both(samples[:2], samples[1:])
        1
    """
    if first.n_classes != second.n_classes:
        return 0
    ours, theirs = (_occurring_once(_fingerprints(samples)) for samples in (first, second))
    return len(np.intersect1d(ours, theirs, assume_unique=True))


def _occurring_once(values: np.ndarray) -> np.ndarray:
    distinct, counts = np.unique(values, return_counts=True)
    return distinct[counts == 1]


def _fingerprints(samples: Predictions) -> np.ndarray:
    """One number per sample that no other sample has by chance."""
    direction = torch.rand(samples.n_classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parts = [block.logits.double() @ direction.to(samples.logits.device) for block in samples.blocks()]
    # Rounded, because products of matrices of other shapes differ in their last digits.
    return np.round((torch.cat(parts) + torch.pi * samples.labels).cpu().numpy(), 9)

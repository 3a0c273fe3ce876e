"""Numbers of a study with their intervals: over seeds, over test samples, or both."""

import math
from collections.abc import Sequence
from statistics import mean, stdev
from typing import NamedTuple, TypeAlias

__all__ = ["Estimate", "Number", "minus", "over_seeds", "pooled"]

# Two-sided 95 % quantiles of Student's t with 1 to 9 degrees of freedom; more are close to the normal one.
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
_NORMAL = 1.96


Estimate: TypeAlias = tuple[float, float, float]  # value and the ends of its interval over test samples


class Number(NamedTuple):
    """A number of a study with its 95 % interval, to be held against a published one.

    ``low`` and ``high`` are NaN where nothing was repeated or resampled.
    """

    value: float
    low: float
    high: float
    about: str  # what the interval covers, such as "5 seeds"


def over_seeds(values: Sequence[float]) -> Number:
    """Return the mean over seeds, with an interval by Student's t; without one of a single seed.

    Args:
        values: One per seed.
    """
    if len(values) < 2:
        return Number(values[0], math.nan, math.nan, "1 seed")
    half = _half(values)
    return Number(mean(values), mean(values) - half, mean(values) + half, f"{len(values)} seeds")


def pooled(estimates: Sequence[Sequence[float]]) -> Number:
    """Return the mean over seeds; its interval has the error of the test samples and that of the seeds.

    The seeds share the test samples, so their bootstrap intervals are averaged, not divided by the number of seeds.

    Args:
        estimates: Value, low and high of each seed; what follows them is not looked at.
    """
    value, low, high = (mean(column) for column in zip(*(estimate[:3] for estimate in estimates), strict=True))
    if len(estimates) == 1:
        return Number(value, low, high, "test samples")
    seeds = _half([estimate[0] for estimate in estimates])
    about = f"{len(estimates)} seeds and the test samples"
    return Number(value, value - math.hypot(value - low, seeds), value + math.hypot(high - value, seeds), about)


def minus(first: Estimate, second: Estimate) -> Estimate:
    """Return the difference of two networks' numbers, as if they were independent, which makes the interval wide."""
    value = first[0] - second[0]
    down = math.hypot(first[0] - first[1], second[2] - second[0])
    up = math.hypot(first[2] - first[0], second[0] - second[1])
    return value, value - down, value + up


def _half(values: Sequence[float]) -> float:
    """Return half the width of an interval for the mean."""
    places = len(values) - 2
    quantile = _STUDENT[places] if places < len(_STUDENT) else _NORMAL
    return quantile * stdev(values) / math.sqrt(len(values))

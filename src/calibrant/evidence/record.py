"""The record of a number and how sure we are of it."""

import math
from dataclasses import dataclass
from typing import final

from torch import Tensor

from calibrant.evidence.interval import p_value
from calibrant.metrics import Accuracy, Metric

__all__ = ["Estimate", "make_estimate"]

# With fewer rows than this a bootstrap pretends to know what it cannot.
_FEWEST = 10
# A calibration error whose p-value is above this may be zero.
_LEVEL = 0.05


@final
@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval; NaN bounds where there are too few rows to tell.

    For calibration errors also what a perfectly calibrated model with these confidences would score on average (the
    floor), and the share of such models that would score as much (p). The interval is one for the true error: it
    reaches down to 0 unless p is at most .05, and because the plain value is inflated by noise, it can lie below it.
    """

    value: float
    low: float
    high: float
    floor: float | None = None
    p: float | None = None


def make_estimate(
    metric: Metric, value: float, interval: tuple[float, float], n: int, null: tuple[float, Tensor] | None = None
) -> Estimate:
    """Put a value, its bootstrap interval and what calibrated models score together.

    Args:
        metric: What was measured.
        value: The number.
        interval: Its bounds.
        n: Rows behind it.
        null: For a calibration error, the number to compare with, and what calibrated models score, (r,).
    """
    low, high = interval if n >= _FEWEST or isinstance(metric, Accuracy) else (math.nan, math.nan)
    if null is None:
        return Estimate(value, low, high)
    observed, calibrated = null
    p = p_value(observed, calibrated)
    if metric.name != "skce":  # the only error that may be negative; no other can exceed 1
        low, high = min(max(low, 0.0), 1.0), min(max(high, 0.0), 1.0)
    return Estimate(value, min(low, 0.0) if p > _LEVEL else low, high, float(calibrated.mean()), p)

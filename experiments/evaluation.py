"""What the studies do alike with one network: calibrate it, and evaluate it with intervals."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from calibrant.calibrators import Calibrator, TemperatureScaling
from calibrant.evidence import Difference, Estimate, difference, estimate
from calibrant.metrics import Metric
from calibrant.predictions import Predictions, TopLabel

__all__ = ["calibrated_rows", "differences_of", "rounded", "with_intervals"]

RESAMPLES = 200


def calibrated_rows(
    logits: Mapping[str, Tensor],
    labels: Mapping[str, Tensor],
    methods: Mapping[str, Calibrator],
    metrics: Iterable[Metric],
) -> dict[str, Any]:
    """Return metrics of the test samples, uncalibrated (``none``) and by each method, differences, and temperatures.

    Args:
        logits: Of the parts ``calibration`` and ``test``.
        labels: Of the same.
        methods: Fitted on the calibration samples, by name.
        metrics: To evaluate.
    """
    calibration, test = (Predictions.from_logits(logits[part], labels[part]) for part in ("calibration", "test"))
    fitted: dict[str, Any] = {name: method.fit(calibration) for name, method in methods.items()}
    rows = {"none": test} | {name: each.transform(test) for name, each in fitted.items()}
    metrics = tuple(metrics)
    return {
        "T": {
            name: rounded(float(fitted[name].temperature))
            for name, method in methods.items()
            if isinstance(method, TemperatureScaling)
        },
        "rows": {name: with_intervals(row, metrics) for name, row in rows.items()},
        "differences": {name: differences_of(test, rows[name], metrics) for name in fitted},
    }


def with_intervals(predictions: Predictions | TopLabel, metrics: Iterable[Metric]) -> dict[str, list[float]]:
    """Return value, low and high of each metric, by 200 resamples."""
    return _in_short(estimate(predictions, metrics, resamples=RESAMPLES, seed=0))


def differences_of(
    baseline: Predictions | TopLabel, other: Predictions | TopLabel, metrics: Iterable[Metric]
) -> dict[str, list[float]]:
    """Return value, low and high of each metric's difference that has an interval, from the same draws for both."""
    found = difference(baseline, other, metrics, resamples=RESAMPLES, seed=0)
    return _in_short({name: each for name, each in found.items() if not math.isnan(each.low)})


def _in_short(found: Mapping[str, Estimate] | Mapping[str, Difference]) -> dict[str, list[float]]:
    return {name: [rounded(number) for number in (each.value, each.low, each.high)] for name, each in found.items()}


def rounded(value: float) -> float:
    """Return a number with six significant digits, as records have it."""
    return float(f"{value:.6g}")

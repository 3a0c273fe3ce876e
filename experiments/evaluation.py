"""What the studies do alike with one network: calibrate it, evaluate it with intervals, and count for figures."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from calibrant.calibrators import Calibrator, TemperatureScaling
from calibrant.evidence import Difference, Estimate, difference, estimate
from calibrant.metrics import ECE, Metric
from calibrant.metrics.states import Binned
from calibrant.predictions import Predictions, TopLabel
from calibrant.training.record import LearningTrace, learned_epochs

__all__ = [
    "calibrated_rows",
    "confidence_counts",
    "differences_of",
    "errors_by_size",
    "logits_by_learned_epoch",
    "reliability_bins",
    "rounded",
    "with_intervals",
]

RESAMPLES = 200
DRAWS = 5
PARTS = 4


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
    rows = {"none": test} | {name: map_.transform(test) for name, map_ in fitted.items()}
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
    differences = difference(baseline, other, metrics, resamples=RESAMPLES, seed=0)
    return _in_short({name: estimate for name, estimate in differences.items() if not math.isnan(estimate.low)})


def _in_short(estimates: Mapping[str, Estimate] | Mapping[str, Difference]) -> dict[str, list[float]]:
    return {
        name: [rounded(number) for number in (estimate.value, estimate.low, estimate.high)]
        for name, estimate in estimates.items()
    }


def reliability_bins(predictions: Predictions | TopLabel, n_bins: int = 15) -> list[list[float]]:
    """Return count, mean confidence and accuracy of each bin of equal width that has samples."""
    bins = Binned(n_bins)(predictions)
    rows = torch.stack([bins.count, bins.confidence / bins.count, bins.correct / bins.count], dim=1)
    return [[rounded(number) for number in row] for row in rows[bins.count > 0].tolist()]


def confidence_counts(predictions: Predictions, n_bins: int = 50) -> dict[str, list[int]]:
    """Return how many right and how many wrong predictions have their confidence in each bin of equal width."""
    bins = Binned(n_bins)(predictions)
    right, wrong = bins.correct.round().long(), (bins.count - bins.correct).round().long()
    return {"right": right.tolist(), "wrong": wrong.tolist()}


def errors_by_size(
    logits: Mapping[str, Tensor], labels: Mapping[str, Tensor], methods: Mapping[str, Calibrator], sizes: Iterable[int]
) -> dict[str, dict[str, list[float]]]:
    """Return the test ECE of each method fitted on as many calibration samples, of five draws.

    A draw is an order of the samples, the same for networks of one division, of which a size takes the first ones.

    Args:
        logits: Of the parts ``calibration`` and ``test``.
        labels: Of the same.
        methods: To fit, by name.
        sizes: Numbers of samples; those that the part does not have are left out.
    """
    test, n = Predictions.from_logits(logits["test"], labels["test"]), len(labels["calibration"])
    orders = [torch.randperm(n, generator=torch.Generator().manual_seed(draw)) for draw in range(DRAWS)]
    results: dict[str, dict[str, list[float]]] = {name: {} for name in methods}
    for size in (size for size in sizes if size < n):
        drawn = [
            Predictions.from_logits(*(values["calibration"][order[:size]] for values in (logits, labels)))
            for order in orders
        ]
        for name, method in methods.items():
            results[name][str(size)] = [rounded(float(ECE()(method.fit(few).transform(test)))) for few in drawn]
    return results


def logits_by_learned_epoch(trace: LearningTrace, n_bins: int = 40) -> dict[str, Any]:
    """Return histograms of the largest logits of training samples by the epoch since which each is right.

    Four parts of the samples that were learned, about as equal as whole epochs allow, and those that never were; the
    standard deviation of the largest logits; and the rank correlation of logit and epoch over all samples, negative
    where late ones have small logits. Both with 95 % intervals: of independent samples of one network.
    """
    epochs, logit = learned_epochs(trace.correct), trace.max_logit.double()
    never = epochs > len(trace.correct)
    low, high = float(logit.min()), float(logit.max())
    edges = torch.linspace(low, high if high > low else low + 1, n_bins + 1, dtype=torch.float64)
    parts = {
        f"{first} to {last}" if last > first else f"{first}": (epochs >= first) & (epochs <= last)
        for first, last in _parts(epochs[~never])
    }
    return {
        "edges": [rounded(edge) for edge in edges.tolist()],
        "parts": {
            name: torch.histogram(logit[inside], edges).hist.long().tolist()
            for name, inside in (parts | {"never": never}).items()
        },
        "spread": _with_ends(*_spread(logit)),
        "correlation": _with_ends(*_rank_correlation(epochs, logit)),
    }


def _parts(epochs: Tensor) -> list[tuple[int, int]]:
    """Return the first and last epoch of each part."""
    if not len(epochs):
        return []
    shares = torch.arange(1, PARTS + 1, dtype=torch.float64) / PARTS
    lasts = epochs.double().quantile(shares, interpolation="higher").unique().long().tolist()
    return list(zip([1, *(last + 1 for last in lasts[:-1])], lasts, strict=True))


def _with_ends(value: float, low: float, high: float) -> list[float]:
    return [rounded(value), rounded(low), rounded(high)]


def _spread(values: Tensor) -> tuple[float, float, float]:
    """Return the standard deviation, with the interval that the fourth moment gives it."""
    deviation = values - values.mean()
    variance = deviation.square().mean()
    if variance == 0:
        return 0.0, 0.0, 0.0
    kurtosis = float(deviation.pow(4).mean() / variance.square())
    spread = float(variance.sqrt())
    half = 1.96 * spread * math.sqrt((kurtosis - 1) / (4 * len(values)))
    return spread, spread - half, spread + half


def _rank_correlation(first: Tensor, second: Tensor) -> tuple[float, float, float]:
    """Return Spearman's correlation, with the interval by Fisher's z and the variance of Bonett and Wright (2000)."""
    from scipy.stats import rankdata

    ranks = torch.stack([torch.from_numpy(rankdata(values.numpy())) for values in (first, second)])
    r = float(ranks.corrcoef()[0, 1])
    if math.isnan(r):  # one of the two is constant
        return 0.0, -1.0, 1.0
    if abs(r) >= 1 or len(first) < 4:
        return r, r, r
    half = 1.96 * math.sqrt((1 + r * r / 2) / (len(first) - 3))
    return r, math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)


def rounded(value: float) -> float:
    """Return a number with six significant digits, as records have it."""
    return float(f"{value:.6g}")

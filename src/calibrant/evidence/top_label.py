"""Evidence about metrics of the top label: both resamplings work on ranked answers."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from calibrant.evidence.interval import bootstrap_interval, wilson_interval
from calibrant.evidence.record import Estimate, make_estimate
from calibrant.evidence.resample import bootstrap_ranked, calibrated_ranked
from calibrant.metrics import Accuracy, ECEL2Debiased, Metric
from calibrant.metrics.base import TopStatistic
from calibrant.metrics.ranking import Ranked
from calibrant.metrics.states import State
from calibrant.metrics.statistics import RankedRows
from calibrant.predictions import TopLabel

__all__ = ["estimate_top_label"]

# The resamplings work on at most this many distinct confidences.
_CELLS = 2048


def estimate_top_label(
    top: TopLabel, metrics: Sequence[Metric], values: dict[str, float], resamples: int, seed: int
) -> dict[str, Estimate]:
    """Evidence for metrics of confidence and correctness, from ranked answers."""
    sample = RankedRows()(top)
    ranked = sample.ranked.coarsened(_CELLS)
    errors = [metric for metric in metrics if metric.family == "calibration"]
    drawn = _values_of(metrics, bootstrap_ranked(ranked, resamples, seed))
    calibrated = _values_of(errors, calibrated_ranked(ranked, resamples, seed))
    found = {}
    for metric in metrics:
        statistic = _top(metric)
        # Compared with the value of the same coarsened answers, which can differ a little from the exact one.
        coarse = float(metric.value(statistic.of_ranked(ranked)))
        if isinstance(metric, Accuracy):
            interval = wilson_interval(float(ranked.right.sum()), len(top))
        elif isinstance(metric, ECEL2Debiased):
            low, high = metric.interval(metric.statistic.of_ranked(sample.ranked), z=1.96)
            interval = (float(low), float(high))
        else:
            interval = bootstrap_interval(coarse, drawn[metric.name], inflated=metric.family == "calibration")
        null = (coarse, calibrated[metric.name]) if metric.name in calibrated else None
        found[metric.name] = make_estimate(metric, values[metric.name], interval, len(top), null)
    return found


def _values_of(metrics: Sequence[Metric], chunks: Iterable[Ranked]) -> dict[str, Tensor]:
    """Each metric's values over all resamples; metrics with the same statistic share its state."""
    values: dict[str, list[Tensor]] = {metric.name: [] for metric in metrics}
    statistics = {_top(metric) for metric in metrics}
    for ranked in chunks:
        states: dict[TopStatistic, State | Ranked] = {s: s.of_ranked(ranked) for s in statistics}
        for metric in metrics:
            values[metric.name].append(metric.value(states[_top(metric)]))
    return {name: torch.cat(parts) for name, parts in values.items()}


def _top(metric: Metric) -> TopStatistic:
    assert isinstance(metric.statistic, TopStatistic)
    return metric.statistic

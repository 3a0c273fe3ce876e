"""Evidence about metrics of the top label: influences where every answer counts by its rank, resampling elsewhere."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from calibrant.evidence.groups import GroupDraws
from calibrant.evidence.influence import HAS_INFLUENCES, influence_interval
from calibrant.evidence.interval import bootstrap_interval, wilson_interval
from calibrant.evidence.record import Estimate, make_estimate
from calibrant.evidence.resample import bootstrap_ranked, calibrated_ranked
from calibrant.metrics import SECE, Accuracy, ECEL2Debiased, Metric
from calibrant.metrics.base import TopStatistic
from calibrant.metrics.ranking import Ranked, Sample
from calibrant.metrics.states import State
from calibrant.metrics.statistics import Binned, BinnedMoments, Gridded, RankedRows
from calibrant.predictions import TopLabel

__all__ = ["estimate_top_label"]

# The resamplings work on about this many distinct confidences at most: a draw of them says as much as one of all rows.
_CELLS = 512
# Fewest spacings of a draw's grid, and about how many of them the smooth error of a calibrated model spans.
_SPACINGS, _SPANNED = 128, 3.0


def estimate_top_label(
    top: TopLabel, metrics: Sequence[Metric], values: dict[str, float], draws: GroupDraws, seed: int
) -> dict[str, Estimate]:
    """Evidence for metrics of confidence and correctness, from ranked answers."""
    sample = RankedRows()(top)
    found = {}
    for metric in metrics:
        interval = _without_draws(metric, sample.ranked)
        if interval is not None and metric.family != "calibration":
            found[metric.name] = make_estimate(metric, values[metric.name], interval, len(top))
    drawn = [metric for metric in metrics if metric.name not in found]
    return found | _by_draws(sample, drawn, values, draws, seed) if drawn else found


def _without_draws(metric: Metric, ranked: Ranked) -> tuple[float, float] | None:
    """The interval of a metric for which there is a formula, None for the others."""
    if isinstance(metric, Accuracy):
        return wilson_interval(float(ranked.n_right), float(ranked.n))
    if isinstance(metric, ECEL2Debiased):
        low, high = metric.interval(metric.statistic.of_ranked(ranked), z=1.96)
        return float(low), float(high)
    return influence_interval(metric, ranked) if isinstance(metric, HAS_INFLUENCES) else None


def _by_draws(
    sample: Sample, metrics: Sequence[Metric], values: dict[str, float], draws: GroupDraws, seed: int
) -> dict[str, Estimate]:
    n, exact = len(sample.keys), sample.ranked
    noise = float((exact.total * exact.confidence * (1 - exact.confidence)).sum()) / n**2
    statistics = {metric.name: _statistic(metric, noise) for metric in metrics}
    bins = {s.n_bins for s in statistics.values() if isinstance(s, Binned | BinnedMoments)}
    cell = exact.cells(_CELLS, bins=sorted(bins))
    ranked, place = exact.joined(cell), cell[torch.searchsorted(exact.log_odds, sample.log_odds)]
    errors = [metric for metric in metrics if metric.family == "calibration"]
    formulas = {metric.name: _without_draws(metric, exact) for metric in metrics}
    resampled = [metric for metric in metrics if formulas[metric.name] is None]
    drawn = _values_of(resampled, statistics, bootstrap_ranked(ranked, place, sample.correct, draws))
    calibrated = _values_of(errors, statistics, calibrated_ranked(ranked, len(draws.weights), seed))
    found = {}
    for metric in metrics:
        # Compared with the value of the same coarsened answers, which can differ a little from the exact one.
        coarse = float(metric.value(statistics[metric.name].of_ranked(ranked)))
        interval = formulas[metric.name]
        if interval is None:
            interval = bootstrap_interval(coarse, drawn[metric.name], inflated=metric.family == "calibration")
        null = (coarse, calibrated[metric.name]) if metric.name in calibrated else None
        found[metric.name] = make_estimate(metric, values[metric.name], interval, n, null)
    return found


def _statistic(metric: Metric, noise: float) -> TopStatistic:
    """What a draw gathers for the metric: its own statistic, on no finer a grid than the noise calls for.

    Args:
        metric: The metric.
        noise: Variance of the mean correctness of calibrated answers.
    """
    statistic = metric.statistic
    assert isinstance(statistic, TopStatistic)
    if not isinstance(statistic, Gridded):
        return statistic
    # The smooth error of calibrated answers is about half the cube root of the noise (measured at three accuracies and
    # sizes, within a tenth); a metric of fixed width asks for a grid that is finer than that.
    narrowest = min(noise ** (1 / 3) / 2, metric.width if isinstance(metric, SECE) else 1.0)
    finest = statistic.nodes - 1
    spacings = 2 ** round(math.log2(min(_SPANNED / max(narrowest, 1e-9), finest)))  # a length that transforms fast
    return replace(statistic, nodes=min(max(spacings, _SPACINGS), finest) + 1)


def _values_of(
    metrics: Sequence[Metric], statistics: dict[str, TopStatistic], chunks: Iterable[Ranked]
) -> dict[str, Tensor]:
    """Each metric's values over all resamples; metrics with the same statistic share its state."""
    values: dict[str, list[Tensor]] = {metric.name: [] for metric in metrics}
    for ranked in chunks:
        wanted = {statistics[metric.name] for metric in metrics}
        states: dict[TopStatistic, State | Ranked] = {s: s.of_ranked(ranked) for s in wanted}
        for metric in metrics:
            values[metric.name].append(metric.value(states[statistics[metric.name]]))
    return {name: torch.cat(parts) for name, parts in values.items()}

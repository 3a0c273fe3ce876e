"""Evidence about metrics of all classes: the bootstrap works on the states of groups of rows."""

from collections.abc import Sequence

import numpy as np
import torch

from calibrant.evidence.groups import bootstrap_weights, deal, states_by_group
from calibrant.evidence.interval import bootstrap_interval
from calibrant.evidence.record import Estimate, make_estimate
from calibrant.evidence.resample import calibrated_labels
from calibrant.metrics import Metric
from calibrant.metrics.base import LabelStatistic, Statistic
from calibrant.metrics.states import State
from calibrant.predictions import Predictions

__all__ = ["estimate_all_classes"]

# Draws of calibrated labels, and the most rows used for them: each draw costs a pass over the rows.
_LABEL_DRAWS = 200
_LABEL_ROWS = 20_000


def estimate_all_classes(
    predictions: Predictions, metrics: Sequence[Metric], values: dict[str, float], resamples: int, seed: int
) -> dict[str, Estimate]:
    """Evidence for metrics of all classes: the bootstrap draws groups of rows, the null draws labels."""
    statistics = {metric.statistic for metric in metrics}
    rng = np.random.default_rng([seed, 3])
    group = deal(len(predictions), rng)
    groups = states_by_group(predictions, statistics, group)
    weights = bootstrap_weights(group, resamples, rng).to(predictions.logits.device)
    labelled = [statistic for statistic in statistics if isinstance(statistic, LabelStatistic)]
    subset, calibrated = _states_if_calibrated(predictions, labelled, seed) if labelled else (predictions, {})
    found = {}
    for metric in metrics:
        statistic = metric.statistic
        chunks = [metric.value(groups[statistic].reweighted(chunk)) for chunk in weights.split(100)]
        inflated = metric.family == "calibration"
        interval = bootstrap_interval(values[metric.name], torch.cat(chunks), inflated=inflated)
        null = None
        if statistic in calibrated:
            observed = values[metric.name] if subset is predictions else metric(subset)
            null = observed, torch.cat([metric.value(state) for state in calibrated[statistic]])
        found[metric.name] = make_estimate(metric, values[metric.name], interval, len(predictions), null)
    return found


def _states_if_calibrated(
    predictions: Predictions, statistics: Sequence[LabelStatistic], seed: int
) -> tuple[Predictions, dict[Statistic, list[State]]]:
    """The states under labels drawn from the model itself, and the rows they were drawn for."""
    rng = np.random.default_rng([seed, 4])
    subset = predictions
    if len(predictions) > _LABEL_ROWS:
        chosen = np.sort(rng.choice(len(predictions), _LABEL_ROWS, replace=False))
        subset = predictions[torch.from_numpy(chosen).to(predictions.logits.device)]
    labels = calibrated_labels(subset, _LABEL_DRAWS, rng).split(20)
    return subset, {statistic: [statistic.relabelled(subset, chunk) for chunk in labels] for statistic in statistics}

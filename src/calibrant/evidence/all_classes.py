"""Evidence about metrics of all classes: the bootstrap works on the states of groups of rows."""

import math
from collections.abc import Sequence
from functools import reduce
from operator import or_

import numpy as np
import torch

from calibrant.evidence.groups import GroupDraws, states_by_group
from calibrant.evidence.interval import bootstrap_interval
from calibrant.evidence.record import Estimate, make_estimate
from calibrant.evidence.resample import calibrated_labels
from calibrant.metrics import Metric
from calibrant.metrics.base import LabelStatistic, Statistic
from calibrant.metrics.states import Sums
from calibrant.predictions import Predictions

__all__ = ["estimate_all_classes"]

# States under calibrated labels, and the most samples used for them. Each part of the samples has its labels drawn a
# few times, and a state takes one of these for every part: it is as good a draw as one of all labels anew, but a pass
# over the samples serves many.
_STATES = 200
_PARTS, _LABELLINGS = 8, 40
_LABEL_ROWS = 20_000
# Numbers of the resampled states worked on at a time.
_BLOCK = 1 << 20


def estimate_all_classes(
    predictions: Predictions, metrics: Sequence[Metric], values: dict[str, float], draws: GroupDraws, seed: int
) -> dict[str, Estimate]:
    """Evidence for metrics of all classes: the bootstrap draws groups of rows, the null draws labels."""
    statistics = {metric.statistic for metric in metrics}
    groups = states_by_group(predictions, statistics, draws.group)
    weights = draws.weights.to(predictions.logits.device)
    labelled = [statistic for statistic in statistics if isinstance(statistic, LabelStatistic)]
    subset, calibrated = _states_if_calibrated(predictions, labelled, seed) if labelled else (predictions, {})
    found = {}
    for metric in metrics:
        statistic = metric.statistic
        numbers = sum(field[0].numel() for field in groups[statistic].tensors())
        chunks = weights.split(max(1, _BLOCK // numbers))
        inflated = metric.family == "calibration"
        interval = bootstrap_interval(
            values[metric.name],
            torch.cat([metric.value(groups[statistic].reweighted(chunk)) for chunk in chunks]),
            inflated=inflated,
        )
        null = None
        if statistic in calibrated:
            observed = values[metric.name] if subset is predictions else metric(subset)
            null = observed, metric.value(calibrated[statistic])
        found[metric.name] = make_estimate(metric, values[metric.name], interval, len(predictions), null)
    return found


def _states_if_calibrated(
    predictions: Predictions, statistics: Sequence[LabelStatistic], seed: int
) -> tuple[Predictions, dict[Statistic, Sums]]:
    """The states under labels drawn from the model itself, side by side, and the samples they were drawn for."""
    rng = np.random.default_rng([seed, 4])
    subset = predictions
    if len(predictions) > _LABEL_ROWS:
        chosen = np.sort(rng.choice(len(predictions), _LABEL_ROWS, replace=False))
        subset = predictions[torch.from_numpy(chosen).to(predictions.logits.device)]
    sums: dict[Statistic, Sums] = {}
    for part in subset.blocks(math.ceil(len(subset) / _PARTS)):
        part.softmax_rows(reduce(or_, (statistic.wanted for statistic in statistics)))  # one pass for all of them
        labels = calibrated_labels(part, _LABELLINGS, rng)
        picked = torch.from_numpy(rng.integers(_LABELLINGS, size=_STATES)).to(labels.device)
        for statistic in statistics:
            drawn = statistic.relabelled(part, labels)[picked]
            if statistic in sums:
                sums[statistic].add_(drawn)
            else:
                sums[statistic] = drawn
    return subset, sums

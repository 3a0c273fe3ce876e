"""Resampling of predictions: bootstrap, labels of a calibrated model, and metrics under many weightings.

The bootstrap shows how a number would have varied with other samples from the same source. Consistency resampling shows
what it would have been had the model been calibrated: labels are drawn from the model's own probabilities. Both work on
states: ranked confidences for metrics of the top label, sums over groups of samples for the rest.
"""

from collections.abc import Iterable, Iterator
from functools import reduce
from operator import or_
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from calibrant.metrics import Metric
from calibrant.metrics.base import Statistic, TopStatistic
from calibrant.metrics.ranking import Ranked
from calibrant.metrics.states import State, Sums
from calibrant.numerics.softmax import TOP_LABEL
from calibrant.predictions import Predictions, TopLabel

__all__ = [
    "GroupDraws",
    "bootstrap_ranked",
    "calibrated_labels",
    "calibrated_ranked",
    "draw_groups",
    "states_by_group",
    "values_of",
]

# Enough that a group more or less does not show in an interval, few enough that their states fit in memory.
_GROUPS = 256


class GroupDraws(NamedTuple):
    """Samples dealt into groups, and groups drawn with replacement."""

    group: Tensor  # (n,) the group of each sample
    weights: Tensor  # (resamples, groups) how often each is drawn, float64


def draw_groups(n: int, resamples: int, rng: np.random.Generator) -> GroupDraws:
    """Deal n samples into groups at random, each its own group if they are few, and draw groups with replacement."""
    groups = min(n, _GROUPS)
    group = np.empty(n, dtype=np.int64)
    group[rng.permutation(n)] = np.arange(n) % groups
    weights = rng.multinomial(groups, np.full(groups, 1 / groups), size=resamples)
    return GroupDraws(torch.from_numpy(group), torch.from_numpy(weights).double())


def states_by_group(samples: Predictions, statistics: Iterable[Statistic], group: Tensor) -> dict[Statistic, Sums]:
    """The states of the groups, side by side, from one pass over the logits."""
    statistics = tuple(statistics)
    samples.softmax_rows(reduce(or_, (statistic.wanted for statistic in statistics), TOP_LABEL))
    group = group.to(samples.logits.device)
    return {statistic: statistic.by_group(samples, group) for statistic in statistics}


# Resamples computed at a time, so that their states stay in cache.
_CHUNK = 250


def bootstrap_ranked(ranked: Ranked, place: Tensor, correct: Tensor, draws: GroupDraws) -> Iterator[Ranked]:
    """Draw ranked samples with replacement, some resamples at a time.

    Args:
        ranked: The ranked samples, m entries.
        place: The entry of every sample, (n,).
        correct: Whether each was right, (n,), bool.
        draws: Groups of the samples, and how often each group is drawn.
    """
    m, groups = len(ranked.confidence), draws.weights.shape[1]
    cell = (draws.group.to(place.device) * 2 + ~correct) * m + place
    # A draw holds about n samples: counts below 2**24 add up exactly in float32, in half the time.
    dtype = torch.float32 if len(correct) + groups < 2**24 else torch.float64
    counts = torch.bincount(cell, minlength=2 * groups * m).to(dtype).view(groups, 2 * m)
    for chunk in draws.weights.to(place.device, dtype).split(_CHUNK):
        right, wrong = (chunk @ counts).double().chunk(2, dim=1)
        yield Ranked(ranked.log_odds, ranked.confidence, right, wrong)


def calibrated_ranked(ranked: Ranked, resamples: int, seed: int) -> Iterator[Ranked]:
    """Draw correctness from the confidences, some resamples at a time."""
    rng = np.random.default_rng([seed, 2])
    total, confidence = ranked.total.long().tolist(), ranked.confidence.double().clamp(0, 1).tolist()
    # Entry by entry: the setup of a binomial in numpy serves all draws of it.
    drawn = np.stack([rng.binomial(n, p, size=resamples) for n, p in zip(total, confidence, strict=True)], axis=1)
    for right in torch.from_numpy(drawn).to(ranked.right.device, torch.float64).split(_CHUNK):
        yield Ranked(ranked.log_odds, ranked.confidence, right, ranked.total - right, shared_total=ranked.total)


def calibrated_labels(block: Predictions, resamples: int, rng: np.random.Generator) -> Tensor:
    """Draw labels from the predicted probabilities, (resamples, n)."""
    cumulative = block.probs.double().cumsum(dim=1)
    # Scaled by the last entry, which rounding leaves a hair off one: no draw can fall past the last class.
    drawn = torch.from_numpy(rng.random((len(block), resamples))).to(cumulative.device) * cumulative[:, -1:]
    return torch.searchsorted(cumulative, drawn, right=True).clamp_(max=block.n_classes - 1).T


# Numbers computed at a time.
_BLOCK = 1 << 22


def values_of(
    samples: Predictions | TopLabel, metrics: tuple[Metric, ...], group: Tensor, weights: Tensor
) -> dict[str, Tensor]:
    """Compute each metric under each line of weights, (lines,), on the CPU, from one pass over the samples.

    Args:
        samples: The predictions.
        metrics: Metrics to compute.
        group: The group of every sample, (n,).
        weights: How often each group counts, (lines, groups).
    """
    statistics = {metric.statistic for metric in metrics}
    values: dict[str, list[Tensor]] = {metric.name: [] for metric in metrics}
    for state_of in _reweighted(samples, statistics, group, weights):
        for metric in metrics:
            values[metric.name].append(metric.value(state_of[metric.statistic]))
    return {name: torch.cat(parts).cpu() for name, parts in values.items()}


def _reweighted(
    samples: Predictions | TopLabel, statistics: set[Statistic], group: Tensor, weights: Tensor
) -> Iterable[dict[Statistic, State | Ranked]]:
    """States of the weighted samples, some lines of weights at a time."""
    device = samples.top.confidence.device
    order = samples.top.log_odds.argsort()
    log_odds, confidence = samples.top.log_odds[order], samples.top.confidence[order]
    correct, line_up = samples.top.correct[order].double(), group.to(device)[order]
    others = [statistic for statistic in statistics if not isinstance(statistic, TopStatistic)]
    sums = states_by_group(samples, others, group) if isinstance(samples, Predictions) else {}
    for chunk in weights.to(device).split(max(1, _BLOCK // len(samples))):
        of_row = chunk[:, line_up]
        ranked = _join_ties(Ranked(log_odds, confidence, of_row * correct, of_row * (1 - correct)))
        yield {s: s.of_ranked(ranked) if isinstance(s, TopStatistic) else sums[s].reweighted(chunk) for s in statistics}


def _join_ties(ranked: Ranked) -> Ranked:
    """Join samples of equal log-odds into one entry."""
    distinct, index = ranked.log_odds.unique_consecutive(return_inverse=True)
    if len(distinct) == len(ranked.log_odds):
        return ranked
    shape = (*ranked.right.shape[:-1], len(distinct))
    right, wrong = (torch.zeros(shape, dtype=torch.float64, device=index.device).index_add_(-1, index, mass)
                    for mass in (ranked.right, ranked.wrong))  # fmt: skip
    confidence = torch.zeros(len(distinct), dtype=torch.float64, device=index.device)
    confidence.scatter_(0, index, ranked.confidence)
    return Ranked(distinct, confidence, right, wrong)

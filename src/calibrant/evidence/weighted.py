"""Metrics under many weightings of the same rows, from one pass over them."""

from collections.abc import Iterable

import torch
from torch import Tensor

from calibrant.evidence.groups import states_by_group
from calibrant.metrics import Metric
from calibrant.metrics.base import Statistic, TopStatistic
from calibrant.metrics.ranking import Ranked
from calibrant.metrics.states import State
from calibrant.predictions import Predictions, TopLabel

__all__ = ["values_of"]

# Numbers worked on at a time.
_BLOCK = 1 << 22


def values_of(
    rows: Predictions | TopLabel, metrics: tuple[Metric, ...], group: Tensor, weights: Tensor
) -> dict[str, Tensor]:
    """Each metric under each line of weights, (lines,), on the CPU.

    Args:
        rows: The rows.
        metrics: What to measure.
        group: The group of every row, (n,).
        weights: How often each group counts, (lines, groups).
    """
    statistics = {metric.statistic for metric in metrics}
    found: dict[str, list[Tensor]] = {metric.name: [] for metric in metrics}
    for state_of in _reweighted(rows, statistics, group, weights):
        for metric in metrics:
            found[metric.name].append(metric.value(state_of[metric.statistic]))
    return {name: torch.cat(parts).cpu() for name, parts in found.items()}


def _reweighted(
    rows: Predictions | TopLabel, statistics: set[Statistic], group: Tensor, weights: Tensor
) -> Iterable[dict[Statistic, State | Ranked]]:
    """States of the weighted rows, some lines of weights at a time."""
    device = rows.top.confidence.device
    order = rows.top.log_odds.argsort()
    log_odds, confidence = rows.top.log_odds[order], rows.top.confidence[order]
    correct, line_up = rows.top.correct[order].double(), group.to(device)[order]
    others = [statistic for statistic in statistics if not isinstance(statistic, TopStatistic)]
    sums = states_by_group(rows, others, group) if isinstance(rows, Predictions) else {}
    for chunk in weights.to(device).split(max(1, _BLOCK // len(rows))):
        of_row = chunk[:, line_up]
        ranked = _join_ties(Ranked(log_odds, confidence, of_row * correct, of_row * (1 - correct)))
        yield {s: s.of_ranked(ranked) if isinstance(s, TopStatistic) else sums[s].reweighted(chunk) for s in statistics}


def _join_ties(ranked: Ranked) -> Ranked:
    """Rows of equal log-odds as one entry."""
    distinct, index = ranked.log_odds.unique_consecutive(return_inverse=True)
    if len(distinct) == len(ranked.log_odds):
        return ranked
    shape = (*ranked.right.shape[:-1], len(distinct))
    right, wrong = (torch.zeros(shape, dtype=torch.float64, device=index.device).index_add_(-1, index, mass)
                    for mass in (ranked.right, ranked.wrong))  # fmt: skip
    confidence = torch.zeros(len(distinct), dtype=torch.float64, device=index.device)
    confidence.scatter_(0, index, ranked.confidence)
    return Ranked(distinct, confidence, right, wrong)

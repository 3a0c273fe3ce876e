"""Two sets of predictions for the same labels: is one better, and how sure is that?"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from calibrant.errors import InputError
from calibrant.evidence.groups import bootstrap_weights, deal, states_by_group
from calibrant.evidence.interval import bootstrap_interval
from calibrant.metrics import Metric
from calibrant.metrics.base import Statistic, TopStatistic
from calibrant.metrics.ranking import Ranked
from calibrant.metrics.states import State
from calibrant.predictions import Predictions, TopLabel

__all__ = ["Difference", "compare"]

# Numbers worked on at a time.
_BLOCK = 1 << 22


@final
@dataclass(frozen=True)
class Difference:
    """The first number, the second, and second minus first with its 95 % interval and two-sided p-value."""

    first: float
    second: float
    difference: float
    low: float
    high: float
    p: float


def compare(
    first: Predictions | TopLabel,
    second: Predictions | TopLabel,
    metrics: Iterable[Metric],
    *,
    resamples: int = 500,
    seed: int = 0,
) -> dict[str, Difference]:
    """Paired bootstrap of the difference of each metric, second minus first.

    Both sets must describe the same rows in the same order. Rows are drawn for both at once, so what is common to both
    (hard rows, easy rows) cancels, and small differences can be told from noise.

    Raises:
        InputError: If the sets differ in length, in labels, or in kind.

    Example:
        >>> from calibrant.metrics import NLL
        >>> logits, labels = torch.randn(500, 3, generator=torch.manual_seed(0)), torch.zeros(500, dtype=torch.int64)
        >>> found = compare(Predictions(3 * logits, labels), Predictions(logits, labels), [NLL()])["nll"]
        >>> found.high < 0, found.p < 0.01
        (True, True)
    """
    _check_pair(first, second)
    metrics = tuple(metrics)
    rng = np.random.default_rng([seed, 5])
    group = deal(len(first), rng)
    weights = bootstrap_weights(group, resamples, rng)
    # The first line has every row once: its values are the plain ones.
    weights = torch.cat([torch.ones_like(weights[:1]), weights])
    values = [_values(rows, metrics, group, weights) for rows in (first, second)]
    return {m.name: _difference(m, values[0][m.name], values[1][m.name]) for m in metrics}


def _check_pair(first: Predictions | TopLabel, second: Predictions | TopLabel) -> None:
    if type(first) is not type(second):
        raise InputError("both sets must be of one kind; got predictions over classes and a top-label table.")
    if len(first) != len(second):
        raise InputError(f"both sets must describe the same rows; got {len(first)} and {len(second)} rows.")
    if isinstance(first, Predictions) and isinstance(second, Predictions):
        differ = (first.labels.cpu() != second.labels.cpu()).nonzero()
        if differ.numel():
            row = int(differ[0])
            raise InputError(
                f"both sets must have the same labels in the same order; row {row} has {int(first.labels[row])} and "
                f"{int(second.labels[row])} ({differ.numel()} rows differ). Sort both by the same key first."
            )


def _difference(metric: Metric, first: Tensor, second: Tensor) -> Difference:
    change = second - first
    value, drawn = float(change[0]), change[1:][~change[1:].isnan()]
    if not drawn.numel():
        return Difference(float(first[0]), float(second[0]), value, math.nan, math.nan, math.nan)
    inflated = metric.family == "calibration"
    low, high = bootstrap_interval(value, drawn, inflated=inflated)
    centred = drawn - 2 * (drawn.mean() - value) if inflated else drawn
    side = min(int((centred <= 0).sum()), int((centred >= 0).sum()))
    return Difference(float(first[0]), float(second[0]), value, low, high, min(1.0, 2 * (side + 1) / (len(drawn) + 1)))


def _values(
    rows: Predictions | TopLabel, metrics: tuple[Metric, ...], group: Tensor, weights: Tensor
) -> dict[str, Tensor]:
    """Each metric under each line of weights, (resamples + 1,)."""
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

"""Metrics over time from the states of days or weeks, and a test of every one whether they changed."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from statistics import NormalDist
from typing import final

import numpy as np
import torch
from torch import Tensor

from calibrant.catalogue import metrics as known_metrics
from calibrant.errors import FileError, InputError, without_our_warnings
from calibrant.evidence.estimates import Estimate
from calibrant.metrics import Metric
from calibrant.metrics.states import Average, Averaged, Ranked, TopStatistic
from calibrant.scale.evaluation import estimate_state
from calibrant.scale.shards import Plan, Shard
from calibrant.scale.state import Design, EvaluationState, sample_keys
from calibrant.slices import check_few_values

DEFAULT_METRICS = ("ece", "accuracy", "nll")
LEVEL = 0.05
_DRAWS = 400  # divisions of the samples at random, whose mean and spread the test reads


@final
@dataclass(frozen=True)
class Change:
    """A metric of one period against those before it, since the last change."""

    difference: float
    z: float  # in standard deviations of what chance alone gives
    p: float  # of this look alone
    level: float  # below which p shows a change, so that all looks together are wrong with probability .05

    @property
    def is_shown(self) -> bool:
        return self.p < self.level


@final
@dataclass(frozen=True)
class Period:
    """One state: its name, number of samples, metrics, and how they differ from those before; the first does not."""

    name: str
    n: int
    metrics: dict[str, Estimate]
    changes: dict[str, Change]


@final
@dataclass(frozen=True)
class Trend:
    """Metrics over time."""

    periods: list[Period]
    metrics: tuple[str, ...]
    resamples: int
    seed: int

    def changed(self, metric: str) -> list[Period]:
        """Return the periods in which a metric changed."""
        return [period for period in self.periods if metric in period.changes and period.changes[metric].is_shown]

    def worse(self, period: Period) -> list[str]:
        """Return the metrics that became worse in a period."""
        shown = {name: change.difference for name, change in period.changes.items() if change.is_shown}
        return [name for name, change in shown.items() if (change > 0) == known_metrics[name].lower_is_better]


def measure_trend(
    states: Mapping[str, EvaluationState],
    *,
    metrics: Sequence[str] = (),
    resamples: int = 1000,
    progress: Callable[[str], None] = lambda _: None,
) -> Trend:
    """Measure metrics in every state, in their order, and test each whether it differs from those before.

    The samples before are those since the last change. A metric of the top label is compared with what it would be if
    the samples of both were divided at random into as many: this accounts for the bias of calibration errors, which is
    larger where there are fewer samples. Averages over samples are compared by their standard errors. The j-th look may
    be wrong with probability .05 / (j (j + 1)), divided by the number of metrics, which is .05 for any number of looks.

    Example:
        >>> measure_trend({})
        Traceback (most recent call last):
        calibrant.errors.InputError: a trend must have at least two periods; got 0.
    """
    if len(states) < 2:
        raise InputError(f"a trend must have at least two periods; got {len(states)}.")
    first_name, first = next(iter(states.items()))
    chosen = _chosen(first, metrics)
    before = {metric.name: deepcopy(first) for metric in chosen}
    periods: list[Period] = []
    for look, (name, state) in enumerate(states.items()):
        progress(f"measuring {name}")
        if not state.n:
            raise InputError(f"every state of a trend must hold samples; {name} holds none. Leave it out.")
        if different := first.design.difference(state.design):
            raise FileError(f"{name} must be gathered as {first_name} was; it has {different}.")
        changes = {}
        for metric in chosen if look else ():
            level = LEVEL / (look * (look + 1) * len(chosen))
            changes[metric.name] = _change(metric, before[metric.name], state, level, seed=look)
            if changes[metric.name].is_shown:
                before[metric.name] = deepcopy(state)
            else:
                before[metric.name].merge(state)
        estimates = estimate_state(state, state.sample.predictions, chosen, resamples=resamples)
        periods.append(Period(name, state.n, estimates, changes))
    return Trend(periods, tuple(metric.name for metric in chosen), resamples, first.design.seed)


def states_by(
    column: str, shards: Sequence[Shard], plan: Plan, *, n_bins: int = 15, seed: int = 0
) -> dict[str, EvaluationState]:
    """Gather a state of the samples of every value of a column, as if they were files of their own of the same name.

    Values with numbers in them, such as dates, are in the order of these; others as they first come.
    """
    states, seen, design = dict[str, EvaluationState](), Counter[tuple[str, str]](), None
    for shard in shards:
        plan.check(shard)
    for task in plan.tasks(shards):
        for batch in plan.batches(task):
            words, shard = batch.columns[column], task.shard
            design = design or Design.of(batch.samples, n_bins=n_bins, seed=seed)
            design.check(batch.samples, shard.path)
            for code in dict.fromkeys(words.codes.tolist()):
                rows, period = (words.codes == code).nonzero()[:, 0], words.distinct[code]
                keys = sample_keys(seed, shard.name, seen[shard.name, period], len(rows))
                seen[shard.name, period] += len(rows)
                if period not in states:
                    check_few_values(column, len(states) + 1)
                    states[period] = EvaluationState(design)
                samples = batch.samples[rows]
                if samples.weights is None or bool(samples.weights.any()):
                    with without_our_warnings():
                        states[period].add(samples, keys)
    if "missing" in states:
        raise InputError(f"{column!r} must have a value for every sample; {states['missing'].n:,} have none.")
    return {period: states[period] for period in in_time_order(states)}


def in_time_order(names: Iterable[str]) -> list[str]:
    """Return names in the order of the numbers in them, decimal ones by their value; others as they are given.

    Example:
        >>> in_time_order(["day10", "day9"]), in_time_order(["2.5", "2.25"]), in_time_order(["Mon", "Fri"])
        (['day9', 'day10'], ['2.25', '2.5'], ['Mon', 'Fri'])
    """
    names = list(names)
    if all(_DECIMAL.fullmatch(name) for name in names):
        return sorted(names, key=float)
    if not all(re.search(r"\d", name) for name in names):
        return names
    return sorted(names, key=lambda name: [int(part) if part.isdigit() else part for part in _NUMBERS.split(name)])


_DECIMAL, _NUMBERS = re.compile(r"-?\d+(\.\d+)?"), re.compile(r"(\d+)")


def _chosen(state: EvaluationState, names: Sequence[str]) -> list[Metric]:
    """Return the metrics of these names that sums tell, or the usual ones."""
    known = {m.name: m for m in state.metrics if isinstance(m.statistic, TopStatistic | Averaged)}
    wanted = dict.fromkeys(names or (name for name in DEFAULT_METRICS if name in known))
    for name in wanted:
        if name not in known:
            raise InputError(f"a metric of a trend must be one of {', '.join(known)}; got {name!r}.")
    return [known[name] for name in wanted]


def _change(metric: Metric, before: EvaluationState, now: EvaluationState, level: float, *, seed: int) -> Change:
    if isinstance(metric.statistic, TopStatistic):
        difference, expected, spread = _divided_at_random(metric, metric.statistic, before, now, seed)
    else:
        (first, first_error), (second, second_error) = (_mean(metric, state) for state in (before, now))
        difference, expected, spread = second - first, 0.0, math.hypot(first_error, second_error)
    if math.isnan(difference) or not spread:
        return Change(difference, 0.0, 1.0, level)
    z = (difference - expected) / spread
    return Change(difference, z, 2 * NormalDist().cdf(-abs(z)), level)


def _divided_at_random(
    metric: Metric, statistic: TopStatistic, before: EvaluationState, now: EvaluationState, seed: int
) -> tuple[float, float, float]:
    """Return how much a metric differs, and mean and spread of that where samples are divided at random."""
    parts = [_counts(state) for state in (before, now)]
    (first, _), (second, _) = parts
    both = first + second
    seen = both.sum(0) > 0
    both = both[:, seen]
    confidence = sum(part for _, part in parts)[seen] / both.sum(0)  # type: ignore[index]
    log_odds = (confidence / (1 - confidence).clamp(min=1e-300)).log()
    rng = np.random.default_rng([seed, 5])
    whole = np.floor(both.numpy() + (rng.random(both.shape) if now.design.weighted else 0.0)).astype(np.int64)
    share = float(second.sum() / both.sum())
    drawn = torch.from_numpy(rng.binomial(whole, share, size=(_DRAWS, *whole.shape))).double()
    rest = torch.from_numpy(whole).double() - drawn

    def value(counts: Tensor) -> Tensor:  # (..., 2, levels)
        right, wrong = counts.unbind(-2)
        return metric.value(statistic.of_ranked(Ranked(log_odds, confidence, right, wrong)))

    chance = value(drawn) - value(rest)
    chance = chance[~chance.isnan()]
    difference = float(value(second[:, seen]) - value(first[:, seen]))
    return (difference, float(chance.mean()), float(chance.std())) if len(chance) > 1 else (difference, 0.0, 0.0)


def _counts(state: EvaluationState) -> tuple[Tensor, Tensor]:
    """Return the right and wrong samples at every level, (2, levels), and their summed confidence; effective ones."""
    counts, confidence = state.sums["level.mass"].sum(0), state.sums["level.confidence"]
    if not state.design.weighted:
        return counts, confidence
    worth = counts.sum() / state.sums["level.squares"].sum()  # effective samples of a unit of weight
    return counts * worth, confidence * worth


def _mean(metric: Metric, state: EvaluationState) -> tuple[float, float]:
    """Return an average over samples, and its standard error by the spread of the groups of samples."""
    groups = state.group_states()[metric.statistic]
    assert isinstance(groups, Average)
    total, count = groups.total.sum(), groups.count.sum()
    residual = groups.total - groups.count * (total / count)
    return float(total / count), float(residual.square().sum().sqrt() / count)

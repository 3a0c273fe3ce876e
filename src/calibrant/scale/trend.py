"""Metrics over time from the states of days or weeks, and a test of every one whether they changed.

Of two classes, calibration errors and ``risk_auroc`` are of the probability of the positive class, as in other reports.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import cast, final

import numpy as np
import torch
from scipy.special import gammaincc
from torch import Tensor

from calibrant.errors import FileError, InputError, without_our_warnings
from calibrant.evidence import Estimate, is_of_risk
from calibrant.evidence.risk import RISK_AUROC
from calibrant.metrics import Metric
from calibrant.metrics.states import Averaged, Ranked, TopStatistic
from calibrant.numerics.binning import sums_by
from calibrant.predictions import OF_CORRECTNESS
from calibrant.scale.evaluation import estimate_risks_of_state, estimate_state
from calibrant.scale.risk import ranked_at_means
from calibrant.scale.shards import Plan, Shard
from calibrant.scale.state import Design, EvaluationState, sample_keys
from calibrant.slices import MISSING, check_few_values

DEFAULT_METRICS = ("ece", "accuracy", "nll")
OF_TWO_CLASSES = ("ece", "risk_auroc", "nll")  # the same where there are two
LEVEL = 0.05
_LEVELS = 4096  # of a probability, as of a confidence, when samples are divided at random
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
    """Metrics over time, by name."""

    periods: list[Period]
    metrics: dict[str, Metric]
    resamples: int
    seed: int
    of_risk: frozenset[str] = frozenset()  # metrics of the probability of the second of two classes
    positive: str | None = None  # name of that class

    def changed(self, metric: str) -> list[Period]:
        """Return the periods in which a metric changed."""
        return [period for period in self.periods if metric in period.changes and period.changes[metric].is_shown]

    def levels(self, metric: str) -> list[float]:
        """Return the mean of a metric since its last change, until the next one, in every period."""
        changed = [self.periods.index(period) for period in self.changed(metric)]
        levels: list[float] = []
        for start, end in itertools.pairwise([0, *changed, len(self.periods)]):
            since = self.periods[start:end]
            total = sum(period.n * period.metrics[metric].value for period in since)
            levels += [total / sum(period.n for period in since)] * len(since)
        return levels

    def worse(self, period: Period) -> list[str]:
        """Return the metrics that became worse in a period."""
        shown = {name: change.difference for name, change in period.changes.items() if change.is_shown}
        return [name for name, change in shown.items() if (change > 0) == self.metrics[name].lower_is_better]


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
    larger where there are fewer samples. So are averages, by the moments of all samples together. The j-th look may be
    wrong with probability .05 / (j (j + 1)), divided by the number of metrics, which is .05 for any number of looks.
    """
    if len(states) < 2:
        raise InputError(f"a trend must have at least two periods; got {len(states)}.")
    first_name, first = next(iter(states.items()))
    chosen = _chosen(first, metrics)
    of_two, of_answers = first.design.classes == 2, first.design.class_names == OF_CORRECTNESS
    risks = {name for name, one in chosen.items() if name == RISK_AUROC or is_of_risk(one, of_answers=of_answers)}
    of_risk = frozenset(risks if of_two else ())
    before = {metric: deepcopy(first) for metric in chosen}
    periods: list[Period] = []
    for look, (name, state) in enumerate(states.items()):
        progress(f"measuring {name}")
        if not state.n:
            raise InputError(f"every state of a trend must hold samples; {name} holds none. Leave it out.")
        if different := first.design.difference(state.design):
            raise FileError(f"{name} must be gathered as {first_name} was; it has {different}.")
        changes, tested = {}, chosen if look else {}  # the first period has none before it
        for of, metric in tested.items():
            level = LEVEL / (look * (look + 1) * len(chosen))
            changes[of] = _change(metric, before[of], state, level, seed=look, of_risk=of in of_risk)
            if changes[of].is_shown:
                before[of] = deepcopy(state)
            else:
                before[of].merge(state)
        sample, rest = state.sample.predictions, [metric for of, metric in chosen.items() if of != RISK_AUROC]
        estimates = estimate_state(state, sample, rest, resamples=resamples)
        if RISK_AUROC in chosen:
            estimates[RISK_AUROC] = estimate_risks_of_state(state, sample, [chosen[RISK_AUROC]], resamples=resamples)[
                "auroc"
            ]
        periods.append(Period(name, state.n, {of: estimates[of] for of in chosen}, changes))
    positive = (first.design.class_names or (None, None))[1] if of_risk else None
    return Trend(periods, chosen, resamples, first.design.seed, of_risk, positive)


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
    if MISSING in states:
        raise InputError(f"{column!r} must have a value for every sample; {states[MISSING].n:,} have none.")
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


def _chosen(state: EvaluationState, names: Sequence[str]) -> dict[str, Metric]:
    """Return the metrics of these names that sums tell, or the usual ones."""
    known = {m.name: m for m in state.metrics if isinstance(m.statistic, TopStatistic | Averaged)}
    if state.design.classes == 2:
        known[RISK_AUROC] = known["auroc"]
    usual = OF_TWO_CLASSES if state.design.classes == 2 else DEFAULT_METRICS
    wanted = dict.fromkeys(names or (name for name in usual if name in known))
    if unknown := [name for name in wanted if name not in known]:
        raise InputError(f"a metric of a trend must be one of {', '.join(known)}; got {unknown[0]!r}.")
    return {name: known[name] for name in wanted}


def _change(
    metric: Metric, before: EvaluationState, now: EvaluationState, level: float, *, seed: int, of_risk: bool = False
) -> Change:
    if isinstance(metric.statistic, TopStatistic):
        counts = _counts_of_risk if of_risk else _counts
        moments = _divided_at_random(metric, (counts(before), counts(now)), now.design.n_bins, seed)
    else:
        moments = _means(metric, before, now)
    difference, expected, spread, skewness = moments
    if math.isnan(difference) or not spread:
        return Change(difference, 0.0, 1.0, level)
    z = (difference - expected) / spread
    # Pearson's type III, a shifted gamma, nearly normal without skewness: few samples or errors have a longer tail.
    shape = 4 / max(math.copysign(skewness, z * skewness), 1e-3) ** 2
    return Change(difference, z, min(1.0, 2 * float(gammaincc(shape, shape + abs(z) * math.sqrt(shape)))), level)


def _divided_at_random(metric: Metric, counts: tuple[Tensor, Tensor], n_bins: int, seed: int) -> tuple[float, ...]:
    """Return how much a metric differs, and mean, spread and skewness of that where samples are divided at random."""
    statistic = cast("TopStatistic", metric.statistic)
    first, second = _at_common_levels(*counts, n_bins)
    both, confidence = (first + second)[:2], (first + second)[2] / (first + second)[:2].sum(0)
    rng = np.random.default_rng([seed, 5])
    is_whole = bool((both == both.round()).all())  # without weights
    whole = np.floor(both.numpy() + (0.0 if is_whole else rng.random(both.shape))).astype(np.int64)
    share = float(second[:2].sum() / both.sum())
    drawn = torch.from_numpy(rng.binomial(whole, share, (_DRAWS, *whole.shape))).double()

    def value(counts: Tensor) -> Tensor:  # (..., 2, levels)
        return metric.value(statistic.of_ranked(ranked_at_means(confidence, *counts.unbind(-2))))

    chance = value(drawn) - value(torch.from_numpy(whole).double() - drawn)
    chance = chance[~chance.isnan()]
    difference = float(value(second[:2]) - value(first[:2]))
    if len(chance) < 2 or not (spread := float(chance.std())):
        return difference, 0.0, 0.0, 0.0
    return difference, float(chance.mean()), spread, float((chance - chance.mean()).pow(3).mean()) / spread**3


def _at_common_levels(before: Tensor, now: Tensor, n_bins: int) -> tuple[Tensor, Tensor]:
    """Return the same sums over levels that have samples, some thousands at most, none across the edge of a bin."""
    seen = (before + now)[:2].sum(0) > 0
    before, now = before[:, seen], now[:, seen]
    right, wrong, confidence = before + now
    means = confidence / (right + wrong)
    level = Ranked(means, means, right, wrong).cells(_LEVELS, bins=[n_bins])
    size = int(level[-1]) + 1
    joined = (torch.stack([sums_by(level, part, size) for part in side]) for side in (before, now))
    return next(joined), next(joined)


def _counts(state: EvaluationState) -> Tensor:
    """Return the right and wrong samples at every level, and their summed confidence, (3, levels); effective ones."""
    return torch.cat([state.sums["level.mass"].sum(0), state.sums["level.confidence"][None]]) * _worth(state)


def _counts_of_risk(state: EvaluationState) -> Tensor:
    """Return the same of the positive class and the other at every level of the probability of the former."""
    sums = state.sums_of_risk()
    total, positive = sums["total"], sums["total_of_positive"]
    squares = (sums[name] for name in ("squared_weights", "squared_weights_of_positive") if name in sums)
    worth = _worth_of(total, positive, *squares) if state.design.weighted else 1.0
    return torch.stack([positive, total - positive, sums["confidence"]]) * worth


def _worth(state: EvaluationState) -> float:
    """Return the effective samples of a unit of weight."""
    names = ("total", "right", "squared_weights", "squared_right")
    return _worth_of(*(state.sums[f"cells.{name}"] for name in names)) if state.design.weighted else 1.0


def _worth_of(*sums: Tensor) -> float:
    """Return the effective samples of a unit of weight, but no more than have the variance of the weighted accuracy."""
    total, right, squares, of_right = (float(part.sum()) for part in sums)
    share = right / total
    variance = of_right * (1 - share) ** 2 + (squares - of_right) * share**2
    return total * min(1 / squares, share * (1 - share) / variance if variance > 0 else math.inf)


def _means(metric: Metric, before: EvaluationState, now: EvaluationState) -> tuple[float, ...]:
    """Return the same of an average over samples, by the moments of all of them together."""
    groups = [[part * _worth(of) for part in of.group_states()[metric.statistic].tensors()] for of in (before, now)]
    (count, total), sizes = map(torch.cat, zip(*groups, strict=True)), [float(count.sum()) for count, _ in groups]
    first, second = (float(total.sum() / count.sum()) for count, total in groups)
    # Cumulants of sums of independent numbers add up, so groups of samples show those of one sample.
    residual = total - count * (total.sum() / count.sum())
    variance = float(residual.square().sum()) / max(sum(sizes) - 1, 1.0) * sum(1 / size for size in sizes)
    third = float(residual.pow(3).sum()) / sum(sizes) * (sizes[1] ** -2 - sizes[0] ** -2)
    return second - first, 0.0, math.sqrt(variance), third / variance**1.5 if variance else 0.0

"""Metrics with their evidence: interval, and for calibration errors the noise floor and a p-value.

The bootstrap shows how a number would have varied with other samples from the same source. Consistency resampling shows
what it would have been had the model been calibrated: labels are drawn from the model's own probabilities. Both work on
states: ranked confidences for metrics of the top label, sums over groups of samples for the rest.

Reference for consistency resampling: Bröcker & Smith (2007), Increasing the Reliability of Reliability Diagrams.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import NamedTuple, TypeAlias, TypedDict, final

import numpy as np
import torch
from torch import Tensor

from calibrant.checks import with_devices_of_inputs
from calibrant.evidence import intervals
from calibrant.evidence.clusters import Clusters, blocks_of_clusters, clusters_of_labels, sizes_of, some_of_clusters
from calibrant.metrics import SECE, ECEL2Debiased, Metric, Tally
from calibrant.metrics.base import RankMetric, check_metrics
from calibrant.metrics.smooth import KernelFeatures
from calibrant.metrics.states import (
    BinnedMoments,
    BinStatistic,
    Gridded,
    LabelStatistic,
    Ranked,
    RankedSamples,
    Statistic,
    Sums,
    TopStatistic,
    full_predictions,
)
from calibrant.numerics.binning import sums_by
from calibrant.numerics.softmax import TOP_LABEL, row_blocks
from calibrant.predictions import OF_CORRECTNESS, Predictions, TopLabel, by_unit, counted_samples, has_risk

Interval: TypeAlias = tuple[float, float]
_GROUPS = 256  # one more or less does not show in an interval, and their states fit in memory
_GROUP_NUMBERS = 1 << 20  # classes times groups at most: with more than 4,096 classes there are fewer groups
_FEWEST_GROUPS = 32
CHUNK = 250  # resamples computed at a time, and numbers of them, so that their states stay in cache
_CHUNK_NUMBERS = 1 << 19


@final
@dataclass(frozen=True)
class Estimate:
    """A metric with its 95 % interval; NaN bounds where there are too few samples.

    Calibration errors also have the mean error of a perfectly calibrated model with these confidences (``floor``) and
    the p-value of the hypothesis that the model is calibrated (``p``). The interval is one for the true error: it is
    extended to 0 unless p is at most .05, and because noise biases the plain value upwards, it can lie below it.
    """

    value: float
    low: float
    high: float
    floor: float | None = None
    p: float | None = None


@final
@dataclass(frozen=True)
class _Null:
    """Errors of a calibrated model, (r,), the value to test against them, and the share of all samples they are of."""

    errors: Tensor
    observed: float
    share: float = 1.0

    @property
    def floor(self) -> float:
        return float(self.errors.mean()) * math.sqrt(self.share)


def _interval(metric: Metric, value: float, resampled: Tensor, null: _Null | None, *, size: float) -> Interval:
    if metric.family != "calibration":
        return intervals.bootstrap_interval(
            resampled, size=size, acceleration=intervals.acceleration(metric, resampled)
        )
    floor = null.floor if null is not None and metric.noise != "subtracted" else None
    return intervals.error_interval(value, resampled, floor, size=size)


def _make_estimate(metric: Metric, value: float, interval: Interval, n: float, null: _Null | None = None) -> Estimate:
    """Combine a value, its interval and, for a calibration error, those of a calibrated model."""
    low, high = interval if n >= intervals.FEWEST or metric.interval_method == "wilson" else (math.nan, math.nan)
    if null is None:
        return Estimate(value, low, high)
    p = intervals.p_value(null.observed, null.errors)
    if not metric.may_be_negative:
        low, high = min(max(low, 0.0), 1.0), min(max(high, 0.0), 1.0)
    return Estimate(value, min(low, 0.0) if p > intervals.LEVEL else low, high, null.floor, p)


@with_devices_of_inputs
def estimate(
    predictions: Predictions | TopLabel,
    metrics: Iterable[Metric],
    *,
    resamples: int = 1000,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Estimate]:
    """Compute several metrics with their intervals, and calibration errors with noise floors and p-values.

    Args:
        predictions: Predictions to evaluate; those of samples in clusters are drawn by cluster.
        metrics: Metrics to compute; of the top label only, if that is all that is known.
        resamples: Number of bootstrap draws, and of draws of labels from a calibrated model.
        seed: Random seed; the same seed gives the same numbers.
        progress: Called with the name of each stage as it begins.

    Example:
        >>> from calibrant.metrics import ECE
        >>> result = estimate(TopLabel([0.9] * 80, [True] * 50 + [False] * 30), [ECE()])["ece"]
        >>> round(result.value, 3), result.low < 0.275 < result.high, result.p < 0.01
        (0.275, True, True)
    """
    metrics, predictions = check_metrics(metrics), counted_samples(predictions)
    progress("one pass over the samples")
    top = [metric for metric in metrics if isinstance(metric.statistic, TopStatistic)]
    rest = [metric for metric in metrics if metric not in top]
    draws = of_classes = draw_groups(predictions, resamples, np.random.default_rng([seed, 3]))
    group = draws.group
    if rest:
        samples = full_predictions(predictions)
        if (groups := max(_FEWEST_GROUPS, _GROUP_NUMBERS // samples.n_classes)) < _GROUPS:
            of_classes = draw_groups(predictions, resamples, np.random.default_rng([seed, 3]), groups)
        group = of_classes.group.to(samples.logits.device)
        # Kept, so that the values, the top label and the states of groups take no pass of their own.
        samples.softmax_rows(reduce(or_, (metric.statistic.wanted for metric in rest), TOP_LABEL), group)
    # Kernel features take longer than all other statistics: the states of groups, gathered below, give the values too.
    counted = [metric for metric in metrics if not isinstance(metric.statistic, KernelFeatures)]
    values = Tally(counted).add(predictions).values()
    estimates: dict[str, Estimate] = {}
    if top:
        progress("resampling the top label")
        estimates |= _estimate_top_label(predictions.top, top, values, draws, seed)
    if rest:
        progress("resampling all classes")
        n, weights = samples.effective_size, of_classes.weights.to(samples.logits.device)
        estimates |= estimate_groups(
            rest, values, lambda one: states_by_group(samples, [one], group)[one], weights, samples, n=n, seed=seed
        )
    return {metric.name: estimates[metric.name] for metric in metrics}


def is_of_risk(metric: Metric, *, of_answers: bool = False) -> bool:
    """Whether reports of two classes have a metric of the risk, not of the top label, as they do calibration errors.

    ``of_answers``: of wrong and right, whose risk is the confidence in an answer; it separates them, not the top label.
    """
    is_separation = of_answers and metric.family == "refinement"
    return (is_separation or metric.family == "calibration") and isinstance(metric.statistic, TopStatistic)


def by_subject(metrics: Iterable[Metric], *samples: Predictions | TopLabel) -> tuple[list[Metric], list[Metric]]:
    """Return the metrics that reports of these samples have of the predictions, and those that they have of the risk.

    The risk is the probability of the second of two classes (:func:`calibrant.predictions.as_risk`).
    """
    metrics, of_two = list(metrics), has_risk(*samples)
    of_answers = all(isinstance(one, Predictions) and one.class_names == OF_CORRECTNESS for one in samples)
    of_risk = [metric for metric in metrics if of_two and is_of_risk(metric, of_answers=of_answers)]
    return [metric for metric in metrics if metric not in of_risk], of_risk


class Draws(TypedDict):
    """Number of resamples and random seed, as everything takes them that draws some."""

    resamples: int
    seed: int


class GroupDraws(NamedTuple):
    """Samples assigned to groups, and groups drawn with replacement."""

    group: Tensor  # (n,) the group of each sample
    weights: Tensor  # (resamples, groups) how often each is drawn, float64


def after_all(weights: Tensor) -> Tensor:
    """Return how often groups are drawn, (r, g), after a row with each once, whose values are those of all samples."""
    return torch.cat([torch.ones_like(weights[:1]), weights])


def draw_groups(
    samples: Predictions | TopLabel, resamples: int, rng: np.random.Generator, groups: int = _GROUPS
) -> GroupDraws:
    """Assign samples, or their clusters, to groups at random, each to its own if they are few, and draw groups."""

    def assign(n: int) -> Tensor:
        group = np.empty(n, dtype=np.int64)
        group[rng.permutation(n)] = np.arange(n) % groups
        return torch.from_numpy(group)

    group = by_unit(len(samples), samples.clusters, assign)
    filled = int(group.max()) + 1  # all of them, or one for each of fewer units
    weights = rng.multinomial(filled, np.full(filled, 1 / filled), size=resamples)
    return GroupDraws(group, torch.from_numpy(weights).double())


def states_by_group(samples: Predictions, statistics: Iterable[Statistic], group: Tensor) -> dict[Statistic, Sums]:
    """Gather the states of groups of samples, stacked, from one pass over the logits."""
    statistics = tuple(statistics)
    group = group.to(samples.logits.device)
    samples.softmax_rows(reduce(or_, (statistic.wanted for statistic in statistics), TOP_LABEL), group)
    return {statistic: statistic.by_group(samples, group) for statistic in statistics}


def bootstrap_ranked(
    ranked: Ranked, place: Tensor, correct: Tensor, draws: GroupDraws, weights: Tensor | None = None
) -> Iterator[Ranked]:
    """Draw samples with replacement, some resamples at a time, given the place of each among the ranked ones, (n,)."""
    m, groups = len(ranked.confidence), draws.weights.shape[1]
    size, group = max(1, min(CHUNK, _CHUNK_NUMBERS // m)), draws.group.to(place.device)
    cell = (group * 2 + ~correct) * m + place
    if weights is not None:
        masses = sums_by(cell, weights, 2 * groups * m).view(groups, 2 * m)
        squares = sums_by(group * m + place, weights.square(), groups * m).view(groups, m)
        for chunk in draws.weights.to(place.device).split(size):
            right, wrong = (chunk @ masses).chunk(2, dim=1)
            yield Ranked(ranked.log_odds, ranked.confidence, right, wrong, squared_weights=chunk @ squares)
        return
    # A draw holds about n samples: counts below 2**24 add up exactly in float32, in half the time.
    dtype = torch.float32 if len(correct) + groups < 2**24 else torch.float64
    counts = torch.bincount(cell, minlength=2 * groups * m).to(dtype).view(groups, 2 * m)
    for chunk in draws.weights.to(place.device, dtype).split(size):
        right, wrong = (chunk @ counts).double().chunk(2, dim=1)
        yield Ranked(ranked.log_odds, ranked.confidence, right, wrong)


def draw_correctness(ranked: Ranked, resamples: int, seed: int) -> Iterator[Ranked]:
    """Draw correctness from the confidences, some resamples at a time."""
    rng = np.random.default_rng([seed, 2])
    if ranked.squared_weights is not None:
        squared = ranked.squared_weights * ranked.excess_of_heavy
        columns = (ranked.total, squared, ranked.confidence.clamp(0, 1))
        total, squares, chance = (column.double().cpu().numpy() for column in columns)
        masses = intervals.draw_right(total, squares, chance, rng, resamples)
        yield from _with_right(ranked, torch.from_numpy(masses).to(ranked.right.device))
        return
    counts, confidence = ranked.total.long().tolist(), ranked.confidence.double().clamp(0, 1).tolist()
    # Entry by entry: the setup of a binomial in numpy serves all draws of it.
    drawn = np.stack([rng.binomial(n, p, size=resamples) for n, p in zip(counts, confidence, strict=True)], axis=1)
    for right in torch.from_numpy(drawn).to(ranked.right.device, torch.float64).split(CHUNK):
        yield Ranked(ranked.log_odds, ranked.confidence, right, ranked.total - right, shared_total=ranked.total)


def _with_right(ranked: Ranked, drawn: Tensor) -> Iterator[Ranked]:
    """Yield the ranked samples with drawn weights of right ones, (r, m), some resamples at a time."""
    for right in drawn.split(CHUNK):
        wrong = (ranked.total - right).clamp(min=0)
        yield replace(ranked, right=right, wrong=wrong, shared_total=ranked.total, squared_right=None)


def draw_labels(
    block: Predictions, resamples: int, rng: np.random.Generator, clusters: Clusters | None = None
) -> Tensor:
    """Draw labels from the predicted probabilities, (resamples, n).

    In ``clusters`` a low number is a likely class, so that predictions are right together, or class 0 of two.
    """
    probs, classes = block.probs.double(), None
    if clusters is None:
        drawn = torch.from_numpy(rng.random((len(block), resamples))).to(probs.device)
    else:
        assert block.clusters is not None
        if not clusters.of_class:
            probs, classes = probs.sort(dim=1, descending=True)
        drawn = torch.special.ndtr(clusters.normals(block.clusters, resamples, rng).double()).T.contiguous()
    cumulative = probs.cumsum(dim=1)
    # Scaled by the last entry, which rounding leaves a hair off one: no draw can fall past the last class.
    labels = torch.searchsorted(cumulative, drawn * cumulative[:, -1:], right=True).clamp_(max=block.n_classes - 1)
    return (labels if classes is None else classes.gather(1, labels)).T


# Resampling uses at most about this many distinct confidences: its draws vary as much as those of all samples.
MAX_LEVELS = 512
# Fewest spacings of a draw's grid, and about how many of them the smooth error of a calibrated model spans.
_SPACINGS, _SPANNED = 128, 3.0


def _estimate_top_label(
    top: TopLabel, metrics: Sequence[Metric], values: dict[str, float], draws: GroupDraws, seed: int
) -> dict[str, Estimate]:
    """Estimate metrics of confidence and correctness; samples are drawn after their confidences were merged."""
    sample, clusters, resamples = RankedSamples()(top), Clusters.of(top), len(draws.weights)
    exact = sample.ranked

    def levels(bins: Iterable[int]) -> Levels:
        ranked, sample_level = sample.merged(MAX_LEVELS, bins)
        resampled = bootstrap_ranked(ranked, sample_level, sample.correct, draws, top.weights)
        if clusters is None:
            return Levels(ranked, resampled)
        rng = np.random.default_rng([seed, 2])
        right = clusters.draw_right(sample_level, len(ranked.confidence), resamples, rng)
        return Levels(ranked, resampled, _with_right(ranked, right))

    return estimate_ranked(metrics, values, exact, levels, resamples=resamples, seed=seed, clusters=clusters)


class Levels(NamedTuple):
    """Few distinct confidences that stand for those of all samples, and resamples of them."""

    ranked: Ranked
    bootstrapped: Iterator[Ranked]
    calibrated: Iterator[Ranked] | None = None  # draws of correctness; None: independent ones


def estimate_ranked(
    metrics: Sequence[Metric],
    values: dict[str, float],
    exact: Ranked,
    levels: Callable[[Iterable[int]], Levels],
    *,
    resamples: int,
    seed: int,
    clusters: Clusters | None = None,
) -> dict[str, Estimate]:
    """Estimate metrics of ranked samples, from their values and ``levels``, which no edge of the given bins cuts."""
    effective, size = sizes_of(clusters, float(exact.effective_n))
    analytic = {metric.name: _analytic_interval(metric, exact, clusters) for metric in metrics}
    estimates = {
        metric.name: _make_estimate(metric, values[metric.name], interval, effective)
        for metric in metrics
        if (interval := analytic[metric.name]) is not None and metric.family != "calibration"
    }
    drawn = [metric for metric in metrics if metric.name not in estimates]
    if not drawn:
        return estimates
    squares = exact.total if exact.squared_weights is None else exact.squared_weights
    noise = float((squares * exact.confidence * (1 - exact.confidence)).sum()) / float(exact.n) ** 2
    statistics = {metric.name: _statistic(metric, noise) for metric in drawn}
    bins = {statistic.n_bins for statistic in statistics.values() if isinstance(statistic, BinStatistic)}
    ranked, bootstrap, calibrated = levels(sorted(bins))
    resampled = [metric for metric in drawn if analytic[metric.name] is None]
    errors = [metric for metric in drawn if metric.family == "calibration"]
    bootstrapped = values_of(resampled, statistics, bootstrap)
    null_values = values_of(errors, statistics, calibrated or draw_correctness(ranked, resamples, seed))
    # The draws are compared with the value of the same merged samples, which can differ a little from the exact one.
    states = {statistic: statistic.of_ranked(ranked) for statistic in set(statistics.values())}
    for metric in drawn:
        name, observed = metric.name, float(metric.value(states[statistics[metric.name]]))
        null = _Null(null_values[name], observed) if name in null_values else None
        interval = analytic[name]
        if interval is None:
            interval = _interval(metric, observed, bootstrapped[name], null, size=min(_GROUPS, size))
        interval = _with_unseen(metric, statistics[name], ranked, interval, clusters)
        estimates[name] = _make_estimate(metric, values[name], interval, effective, null)
    return estimates


def _analytic_interval(metric: Metric, ranked: Ranked, clusters: Clusters | None) -> Interval | None:
    """Return the interval of a metric that has a formula for it; None for the others."""
    if metric.interval_method == "wilson":
        return intervals.accuracy_interval(ranked, clusters)
    if isinstance(metric, ECEL2Debiased) and clusters is None:  # its formula is for independent samples
        low, high = metric.interval(BinnedMoments(metric.n_bins).of_ranked(ranked), z=1.96)
        return float(low), float(high)
    if isinstance(metric, RankMetric) and metric.interval_method != "bootstrap":
        return intervals.influence_interval(metric, ranked, clusters)
    return None


def _with_unseen(
    metric: Metric, statistic: TopStatistic, ranked: Ranked, interval: Interval, clusters: Clusters | None
) -> Interval:
    """Extend the interval of samples that are all right, or all wrong, by the metric at the last accuracy they allow.

    No resample of them shows another outcome, which says nothing about the next sample.
    """
    if ranked.right.any() and ranked.wrong.any():
        return interval
    lowest, highest = intervals.accuracy_interval(ranked, clusters)
    right = ranked.total * (lowest if ranked.right.any() else highest)
    value = float(metric.value(statistic.of_ranked(replace(ranked, right=right, wrong=ranked.total - right))))
    return min(interval[0], value), max(interval[1], value)


def _statistic(metric: Metric, noise: float) -> TopStatistic:
    """Return the metric's statistic for draws, on no finer a grid than the noise (variance of the accuracy) needs."""
    statistic = metric.statistic
    assert isinstance(statistic, TopStatistic)
    if not isinstance(statistic, Gridded):
        return statistic
    # The smooth error of calibrated samples is about half the cube root of the noise (measured at three accuracies and
    # sizes, within a tenth); a metric of fixed width asks for a grid that is finer than that.
    narrowest = min(noise ** (1 / 3) / 2, metric.width if isinstance(metric, SECE) else 1.0)
    finest = statistic.nodes - 1
    spacings = 2 ** round(math.log2(min(_SPANNED / max(narrowest, 1e-9), finest)))  # a length that transforms fast
    return replace(statistic, nodes=min(max(spacings, _SPACINGS), finest) + 1)


def values_of(
    metrics: Sequence[Metric], statistics: dict[str, TopStatistic], chunks: Iterable[Ranked]
) -> dict[str, Tensor]:
    """Compute metrics of the top label over all resamples; those with the same statistic share its state."""
    values: dict[str, list[Tensor]] = {metric.name: [] for metric in metrics}
    for ranked in chunks:
        states = {statistic: statistic.of_ranked(ranked) for statistic in {statistics[m.name] for m in metrics}}
        for metric in metrics:
            values[metric.name].append(metric.value(states[statistics[metric.name]]))
    return {name: torch.cat(parts) for name, parts in values.items()}


# States under calibrated labels, and the most samples used for them. Each block of the samples has its labels drawn a
# few times, and a state takes one of these for every block: equivalent to redrawing all labels, but a pass over the
# samples serves many.
_STATES, _LABELLED = 200, 20_000
_BLOCKS, _DRAWS_PER_BLOCK = 8, 40
_BLOCK = 1 << 20  # numbers of the resampled states computed at a time


def estimate_groups(
    metrics: Sequence[Metric],
    values: dict[str, float],
    groups: Callable[[Statistic], Sums],
    weights: Tensor,
    predictions: Predictions | None = None,
    *,
    n: float,
    seed: int = 0,
    null: Mapping[str, Tensor] | None = None,
) -> dict[str, Estimate]:
    """Estimate metrics from the states of groups of samples, stacked, and how often each group is drawn, (r, groups).

    ``n`` is the effective number of samples. Labels of a calibrated model are drawn for the predictions, all samples or
    a part of them, if a metric needs them. ``null`` has values of metrics for a calibrated model that are known.
    """
    by_statistic: dict[Statistic, list[Metric]] = {}
    for metric in metrics:
        by_statistic.setdefault(metric.statistic, []).append(metric)
    bootstrapped: dict[str, Tensor] = {}
    for statistic, its_metrics in by_statistic.items():  # the states of one at a time: they may be large
        states = groups(statistic)
        chunks = weights.split(max(1, _BLOCK // sum(field[0].numel() for field in states.tensors())))
        for metric in its_metrics:
            name = metric.name
            if name not in values:
                values[name] = float(metric.value(states.unstacked()))
            bootstrapped[name] = torch.cat([metric.value(states.reweighted(chunk)) for chunk in chunks])
        del states
    nulls = {name: _Null(errors, values[name]) for name, errors in (null or {}).items()}
    of_labels = {one: those for one, those in by_statistic.items() if isinstance(one, LabelStatistic)}
    if predictions is not None and of_labels:
        nulls |= _calibrated_errors(predictions, of_labels, values, n=n, seed=seed)
    clusters = None if predictions is None else Clusters.of(predictions.top)
    number, size = sizes_of(clusters, n)
    estimates = {}
    for metric in metrics:
        value, of_calibrated, bootstrap = values[metric.name], nulls.get(metric.name), bootstrapped[metric.name]
        interval = _interval(metric, value, bootstrap, of_calibrated, size=min(weights.shape[1], size))
        estimates[metric.name] = _make_estimate(metric, value, interval, number, of_calibrated)
    return estimates


def _calibrated_errors(
    predictions: Predictions,
    metrics: Mapping[LabelStatistic, Sequence[Metric]],
    values: Mapping[str, float],
    *,
    n: float,
    seed: int,
) -> dict[str, _Null]:
    """Return the errors of a calibrated model by metric, whose labels are drawn for all of the predictions or some."""
    chosen, drawn = _draw_labels(predictions, seed)
    part, clusters = predictions if chosen is None else predictions[chosen], Clusters.of(predictions.top)
    share = min(1.0, part.effective_size / n)
    if clusters is not None and chosen is not None:
        share = clusters.effective_size(chosen) / clusters.effective_size()
    nulls = {}
    for statistic, its_metrics in metrics.items():
        labelled = _labelled_states(statistic, predictions, drawn)
        some = row_blocks(_STATES, max(1, _BLOCK // sum(field[0].numel() for field in labelled.tensors())))
        for metric in its_metrics:
            errors = torch.cat([metric.value(labelled[rows]) for rows in some])
            nulls[metric.name] = _Null(errors, values[metric.name] if share == 1 else metric(part), share)
        del labelled
    return nulls


_Drawn: TypeAlias = list[tuple[slice | Tensor, Tensor, Tensor]]  # samples, labels (draws, n), the draw of each state


def _draw_labels(predictions: Predictions, seed: int) -> tuple[Tensor | None, _Drawn]:
    """Draw labels that the model itself would give the samples; return which samples have them, None for all."""
    rng = np.random.default_rng([seed, 4])
    n, clusters = len(predictions), clusters_of_labels(predictions)
    chosen: Tensor | None = None
    if clusters is not None:
        order = some_of_clusters(clusters.codes, _LABELLED, rng)
        chosen = order if len(order) < n else None
        parts: Iterable[slice | Tensor] = blocks_of_clusters(clusters.codes, order, _BLOCKS)
    elif n > _LABELLED:
        chosen = torch.from_numpy(np.sort(rng.choice(n, _LABELLED, replace=False))).to(predictions.logits.device)
        parts = chosen.split(math.ceil(_LABELLED / _BLOCKS))
    else:
        parts = row_blocks(n, math.ceil(n / _BLOCKS))
    drawn: _Drawn = []
    for part in parts:
        labels = draw_labels(predictions[part], _DRAWS_PER_BLOCK, rng, clusters)
        picked = torch.from_numpy(rng.integers(_DRAWS_PER_BLOCK, size=_STATES)).to(labels.device)
        drawn.append((part, labels, picked))
    return chosen, drawn


def _labelled_states(statistic: LabelStatistic, predictions: Predictions, drawn: _Drawn) -> Sums:
    """Return the states under the drawn labels, stacked."""
    sums: Sums | None = None
    for part, labels, picked in drawn:
        states = statistic.states_for_labels(predictions[part], labels)
        if sums is None:
            sums = states[picked]
        else:
            sums.add_(states, picked)
    assert sums is not None, "there is a sample"
    return sums

"""Differences between sets of predictions for the same samples: paired bootstrap, multiple tests, and one verdict rule.

A difference counts as better or worse if it is both significant and large enough to matter. All others are "alike":
no clear difference, not equality.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias, TypeVar, final

import numpy as np
import torch
from torch import Tensor

from calibrant.checks import with_devices_of_inputs
from calibrant.errors import InputError, check_kind
from calibrant.evidence.estimates import (
    Estimate,
    GroupDraws,
    after_all,
    bootstrap_ranked,
    by_subject,
    draw_groups,
    estimate,
    states_by_group,
    values_of,
)
from calibrant.evidence.intervals import FEWEST, LEVEL, acceleration, bootstrap_interval, paired_p, without_noise
from calibrant.metrics import Metric
from calibrant.metrics.base import RankMetric, check_metrics
from calibrant.metrics.states import BinStatistic, RankedSamples, TopStatistic, full_predictions
from calibrant.predictions import Predictions, TopLabel, as_risk, counted_samples

__all__ = [
    "Difference", "PairedBootstrap", "Resampled", "Side", "apply_holm", "check_pair", "corrected_differences",
    "difference", "holm", "report_differences", "side_of", "smallest_effect",
]  # fmt: skip

_CHUNK = 50  # resamples of all classes computed at a time
_ROUNDING = 1e-12  # differences that are smaller, relative to the values, are none
FLOOR_DRAWS = 100  # of a calibrated model, for the mean of its error
# Draws of more samples than this are made after their confidences were merged into about so many.
_LEVELS = 8192
Side: TypeAlias = Literal["better", "worse", "alike"]
_T = TypeVar("_T")


def smallest_effect(metric: Metric, baseline: float) -> float:
    """Return the smallest difference from a metric's value for the baseline that matters in practice.

    Enough samples make any difference significant, also one that changes no decision. The bounds: a tenth of a
    percentage point for accuracy and calibration errors, which reports print with that precision; .005 for AUROC, AUPR
    and FPR at 95 % TPR, about what another seed of the same training moves them by; 1 % of the baseline for log-loss,
    Brier score and areas under risk-coverage curves, the gain below which an evaluation does not advise a
    temperature. Errors averaged over classes (``sce``) or squared (``skce``) are relative as well.

    Example:
        >>> from calibrant.metrics import AUROC, NLL
        >>> smallest_effect(AUROC(), 0.9), smallest_effect(NLL(), 0.3)
        (0.005, 0.003)
    """
    return 0.01 * abs(baseline) if metric.smallest_effect is None else metric.smallest_effect


def is_significant(low: float, high: float, p: float) -> bool:
    """Whether a difference is statistically significant: its p-value is at most .05 and its interval excludes 0."""
    return p <= LEVEL and not low <= 0 <= high


def side_of(metric: Metric, *, baseline: float, value: float, low: float, high: float, p: float) -> Side:
    """Return whether a difference from a baseline is better, worse or neither: the one rule of all comparisons.

    It is better or worse if it is significant and at least :func:`smallest_effect`; everything else is alike. ``value``
    is the difference from the ``baseline``, ``low`` to ``high`` its 95 % interval, ``p`` its corrected p-value.

    Example:
        >>> from calibrant.metrics import NLL
        >>> side_of(NLL(), baseline=0.8, value=-0.02, low=-0.03, high=-0.01, p=0.001)
        'better'
        >>> side_of(NLL(), baseline=0.8, value=-0.002, low=-0.003, high=-0.001, p=0.001)
        'alike'
    """
    # Values of models whose noise differs can differ to the other side than the interval of the true difference.
    is_small = abs(value) < smallest_effect(metric, baseline) or value * low < 0
    if metric.lower_is_better is None or is_small or not is_significant(low, high, p):
        return "alike"
    return "better" if (value < 0) == metric.lower_is_better else "worse"


@final
@dataclass(frozen=True)
class Difference:
    """A metric of a candidate minus that of its baseline, on the same samples.

    ``low`` and ``high`` bound the 95 % interval of this one difference, ``p`` is its two-sided p-value; ``corrected_p``
    accounts for the other comparisons that were made at once, and equals ``p`` where none were. They are NaN where the
    noise is unknown: with fewer than ten samples, and for ``mce``. Noise raises a calibration error, the more the
    smaller it is: the interval is one for the true errors, and the difference of the plain ones can lie outside it.
    ``side`` is "better" or "worse" if the difference is significant (the corrected p-value is at most .05 and the
    interval excludes 0) and at least :func:`smallest_effect`; else "alike".
    """

    baseline: float
    candidate: float
    value: float
    low: float
    high: float
    p: float
    corrected_p: float = math.nan
    side: Side = "alike"
    covers_seeds: bool = False  # whether the interval includes the noise of training with other seeds

    @property
    def is_significant(self) -> bool:
        """Whether the difference is statistically significant, however small."""
        return is_significant(self.low, self.high, self.corrected_p)

    def with_correction(self, metric: Metric, corrected_p: float) -> "Difference":
        """Return the same difference with a corrected p-value and the side that follows from it."""
        side = side_of(metric, baseline=self.baseline, value=self.value, low=self.low, high=self.high, p=corrected_p)
        return replace(self, corrected_p=corrected_p, side=side)


@with_devices_of_inputs
def difference(
    baseline: Predictions | TopLabel,
    candidate: Predictions | TopLabel,
    metrics: Iterable[Metric],
    *,
    resamples: int = 500,
    seed: int = 0,
) -> dict[str, Difference]:
    """Paired bootstrap of the difference of each metric, candidate minus baseline.

    Both sets must describe the same samples in the same order. Samples are drawn for both at once, so that what is
    common to both (hard samples, easy samples) cancels, and small differences stand out from noise. The p-values are
    not corrected for the number of metrics. Where no sample changes, the interval is [0, 0]: exact for a map that keeps
    the predicted class; the accuracy of two models that agree on all of n samples may still differ by about 3/n.

    Args:
        baseline: Predictions to compare with.
        candidate: Other predictions for the same samples.
        metrics: Metrics to compare.
        resamples: Bootstrap draws.
        seed: Random seed of the draws.

    Raises:
        InputError: If the sets differ in length, in labels, or in kind.

    Example:
        >>> from calibrant.metrics import NLL
        >>> logits, labels = torch.randn(500, 3, generator=torch.manual_seed(0)), torch.zeros(500, dtype=torch.int64)
        >>> change = difference(Predictions(3 * logits, labels), Predictions(logits, labels), [NLL()])["nll"]
        >>> change.high < 0, change.p < 0.01, change.side
        (True, True, 'better')
    """
    check_pair(baseline, candidate)
    bootstrap = PairedBootstrap(baseline, metrics, resamples=resamples, seed=seed)
    return bootstrap.differences(bootstrap.values(baseline), bootstrap.values(candidate))


@with_devices_of_inputs
def report_differences(
    baseline: Predictions | TopLabel,
    candidate: Predictions | TopLabel,
    metrics: Iterable[Metric],
    *,
    resamples: int = 500,
    seed: int = 0,
) -> dict[str, Difference]:
    """Return :func:`calibrant.evidence.difference`, with calibration errors of two classes of the risk, as in reports.

    Example:
        >>> from calibrant.metrics import ECE
        >>> labels = [1, 0] * 50  # where 0.9 and 0.1 are predicted, or the other way round
        >>> right, wrong = (Predictions.from_binary_probs(p * 50, labels) for p in ([0.9, 0.1], [0.1, 0.9]))
        >>> round(report_differences(right, wrong, [ECE()], resamples=100)["ece"].value, 2)
        0.8
    """
    check_pair(baseline, candidate)
    metrics = list(metrics)
    rest, of_risk = by_subject(metrics, baseline, candidate)
    bootstrap = PairedBootstrap(baseline, rest, of_risk=of_risk, resamples=resamples, seed=seed)
    differences = bootstrap.differences(bootstrap.values(baseline), bootstrap.values(candidate))
    return {metric.name: differences[metric.name] for metric in metrics}


@final
class PairedBootstrap:
    """Several sets of predictions for the same samples: each is resampled once, then compared with any other.

    Args:
        samples: The first set; the others must have its samples in its order.
        metrics: Metrics to compare.
        of_risk: More of them, of the probability of the second of two classes.
        resamples: Bootstrap draws, the same samples for every set.
        seed: Random seed of the draws.
    """

    def __init__(
        self,
        samples: Predictions | TopLabel,
        metrics: Iterable[Metric],
        *,
        of_risk: Iterable[Metric] = (),
        resamples: int = 500,
        seed: int = 0,
    ) -> None:
        self._of_predictions, self._of_risk = check_metrics(metrics), check_metrics(of_risk)
        self.metrics = [*self._of_predictions, *self._of_risk]
        self._samples, self._seed = samples, seed
        counted = counted_samples(samples)
        group, weights = draw_groups(counted, resamples, np.random.default_rng([seed, 5]))
        self._draws, self._size = GroupDraws(group, after_all(weights)), min(counted.independent_size, weights.shape[1])

    def values(
        self, samples: Predictions | TopLabel, estimates: Mapping[str, Estimate] | None = None
    ) -> dict[str, "Resampled"]:
        """Compute each metric of the samples and of every resample; ``estimates`` of the same save some of the work."""
        check_pair(self._samples, samples)
        samples = counted_samples(samples)
        values = self._values(samples, self._of_predictions, estimates)
        return values | (self._values(as_risk(samples), self._of_risk, estimates) if self._of_risk else {})

    def _values(
        self, samples: Predictions | TopLabel, metrics: Sequence[Metric], estimates: Mapping[str, Estimate] | None
    ) -> dict[str, "Resampled"]:
        if estimates is None:
            errors = errors_with_floor(metrics)
            estimates = estimate(samples, errors, resamples=FLOOR_DRAWS, seed=self._seed) if errors else {}
        statistics = {m.name: of for m in metrics if isinstance(of := m.statistic, TopStatistic)}
        top = [metric for metric in metrics if metric.name in statistics]
        others = [metric for metric in metrics if metric not in top]
        values: dict[str, Tensor] = {}
        if top:
            bins = {of.n_bins for of in statistics.values() if isinstance(of, BinStatistic)}
            packed, own = RankedSamples()(samples.top), samples.weights
            ranked, place = packed.merged(_LEVELS, sorted(bins))
            drawn = values_of(top, statistics, bootstrap_ranked(ranked, place, packed.correct, self._draws, own))
            exact = {name: known.value for name, known in estimates.items()}
            for metric in [metric for metric in top if metric.name not in exact]:
                exact[metric.name] = float(metric.value(statistics[metric.name].of_ranked(packed.ranked)))
            # Merging moves the values of all draws alike, by what it moves that of all samples.
            values |= {name: numbers + (exact[name] - numbers[0]) for name, numbers in drawn.items()}
        if others:
            full = full_predictions(samples)
            sums = states_by_group(full, {metric.statistic for metric in others}, self._draws.group)
            chunks = self._draws.weights.to(full.logits.device).split(_CHUNK)
            for metric in others:
                of_groups = sums[metric.statistic]
                values[metric.name] = torch.cat([metric.value(of_groups.reweighted(chunk)) for chunk in chunks])
        few = rarer_outcome(samples.top)
        return {m.name: Resampled.of(m, values[m.name].cpu(), estimates, few) for m in metrics}

    def differences(
        self, baseline: Mapping[str, "Resampled"], candidate: Mapping[str, "Resampled"]
    ) -> dict[str, Difference]:
        """Return candidate minus baseline by metric, from :meth:`values` of each; not corrected."""
        return {m.name: self.difference(m, baseline[m.name], candidate[m.name]) for m in self.metrics}

    def difference(self, metric: Metric, baseline: "Resampled", candidate: "Resampled") -> Difference:
        return paired_difference(metric, baseline, candidate, size=self._size)


@final
@dataclass(frozen=True, eq=False)
class Resampled:
    """A metric of some samples, and of resamples of them."""

    values: Tensor  # (resamples + 1,), that of all samples first
    floor: float | None = 0.0  # of a calibration error, the mean error of a calibrated model; None: unknown
    few: float = math.inf  # of a rank metric, right or wrong samples, whichever are fewer

    @classmethod
    def of(cls, metric: Metric, values: Tensor, estimates: Mapping[str, Estimate], few: float) -> "Resampled":
        if metric.family != "calibration" or metric.may_be_negative:
            return cls(values, few=few if isinstance(metric, RankMetric) else math.inf)
        known = estimates.get(metric.name) if metric.noise != "subtracted" else None
        return cls(values, known and known.floor)

    @classmethod
    def mean(cls, runs: "Sequence[Resampled]") -> "Resampled":
        floors = [run.floor for run in runs if run.floor is not None]
        floor = sum(floors) / len(floors) if len(floors) == len(runs) else None
        return cls(torch.stack([run.values for run in runs]).mean(0), floor, min(run.few for run in runs))

    @property
    def value(self) -> float:
        return float(self.values[0])

    @cached_property
    def without_noise(self) -> tuple[float, Tensor]:
        """The value and those of the resamples, (resamples,), without what noise adds to a calibration error."""
        return without_noise(self.value, self.values[1:], self.floor)


def errors_with_floor(metrics: Iterable[Metric]) -> list[Metric]:
    """Return the calibration errors whose resamples need the mean error of a calibrated model."""
    return [metric for metric in metrics if metric.family == "calibration" and metric.noise != "subtracted"]


def rarer_outcome(top: TopLabel) -> float:
    """Return how many samples are right or wrong, whichever are fewer, of equal weight and independent."""
    return top.independent_size * min(top.accuracy, 1 - top.accuracy)


def paired_difference(metric: Metric, baseline: Resampled, candidate: Resampled, *, size: float) -> Difference:
    """Return candidate minus baseline, not corrected, from the same resamples of ``size`` samples, or groups, for both.

    The interval of positive gaps holds those of both ways to take out noise; that of the largest gap is unknown. Ranks
    of right among wrong samples are known as if there were only those of the rarer kind.
    """
    few = min(baseline.few, candidate.few)
    value, drawn = candidate.value - baseline.value, candidate.without_noise[1] - baseline.without_noise[1]
    rounding = _ROUNDING * max(abs(baseline.value), abs(candidate.value))  # of weights, summed in another order
    value, drawn = value * (abs(value) > rounding), drawn[~drawn.isnan()]
    drawn = drawn * (drawn.abs() > rounding)
    low, high, p = math.nan, math.nan, math.nan
    # Draws that are all the same, up to rounding, but not zero, show nothing about noise.
    spreads = few >= 2 and drawn.numel() > 0 and float(drawn.std()) > 1e-9 * abs(value)
    is_known = drawn.numel() and size >= FEWEST and (spreads or not drawn.any())
    if is_known and metric.noise != "largest":
        draws, size = [drawn], min(size, few)
        if metric.noise == "positive":
            pair = (candidate, baseline)
            draws.append(torch.sub(*(without_noise(r.value, r.values[1:], r.floor, one_sided=True)[1] for r in pair)))
        moved = acceleration(metric, drawn)
        lows, highs = zip(*(bootstrap_interval(one, size=size, acceleration=moved) for one in draws), strict=True)
        low, high, p = min(lows), max(highs), max(paired_p(one, size, moved) for one in draws)
    return Difference(baseline.value, candidate.value, value, low, high, p).with_correction(metric, p)


def corrected_differences(
    baseline: str,
    values: Mapping[str, Mapping[str, _T]],
    metrics: Iterable[Metric],
    difference: Callable[[Metric, _T, _T], Difference],
    *,
    planned: str | None = None,
) -> dict[str, dict[str, Difference]]:
    """Return the differences of all others from the baseline, by name and metric, each metric corrected by itself.

    ``values`` by name and metric are what ``difference`` takes, such as :class:`Resampled`. ``planned`` is as for
    :func:`apply_holm`.
    """
    differences: dict[str, dict[str, Difference]] = {name: {} for name in values if name != baseline}
    for metric in metrics:
        own = {
            name: difference(metric, values[baseline][metric.name], values[name][metric.name]) for name in differences
        }
        for name, corrected in apply_holm(metric, own, planned=planned).items():
            differences[name][metric.name] = corrected
    return differences


def apply_holm(
    metric: Metric, differences: Mapping[str, Difference], *, planned: str | None = None
) -> dict[str, Difference]:
    """Correct the differences of several candidates from one baseline for their number (Holm).

    The one that was ``planned`` before the others is neither corrected nor counted, so that its result does not depend
    on what else is tried.
    """
    p = {name: difference.p for name, difference in differences.items()}
    corrected = p | holm({name: value for name, value in p.items() if name != planned})
    return {name: difference.with_correction(metric, corrected[name]) for name, difference in differences.items()}


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """Correct p-values for their number: rejecting at .05 is wrong about any of them in at most 5 % of cases.

    A p-value of NaN, of a test that could not be made, stays NaN and is not counted. Reference: Holm (1979), A Simple
    Sequentially Rejective Multiple Test Procedure, Scandinavian Journal of Statistics.

    Example:
        >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
        {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    known = sorted((value, name) for name, value in p.items() if not math.isnan(value))
    corrected, reached = dict(p), 0.0
    for place, (value, name) in enumerate(known):
        reached = max(reached, min(1.0, (len(known) - place) * value))
        corrected[name] = reached
    return corrected


def check_pair(first: Predictions | TopLabel, second: Predictions | TopLabel) -> None:
    """Raise unless two sets can be of the same samples: of one kind and length, with the same weights and labels."""
    for given in (first, second):
        check_kind(given, (Predictions, TopLabel), "each set", "Predictions.from_logits(z, y) makes one of arrays.")
    if type(first) is not type(second):
        raise InputError("both sets must be of one kind; got predictions over classes and a top-label table.")
    if len(first) != len(second):
        raise InputError(
            f"both sets must describe the same samples; got {len(first)} and {len(second)} samples. For samples of two "
            "times or places, as of two months, follow them over time: calibrant trend."
        )
    for name in ("weights", "clusters"):
        own, other = getattr(first, name), getattr(second, name)
        if (own is None) != (other is None) or not (own is None or torch.equal(own.cpu(), other.cpu())):
            raise InputError(f"both sets must have the same {name}; got other {name}, or {name} in one of them only.")
    if isinstance(first, Predictions) and isinstance(second, Predictions):
        names = first.class_names, second.class_names
        if None not in names and names[0] != names[1] and set(names[0] or ()) == set(names[1] or ()):
            raise InputError("both sets must have their classes in one order; got the same names in another order.")
        differ = (first.labels.cpu() != second.labels.cpu()).nonzero()
        if differ.numel():
            row = int(differ[0])
            raise InputError(
                f"both sets must have the same labels in the same order; sample {row} has {int(first.labels[row])} and "
                f"{int(second.labels[row])} ({differ.numel()} samples differ). Sort both by the same key first."
            )

"""The risk of the positive class: its probability against how often it occurs.

Users of two classes act by P(positive), whichever class is predicted: they ask whether 10 % happens in 10 of 100 cases,
on average (calibration in the large) and at every risk (slope, flexible curve, tenths of the samples). Confidences in
being right are risks of being right.

Reference: Van Calster et al. (2019), Calibration: the Achilles Heel of Predictive Analytics, BMC Medicine.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack, final

import torch
from torch import Tensor

from calibrant.checks import with_devices_of_inputs
from calibrant.evidence.clusters import Clusters, sizes_of, squares_at
from calibrant.evidence.estimates import Draws, Estimate, estimate
from calibrant.evidence.intervals import FEWEST, t_quantile, wilson_interval
from calibrant.evidence.logistic import Outcomes, logistic
from calibrant.metrics import AUROC, ECE, Accuracy, Confidence, Metric, SmECE
from calibrant.metrics.states import effective_number
from calibrant.numerics.binning import sums_by
from calibrant.predictions import Predictions, TopLabel, as_risk, counted_samples

RISK_AUROC = "risk_auroc"  # of reports, gates and trends: the AUROC of the risk
TENTHS = 10
_KNOTS = (0.05, 0.35, 0.65, 0.95)  # quantiles of the log-odds; Harrell (2015), Regression Modeling Strategies, 2.4.6
_NODES = 51  # of the curve, and as many more
_FEW = 30  # samples of the rarer class, below which no linearised interval of its share holds


@final
@dataclass(frozen=True)
class RiskGroup:
    """Samples of similar risk, about a tenth of all; samples of equal risk are in one group."""

    low: float  # lowest risk
    high: float
    share: float  # of all samples, by their weights
    predicted: float  # mean risk
    observed: Estimate  # share that is of the positive class, with Wilson's interval


@final
@dataclass(frozen=True)
class RiskCurve:
    """A smooth calibration curve with its pointwise 95 % band: how often the positive class occurs at each risk."""

    risk: tuple[float, ...]  # rising
    observed: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@final
@dataclass(frozen=True)
class Risk:
    """The probability of the positive class, class 1 of two, compared with how often that class occurs."""

    predicted: Estimate  # mean
    observed: Estimate  # share of the positive class
    difference: Estimate  # predicted minus observed
    ratio: Estimate  # observed over predicted
    ece: Estimate
    smece: Estimate
    auroc: Estimate  # how well the risk separates the classes (c-statistic)
    tenths: tuple[RiskGroup, ...]  # the highest risks come last
    curve: RiskCurve | None  # None where there is no calibration line either

    @property
    def highest(self) -> RiskGroup:
        """The tenth of the samples with the highest risks."""
        return self.tenths[-1]

    @property
    def scale(self) -> float:
        """Twice the share of the rarer class: an error is large or small by comparison with it."""
        return 2 * min(self.observed.value, 1 - self.observed.value)


@with_devices_of_inputs
def evaluate_risk(samples: Predictions | TopLabel, *, n_bins: int = 15, resamples: int = 1000, seed: int = 0) -> Risk:
    """Compare the probability of the positive class with how often that class occurs.

    Differences and ratios have Student's t intervals, by cluster where samples are in some, and differences where a
    class is rare the width of Wilson's interval of its share; the curve is a logistic regression on a restricted cubic
    spline of the log-odds, with the intervals of :func:`calibration_line`.

    Args:
        samples: Logits or probabilities of two classes with labels; or confidences, as risks of being right.
        n_bins: Number of equal-width bins of the calibration error.
        resamples: Number of bootstrap draws.
        seed: Random seed.

    Example:
        >>> p = torch.linspace(0.05, 0.95, 19).repeat_interleave(100)
        >>> outcome = torch.arange(1, 101).repeat(19) <= 50 * p + 0.5  # half as often as p says
        >>> risk = evaluate_risk(Predictions.from_binary_probs(p, outcome.long()), resamples=100)
        >>> round(risk.predicted.value, 3), round(risk.observed.value, 2), round(risk.ratio.value, 1)
        (0.5, 0.25, 0.5)
    """
    return risk_with(samples, (), n_bins=n_bins, resamples=resamples, seed=seed)[0]


def risk_with(
    samples: Predictions | TopLabel, metrics: Sequence[Metric], *, n_bins: int, **draws: Unpack[Draws]
) -> tuple[Risk, dict[str, Estimate]]:
    """Return :func:`evaluate_risk` with other metrics of the risk."""
    risks = counted_samples(as_risk(samples))
    needed = {metric.name: metric for metric in (*metrics, *metrics_of_risk(n_bins))}
    estimates = estimate(risks, list(needed.values()), **draws)
    outcome, ones = risks.correct.double(), torch.ones_like(risks.confidence)
    difference = _ratio(risks, risks.confidence - outcome, ones)
    risk = Risk(
        predicted=estimates["confidence"],
        observed=estimates["accuracy"],
        difference=difference_from(difference, estimates["accuracy"], risks.effective_size),
        ratio=_ratio(risks, outcome, risks.confidence, of_logarithm=True),
        ece=estimates["ece"],
        smece=estimates["smece"],
        auroc=estimates["auroc"],
        tenths=tenths_of(risks),
        curve=curve_of(Outcomes.of(risks)),
    )
    return risk, {metric.name: estimates[metric.name] for metric in metrics}


def metrics_of_risk(n_bins: int) -> tuple[Metric, ...]:
    """Return the metrics that a :class:`Risk` is made of."""
    return (Confidence(), Accuracy(), ECE(n_bins), SmECE(), AUROC())


def _ratio(samples: TopLabel, above: Tensor, below: Tensor, *, of_logarithm: bool = False) -> Estimate:
    """Return the ratio of two sums with a linearised interval, symmetric on a log scale if asked for."""
    counts = torch.ones_like(above) if samples.sample_counts is None else samples.sample_counts
    total, (size, of_variance) = float(counts @ below), sizes_of(Clusters.of(samples), samples.effective_size)
    value = float(counts @ above) / total if total else math.nan
    changes = samples.cluster_sums(counts * (above - value * below)) / total if total else torch.zeros(1)
    return with_interval(value, float(changes.square().sum()), size, of_variance - 1, of_logarithm=of_logarithm)


def with_interval(value: float, squares: float, size: float, degrees: float, *, of_logarithm: bool = False) -> Estimate:
    """Return a ratio with its interval, from the sum of the squares of how far each of so many samples moves it."""
    if size < FEWEST or math.isnan(value) or (of_logarithm and value == 0):
        return Estimate(value, math.nan, math.nan)
    half = t_quantile(degrees) * math.sqrt(size / (size - 1) * squares)
    if of_logarithm:
        return Estimate(value, value * math.exp(-half / value), value * math.exp(half / value))
    return Estimate(value, value - half, value + half)


def difference_from(difference: Estimate, observed: Estimate, size: float) -> Estimate:
    """Return a difference from an observed share with the interval of the share, if few samples make it."""
    if math.isnan(difference.low) or min(observed.value, 1 - observed.value) * size >= _FEW:
        return difference
    value = difference.value
    return Estimate(value, value - (observed.high - observed.value), value + (observed.value - observed.low))


def tenths_of(risks: TopLabel) -> tuple[RiskGroup, ...]:
    """Cut the samples into tenths by their risk."""
    (values, index), mass = risks.confidence.unique(return_inverse=True), risks.mass
    place = tenth_of_each(sums_by(index, mass, len(values)))
    of_sample = place[index]
    columns = (torch.ones_like(mass), risks.confidence, risks.correct.double())
    total, predicted, observed = (sums_by(of_sample, mass * column, TENTHS) for column in columns)
    trials = effective_number(total, squares_at(risks, of_sample, TENTHS))
    return groups_of(values, place, total, predicted, observed, trials)


def tenth_of_each(mass: Tensor) -> Tensor:
    """Return the tenth of each risk, rising, given the mass at it; one that lies across a cut goes where its middle is.

    Example:
        >>> tenth_of_each(torch.tensor([2.0, 1.0, 1.0, 16.0]))
        tensor([0, 1, 1, 6])
    """
    return ((mass.cumsum(0) - mass / 2) / mass.sum() * TENTHS).long().clamp(max=TENTHS - 1)


def groups_of(
    values: Tensor, place: Tensor, total: Tensor, predicted: Tensor, observed: Tensor, trials: Tensor
) -> tuple[RiskGroup, ...]:
    """Return the tenths that have samples, given rising risks with the tenth of each, and sums over the tenths."""
    groups = []
    for i in total.nonzero()[:, 0].tolist():
        own, share = values[place == i], float(observed[i] / total[i])
        interval = wilson_interval(share * float(trials[i]), float(trials[i]))
        bounds = (float(own[0]), float(own[-1]), float(total[i] / total.sum()), float(predicted[i] / total[i]))
        groups.append(RiskGroup(*bounds, Estimate(share, *interval)))
    return tuple(groups)


def curve_of(outcomes: Outcomes) -> RiskCurve | None:
    """Return a logistic regression on a restricted cubic spline of the log-odds, where they allow it.

    It is of the samples whose probability is neither 0 nor 1, as that of a few is where probabilities were rounded.
    """
    outcomes = outcomes.without_extremes()
    if not outcomes.have_line:
        return None
    log_odds = outcomes.log_odds
    order = log_odds.argsort()
    rising, reached = log_odds[order], outcomes.counts[order].cumsum(0)

    def quantiles(shares: Tensor) -> Tensor:
        return rising[torch.searchsorted(reached, shares.to(reached) * reached[-1]).clamp(max=len(rising) - 1)]

    knots = quantiles(torch.tensor(_KNOTS, dtype=torch.float64)).unique()
    spaced = torch.linspace(float(rising[0].sigmoid()), float(rising[-1].sigmoid()), _NODES, dtype=torch.float64)
    by_rank = quantiles(torch.linspace(0, 1, _NODES, dtype=torch.float64))
    nodes = torch.cat([spaced.to(by_rank).logit(), by_rank]).clamp(rising[0], rising[-1]).unique()
    fitted = logistic(outcomes, _spline(log_odds, knots), at=_spline(nodes, knots))
    if fitted is None:
        return None
    columns = [[getattr(one, name) for one in fitted] for name in ("value", "low", "high")]
    curves = (tuple(torch.tensor(column, dtype=torch.float64).sigmoid().tolist()) for column in columns)
    return RiskCurve(tuple(nodes.sigmoid().tolist()), *curves)


def _spline(x: Tensor, knots: Tensor) -> Tensor:
    """Return a constant, x, and a restricted cubic spline of x, linear beyond the outer knots, (n, knots)."""
    columns, k = [torch.ones_like(x), x], len(knots)
    scale = (knots[-1] - knots[0]) ** 2
    cubes = [(x - knot).clamp(min=0) ** 3 for knot in knots]
    for i in range(k - 2):
        last = (cubes[-2] * (knots[-1] - knots[i]) - cubes[-1] * (knots[-2] - knots[i])) / (knots[-1] - knots[-2])
        columns.append((cubes[i] - last) / scale)
    return torch.stack(columns, 1)

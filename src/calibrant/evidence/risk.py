"""The risk of the positive class: its probability against how often it occurs, and the decisions taken by it.

Users of two classes act by P(positive), whichever class is predicted: they ask whether 10 % happens in 10 of 100 cases,
on average (calibration in the large), at every risk (slope, flexible curve, tenths of the samples), and what acting
above a threshold gains (net benefit). Confidences in being right are risks of being right.

References: Van Calster et al. (2019), Calibration: the Achilles Heel of Predictive Analytics, BMC Medicine; Vickers &
Elkin (2006), Decision Curve Analysis, Medical Decision Making.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from calibrant.checks import check_rates, with_devices_of_inputs
from calibrant.errors import InputError
from calibrant.evidence.clusters import Clusters, squares_at
from calibrant.evidence.differences import Difference, difference
from calibrant.evidence.estimates import Estimate, draw_groups, estimate
from calibrant.evidence.intervals import FEWEST, bootstrap_interval, t_quantile, wilson_interval
from calibrant.evidence.logistic import Outcomes, as_risk, has_risk, logistic
from calibrant.metrics import AUROC, ECE, Accuracy, Confidence, Metric, SmECE
from calibrant.metrics.states import effective_number
from calibrant.numerics.binning import sums_by
from calibrant.predictions import Predictions, TopLabel, counted_samples

OF_RISK = frozenset({"ece", "smece"})  # which reports and gates of two classes have of the risk, not of the top label
_TENTHS = 10
_KNOTS = (0.05, 0.35, 0.65, 0.95)  # quantiles of the log-odds; Harrell (2015), Regression Modeling Strategies, 2.4.6
_NODES = 51  # of the curve, and as many more
_ROUNDING = 32  # relative, in the precision of the scores: a risk that is read may lie so far below what a file holds
_FEW = 30  # samples of the rarer class, below which no linearised interval of its share holds
_CURVE = tuple(percent / 100 for percent in range(1, 100))


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
def report_differences(
    baseline: Predictions | TopLabel,
    candidate: Predictions | TopLabel,
    metrics: Iterable[Metric],
    *,
    resamples: int = 500,
    seed: int = 0,
) -> dict[str, Difference]:
    """Return :func:`calibrant.evidence.difference`, with the ECE and smECE of two classes of the risk, as reports do.

    Example:
        >>> labels = [1, 0] * 50  # where 0.9 and 0.1 are predicted, or the other way round
        >>> right, wrong = (Predictions.from_binary_probs(p * 50, labels) for p in ([0.9, 0.1], [0.1, 0.9]))
        >>> round(report_differences(right, wrong, [ECE()], resamples=100)["ece"].value, 2)
        0.8
    """
    metrics = list(metrics)
    differences = difference(baseline, candidate, metrics, resamples=resamples, seed=seed)
    of_risk = [metric for metric in metrics if metric.name in OF_RISK]
    if of_risk and has_risk(baseline, candidate):
        differences |= difference(as_risk(baseline), as_risk(candidate), of_risk, resamples=resamples, seed=seed)
    return differences


@with_devices_of_inputs
def evaluate_risk(samples: Predictions | TopLabel, *, n_bins: int = 15, resamples: int = 1000, seed: int = 0) -> Risk:
    """Compare the probability of the positive class with how often that class occurs.

    Differences and ratios have Student's t intervals, by cluster where samples are in some, and differences where a
    class is rare the width of Wilson's interval of its share; the curve is a logistic
    regression on a restricted cubic spline of the log-odds, with the intervals of :func:`calibration_line`.

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
    risks = counted_samples(as_risk(samples))
    metrics = (Confidence(), Accuracy(), ECE(n_bins), SmECE(), AUROC())
    estimates = estimate(risks, metrics, resamples=resamples, seed=seed)
    outcome, ones = risks.correct.double(), torch.ones_like(risks.confidence)
    difference = _ratio(risks, risks.confidence - outcome, ones)
    return Risk(
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


def _ratio(samples: TopLabel, above: Tensor, below: Tensor, *, of_logarithm: bool = False) -> Estimate:
    """Return the ratio of two sums with a linearised interval, symmetric on a log scale if asked for."""
    counts = torch.ones_like(above) if samples.sample_counts is None else samples.sample_counts
    total, size, clusters = float(counts @ below), samples.independent_size, Clusters.of(samples)
    value = float(counts @ above) / total if total else math.nan
    changes = samples.cluster_sums(counts * (above - value * below)) / total if total else torch.zeros(1)
    degrees = size - 1 if clusters is None else clusters.degrees()
    return with_interval(value, float(changes.square().sum()), size, degrees, of_logarithm=of_logarithm)


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
    values, index = risks.confidence.unique(return_inverse=True)
    mass = torch.ones_like(risks.confidence) if risks.weights is None else risks.weights
    place = tenth_of_each(sums_by(index, mass, len(values)))
    of_sample = place[index]
    columns = (torch.ones_like(mass), risks.confidence, risks.correct.double())
    total, predicted, observed = (sums_by(of_sample, mass * column, _TENTHS) for column in columns)
    trials = effective_number(total, squares_at(risks, of_sample, _TENTHS))
    return groups_of(values, place, total, predicted, observed, trials)


def tenth_of_each(mass: Tensor) -> Tensor:
    """Return the tenth of each risk, rising, given the mass at it; one that lies across a cut goes where its middle is.

    Example:
        >>> tenth_of_each(torch.tensor([2.0, 1.0, 1.0, 16.0]))
        tensor([0, 1, 1, 6])
    """
    return ((mass.cumsum(0) - mass / 2) / mass.sum() * _TENTHS).long().clamp(max=_TENTHS - 1)


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


@final
@dataclass(frozen=True)
class NetBenefit:
    """What acting on every sample with at least some risk gains, compared with acting on all and on none (which is 0).

    A threshold t is right for those to whom a missed positive costs (1 − t)/t times a needless action: the net benefit
    is the share of true positives minus t/(1 − t) times that of false positives, in true positives per sample.
    """

    threshold: float
    net_benefit: Estimate
    treat_all: Estimate
    to_treat_all: Estimate  # net benefit minus that of acting on all samples
    treated: Estimate  # share of samples with at least this risk
    sensitivity: Estimate  # share of them among the positives
    precision: Estimate  # share of positives among them
    to_baseline: Estimate | None = None  # net benefit minus that of other risks for the same samples

    @property
    def is_useful(self) -> bool:
        """Whether it is better than acting on all and than acting on none, beyond noise."""
        return self.net_benefit.low > 0 and self.to_treat_all.low > 0


@with_devices_of_inputs
def decision_curve(
    samples: Predictions | TopLabel,
    thresholds: Sequence[float] = _CURVE,
    *,
    baseline: Predictions | TopLabel | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> tuple[NetBenefit, ...]:
    """Return the net benefit of acting on samples above each threshold of the risk, with paired bootstrap intervals.

    It compares models, and a model before and after calibration, by what they are used for. It holds for samples in
    which the positive class is as frequent as where the model is used. Shares have Wilson's interval, and intervals of
    net benefits are at least as wide as those of the shares that they are made of: few samples lie beyond high or low
    thresholds, and resamples show no kind of them that is not there.

    Args:
        samples: Logits or probabilities of two classes with labels; or confidences, as risks of being right.
        thresholds: Risks from which to act, between 0 and 1.
        baseline: Other predictions for the same samples, to compare with.
        resamples: Number of bootstrap draws; those of samples in clusters draw clusters.
        seed: Random seed.

    References: Vickers & Elkin (2006), Decision Curve Analysis, Medical Decision Making; Zou & Donner (2008),
    Construction of Confidence Limits about Effect Measures, Statistics in Medicine.

    Example:
        >>> samples = Predictions.from_binary_probs([0.9, 0.4, 0.3, 0.1] * 10, [1, 1, 0, 0] * 10)
        >>> one = decision_curve(samples, [0.25], resamples=100)[0]
        >>> round(one.net_benefit.value, 4), round(one.treat_all.value, 4)  # 0.5 - 0.25 / 3, 0.5 - 0.5 / 3
        (0.4167, 0.3333)
    """
    risks = counted_samples(as_risk(samples))
    at = torch.tensor(check_rates(thresholds, "thresholds"), dtype=torch.float64)
    odds, clusters = at / (1 - at), Clusters.of(risks)
    draws = draw_groups(risks, resamples, np.random.default_rng([seed, 3]))
    weights = torch.cat([torch.ones(1, draws.weights.shape[1], dtype=torch.float64), draws.weights])
    size = min(draws.weights.shape[1], len(risks) if clusters is None else clusters.degrees() + 1)
    number = risks.independent_size

    def benefits(of: TopLabel, reached: Tensor) -> tuple[Tensor, Tensor, Above]:
        above = Above.of(of, reached, draws.group, draws.weights.shape[1])
        treated, totals = torch.tensordot(weights, above.treated, 1), torch.tensordot(weights, above.totals, 1)
        n = totals.sum(1, keepdim=True)
        return (treated[:, 1] - odds * treated[:, 0]) / n, (totals[:, 1:] - odds * totals[:, :1]) / n, above

    def estimates(drawn: Tensor) -> list[Estimate]:  # (1 + resamples, m); the first is of all samples
        if number < FEWEST:
            return [Estimate(value, math.nan, math.nan) for value in drawn[0].tolist()]
        return [Estimate(float(own[0]), *bootstrap_interval(own[1:], size=size)) for own in drawn.T]

    reached = lowest_reaching(at, _dtype(samples))
    model, all_of_them, above = benefits(risks, reached)
    widened = above.widened(odds, clusters, *map(estimates, (model, all_of_them, model - all_of_them)))
    to_baseline: list[Estimate] | list[None] = [None] * len(at)
    if baseline is not None:
        others = counted_samples(as_risk(baseline))
        if len(others) != len(risks) or not torch.equal(others.correct, risks.correct):
            raise InputError("baseline must have the same samples with the same labels, in the same order.")
        theirs = lowest_reaching(at, _dtype(baseline))
        estimated = estimates(model - benefits(others, theirs)[0])
        ours_alone, theirs_alone = _treated_by_one(risks, others, reached, theirs)
        masses = ((-odds, ours_alone[0]), (1.0, ours_alone[1]), (odds, theirs_alone[0]), (-1.0, theirs_alone[1]))
        to_baseline = above.widened_by(estimated, clusters, *masses)
    return tuple(map(NetBenefit, at.tolist(), *widened, *above.shares(clusters), to_baseline))


def lowest_reaching(thresholds: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the lowest risks that reach thresholds, as those of this precision are read."""
    return thresholds * (1 - _ROUNDING * torch.finfo(dtype).eps)


def _treated_by_one(risks: TopLabel, others: TopLabel, reached: Tensor, theirs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mass that one model acts on and the other does not, and the reverse, by class, (2, m) each."""
    mass = torch.ones_like(risks.confidence) if risks.weights is None else risks.weights
    mass, positive, m = mass.double().cpu(), risks.correct.long().cpu(), len(reached)
    order = reached.argsort()
    first, second = (
        torch.searchsorted(bounds[order], one.confidence.double().cpu(), right=True)
        for one, bounds in ((risks, reached), (others, theirs))
    )
    size, back = m + 1, order.argsort()
    sums = sums_by((positive * size + first) * size + second, mass, 2 * size * size).view(2, size, size)
    # A sample that reaches i thresholds by the one and j by the other is treated by the one alone at those between.
    by_first = sums.flip(1).cumsum(1).flip(1).cumsum(2)[:, 1:, :-1].diagonal(dim1=1, dim2=2)
    by_second = sums.flip(2).cumsum(2).flip(2).cumsum(1)[:, :-1, 1:].diagonal(dim1=1, dim2=2)
    return by_first[:, back], by_second[:, back]


def _dtype(samples: Predictions | TopLabel) -> torch.dtype:
    return samples.confidence.dtype if isinstance(samples, TopLabel) else samples.logits.dtype


class Above(NamedTuple):
    """Sums over samples at or above thresholds, of the negative class and of the positive one."""

    treated: Tensor  # (groups, 2, m)
    totals: Tensor  # (groups, 2)
    squares: Tensor  # (2, m) squared weights of the treated
    total_squares: Tensor  # (2,)

    @classmethod
    def of(cls, risks: TopLabel, thresholds: Tensor, group: Tensor, groups: int) -> "Above":
        confidence, positive, m = risks.confidence.double().cpu(), risks.correct.long().cpu(), len(thresholds)
        mass = torch.ones_like(confidence) if risks.weights is None else risks.weights.double().cpu()
        order = thresholds.argsort()
        place = torch.searchsorted(thresholds[order], confidence, right=True)  # thresholds that it reaches
        sums = sums_by((group * 2 + positive) * (m + 1) + place, mass, groups * 2 * (m + 1)).view(groups, 2, m + 1)
        squares = sums_by(positive * (m + 1) + place, mass.square(), 2 * (m + 1)).view(2, m + 1)
        above, squares_above = (part.flip(-1).cumsum(-1).flip(-1)[..., 1:] for part in (sums, squares))
        back = order.argsort()
        return cls(above[..., back], sums.sum(-1), squares_above[..., back], squares.sum(-1))

    def widened(
        self, odds: Tensor, clusters: Clusters | None, *estimated: list[Estimate]
    ) -> tuple[list[Estimate], list[Estimate], list[Estimate]]:
        """Return net benefits, those of acting on all, and their differences, as wide as their shares at least."""
        treated = self.treated.sum(0)
        totals = self.totals.sum(0)[:, None].expand_as(treated)
        net_benefit, treat_all, to_treat_all = estimated
        return (
            self.widened_by(net_benefit, clusters, (-odds, treated[0]), (1.0, treated[1])),
            self.widened_by(treat_all, clusters, (1 + odds, totals[1])),
            self.widened_by(to_treat_all, clusters, (odds, totals[0] - treated[0]), (-1.0, totals[1] - treated[1])),
        )

    def widened_by(
        self, estimated: list[Estimate], clusters: Clusters | None, *masses: tuple[Tensor | float, Tensor]
    ) -> list[Estimate]:
        """Return estimates as wide at least as the sum of factors times shares of all samples, of these masses, (m,).

        Wilson's distances to the bounds of the shares add up in squares.
        """
        n = float(self.totals.sum())
        size = n**2 / float(self.total_squares.sum() * (1.0 if clusters is None else clusters.design_effect))
        below, above = (
            torch.zeros(len(estimated), dtype=torch.float64),
            torch.zeros(len(estimated), dtype=torch.float64),
        )
        for factor, mass in masses:
            shares = (mass / n).clamp(0, 1)
            bounds = torch.tensor([wilson_interval(share * size, size) for share in shares.tolist()])
            ends = torch.stack([bounds[:, 0] - shares, bounds[:, 1] - shares]) * factor
            below, above = below + ends.amin(0).square(), above + ends.amax(0).square()
        return [
            Estimate(one.value, min(one.low, one.value - low), max(one.high, one.value + high))
            for one, low, high in zip(estimated, below.sqrt().tolist(), above.sqrt().tolist(), strict=True)
        ]

    def shares(self, clusters: Clusters | None) -> list[list[Estimate]]:
        """Return the shares of treated samples, of treated positives, and of positives among the treated."""
        effect = 1.0 if clusters is None else clusters.design_effect
        treated, totals = self.treated.sum(0), self.totals.sum(0)

        def share(hits: Tensor, of: Tensor, squares: Tensor) -> list[Estimate]:
            trials = effective_number(of, squares * effect)
            return [
                Estimate(hit / n, *wilson_interval(hit / n * size, size)) if n > 0 else Estimate(*[math.nan] * 3)
                for hit, n, size in zip(hits.tolist(), of.tolist(), trials.tolist(), strict=True)
            ]

        alike = torch.ones_like(treated[0])
        return [
            share(treated.sum(0), totals.sum() * alike, self.total_squares.sum() * alike),
            share(treated[1], totals[1] * alike, self.total_squares[1] * alike),
            share(treated[1], treated.sum(0), self.squares.sum(0)),
        ]

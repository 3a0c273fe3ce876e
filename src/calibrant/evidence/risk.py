"""The risk of the positive class: its probability against how often it occurs, and the decisions taken by it.

Users of two classes act by P(positive), whichever class is predicted: they ask whether 10 % happens in 10 of 100 cases,
on average (calibration in the large), at every risk (slope, flexible curve, tenths of the samples), and what acting
above a threshold gains (net benefit). Confidences in being right are risks of being right.

References: Van Calster et al. (2019), Calibration: the Achilles Heel of Predictive Analytics, BMC Medicine; Vickers &
Elkin (2006), Decision Curve Analysis, Medical Decision Making.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from calibrant.checks import check_rates, with_devices_of_inputs
from calibrant.errors import InputError
from calibrant.evidence.clusters import Clusters, squares_at
from calibrant.evidence.estimates import Estimate, draw_groups, estimate
from calibrant.evidence.intervals import FEWEST, bootstrap_interval, t_quantile, wilson_interval
from calibrant.metrics import AUROC, ECE, Accuracy, Confidence, SmECE
from calibrant.metrics.states import effective_number
from calibrant.numerics.binning import sums_by
from calibrant.predictions import Predictions, TopLabel, counted_samples

_MOST_LOG_ODDS, _MOST_STEPS = 60.0, 50  # of a line: probabilities of 0 have log-odds of a floor; beyond, it diverges
_FEW = 10_000  # samples, or clusters, up to which it shows that each moves the line towards itself
_TENTHS = 10
_KNOTS = (0.05, 0.35, 0.65, 0.95)  # quantiles of the log-odds; Harrell (2015), Regression Modeling Strategies, 2.4.6
_NODES = 51  # of the curve, and as many more
_EPS = 4  # units in the last place by which a risk that is read may lie below what a file holds
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


def as_risk(samples: Predictions | TopLabel) -> TopLabel:
    """Return the risk of class 1 of two as a confidence, and whether a sample is of that class as correctness."""
    if isinstance(samples, TopLabel):
        return samples
    if samples.n_classes != 2:
        raise InputError(
            f"a risk must be the probability of one of two classes; got {samples.n_classes} classes. Evaluate one at a "
            "time: TopLabel(probability of the class, is of the class)."
        )
    log_odds = samples.logits.double().diff(dim=1)[:, 0]
    top = TopLabel(log_odds.sigmoid(), samples.labels == 1, log_odds, weights=samples.weights)
    return top if samples.clusters is None else top.with_clusters(samples.clusters)


@with_devices_of_inputs
def evaluate_risk(samples: Predictions | TopLabel, *, n_bins: int = 15, resamples: int = 1000, seed: int = 0) -> Risk:
    """Compare the probability of the positive class with how often that class occurs.

    Differences and ratios have Student's t intervals, by cluster where samples are in some; the curve is a logistic
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
    return Risk(
        predicted=estimates["confidence"],
        observed=estimates["accuracy"],
        difference=_ratio(risks, risks.confidence - outcome, ones),
        ratio=_ratio(risks, outcome, risks.confidence, of_logarithm=True),
        ece=estimates["ece"],
        smece=estimates["smece"],
        auroc=estimates["auroc"],
        tenths=tenths_of(risks),
        curve=curve_of(risks),
    )


def _ratio(samples: TopLabel, above: Tensor, below: Tensor, *, of_logarithm: bool = False) -> Estimate:
    """Return the ratio of two sums with a linearised interval, symmetric on a log scale if asked for."""
    counts = torch.ones_like(above) if samples.sample_counts is None else samples.sample_counts
    total, size, clusters = float(counts @ below), samples.independent_size, Clusters.of(samples)
    value = float(counts @ above) / total if total else math.nan
    if size < FEWEST or not total or (of_logarithm and value == 0):
        return Estimate(value, math.nan, math.nan)
    changes = samples.cluster_sums(counts * (above - value * below)) / total
    degrees = size - 1 if clusters is None else clusters.degrees()
    half = t_quantile(degrees) * math.sqrt(size / (size - 1) * float(changes.square().sum()))
    if of_logarithm:
        return Estimate(value, value * math.exp(-half / value), value * math.exp(half / value))
    return Estimate(value, value - half, value + half)


def tenths_of(risks: TopLabel) -> tuple[RiskGroup, ...]:
    """Cut the samples into tenths by their risk; one that lies across a cut goes where its middle is."""
    values, index = risks.confidence.unique(return_inverse=True)
    mass = torch.ones_like(risks.confidence) if risks.weights is None else risks.weights
    of_value = sums_by(index, mass, len(values))
    middle = (of_value.cumsum(0) - of_value / 2) / of_value.sum()
    place = (middle * _TENTHS).long().clamp(max=_TENTHS - 1)[index]
    total, predicted, observed = (
        sums_by(place, mass * column, _TENTHS)
        for column in (torch.ones_like(mass), risks.confidence, risks.correct.double())
    )
    trials = effective_number(total, squares_at(risks, place, _TENTHS))
    groups = []
    for i in total.nonzero()[:, 0].tolist():
        own, share = risks.confidence[place == i], float(observed[i] / total[i])
        interval = wilson_interval(share * float(trials[i]), float(trials[i]))
        bounds = (float(own.min()), float(own.max()), float(total[i] / total.sum()), float(predicted[i] / total[i]))
        groups.append(RiskGroup(*bounds, Estimate(share, *interval)))
    return tuple(groups)


def curve_of(risks: TopLabel) -> RiskCurve | None:
    """Return a logistic regression on a restricted cubic spline of the log-odds, where they allow it.

    It is of the samples whose probability is neither 0 nor 1, as that of a few is where probabilities were rounded.
    """
    is_between = risks.log_odds.abs() < _MOST_LOG_ODDS
    risks = risks[is_between] if is_between.any() else risks
    log_odds = risks.log_odds.double()
    if not _has_line(log_odds):
        return None
    order = log_odds.argsort()
    rising = log_odds[order]
    counts = torch.ones_like(log_odds) if risks.sample_counts is None else risks.sample_counts
    reached = counts[order].cumsum(0)

    def quantiles(shares: Tensor) -> Tensor:
        return rising[torch.searchsorted(reached, shares.to(reached) * reached[-1]).clamp(max=len(rising) - 1)]

    knots = quantiles(torch.tensor(_KNOTS, dtype=torch.float64)).unique()
    spaced = torch.linspace(float(rising[0].sigmoid()), float(rising[-1].sigmoid()), _NODES, dtype=torch.float64)
    by_rank = quantiles(torch.linspace(0, 1, _NODES, dtype=torch.float64)).sigmoid()
    nodes = torch.cat([spaced.to(by_rank), by_rank]).clamp(rising[0].sigmoid(), rising[-1].sigmoid()).unique()
    inputs, at = _spline(log_odds, knots), _spline(nodes.logit(), knots)
    fitted = _logistic(inputs, torch.zeros_like(log_odds), risks.correct.double(), counts, risks, at=at)
    if fitted is None:
        return None
    columns = [[getattr(one, name) for one in fitted] for name in ("value", "low", "high")]
    curves = (tuple(torch.tensor(column, dtype=torch.float64).sigmoid().tolist()) for column in columns)
    return RiskCurve(tuple(nodes.tolist()), *curves)


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
    which the positive class is as frequent as where the model is used. Shares have Wilson's interval.

    Args:
        samples: Logits or probabilities of two classes with labels; or confidences, as risks of being right.
        thresholds: Risks from which to act, between 0 and 1.
        baseline: Other predictions for the same samples, to compare with.
        resamples: Number of bootstrap draws; those of samples in clusters draw clusters.
        seed: Random seed.

    Reference: Vickers & Elkin (2006), Decision Curve Analysis, Medical Decision Making.

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

    def benefits(of: TopLabel, dtype: torch.dtype) -> tuple[Tensor, Tensor, _Above]:
        above = _Above.of(of, at - _EPS * torch.finfo(dtype).eps, draws.group, draws.weights.shape[1])
        treated, totals = torch.tensordot(weights, above.treated, 1), torch.tensordot(weights, above.totals, 1)
        n = totals.sum(1, keepdim=True)
        return (treated[:, 1] - odds * treated[:, 0]) / n, (totals[:, 1:] - odds * totals[:, :1]) / n, above

    def estimates(drawn: Tensor) -> list[Estimate]:  # (1 + resamples, m); the first is of all samples
        if number < FEWEST:
            return [Estimate(value, math.nan, math.nan) for value in drawn[0].tolist()]
        return [Estimate(float(own[0]), *bootstrap_interval(own[1:], size=size)) for own in drawn.T]

    model, all_of_them, above = benefits(risks, _dtype(samples))
    to_baseline: list[Estimate] | list[None] = [None] * len(at)
    if baseline is not None:
        others = counted_samples(as_risk(baseline))
        if len(others) != len(risks) or not torch.equal(others.correct, risks.correct):
            raise InputError("baseline must have the same samples with the same labels, in the same order.")
        to_baseline = estimates(model - benefits(others, _dtype(baseline))[0])
    columns = (estimates(model), estimates(all_of_them), estimates(model - all_of_them), *above.shares(clusters))
    return tuple(map(NetBenefit, at.tolist(), *columns, to_baseline))


def _dtype(samples: Predictions | TopLabel) -> torch.dtype:
    return samples.confidence.dtype if isinstance(samples, TopLabel) else samples.logits.dtype


class _Above(NamedTuple):
    """Sums over samples at or above thresholds, of the negative class and of the positive one."""

    treated: Tensor  # (groups, 2, m)
    totals: Tensor  # (groups, 2)
    squares: Tensor  # (2, m) squared weights of the treated
    total_squares: Tensor  # (2,)

    @classmethod
    def of(cls, risks: TopLabel, thresholds: Tensor, group: Tensor, groups: int) -> "_Above":
        confidence, positive, m = risks.confidence.double().cpu(), risks.correct.long().cpu(), len(thresholds)
        mass = torch.ones_like(confidence) if risks.weights is None else risks.weights.double().cpu()
        order = thresholds.argsort()
        place = torch.searchsorted(thresholds[order], confidence, right=True)  # thresholds that it reaches
        sums = sums_by((group * 2 + positive) * (m + 1) + place, mass, groups * 2 * (m + 1)).view(groups, 2, m + 1)
        squares = sums_by(positive * (m + 1) + place, mass.square(), 2 * (m + 1)).view(2, m + 1)
        above, squares_above = (part.flip(-1).cumsum(-1).flip(-1)[..., 1:] for part in (sums, squares))
        back = order.argsort()
        return cls(above[..., back], sums.sum(-1), squares_above[..., back], squares.sum(-1))

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


class CalibrationLine(NamedTuple):
    """Logistic regression of outcomes on the log-odds of their probabilities: 1 and 0 if these are calibrated."""

    slope: Estimate  # below 1, probabilities are too extreme, above 0.5 and below it
    intercept: Estimate  # beside that slope
    in_the_large: Estimate  # the intercept at a slope of 1: below 0, probabilities are too high on average


def calibration_line(samples: Predictions | TopLabel) -> CalibrationLine | None:
    """Return calibration slope, intercept and calibration in the large of class 1 of two, or of top labels.

    Maximum likelihood; Wald intervals from the jackknife variance, which also holds where no line fits, by cluster
    where samples are in some, and Student's t. None for more classes, and where there is no line: probabilities of 0 or
    1, one outcome only, separable samples. The intervals of fewer than ten samples or clusters are unknown.

    References: Cox (1958), Two Further Applications of a Model for Binary Regression, Biometrika; Van Calster et al.
    (2019), Calibration: the Achilles Heel of Predictive Analytics, BMC Medicine; Bell & McCaffrey (2002), Bias
    Reduction in Standard Errors for Linear Regression with Multi-Stage Samples, Survey Methodology.

    Example:
        >>> p = torch.linspace(0.05, 0.95, 19).repeat_interleave(100)
        >>> labels = torch.arange(1, 101).repeat(19) <= 100 * p + 0.5  # as often as p says
        >>> line = calibration_line(Predictions.from_binary_probs(p, labels.long()))
        >>> round(line.slope.value, 3), abs(round(line.in_the_large.value, 3))
        (1.0, 0.0)
    """
    if isinstance(samples, Predictions) and samples.n_classes != 2:
        return None
    risks = as_risk(samples)
    log_odds, target = risks.log_odds.double(), risks.correct.double()
    counts = torch.ones_like(log_odds) if risks.sample_counts is None else risks.sample_counts.double()
    if not _has_line(log_odds):
        return None
    ones = torch.ones_like(log_odds)
    with_slope = _logistic(torch.stack([ones, log_odds], 1), torch.zeros_like(log_odds), target, counts, risks)
    alone = _logistic(ones[:, None], log_odds, target, counts, risks)
    return None if with_slope is None or alone is None else CalibrationLine(with_slope[1], with_slope[0], alone[0])


def _has_line(log_odds: Tensor) -> bool:
    """Return whether a logistic regression on log-odds may have an optimum: they are finite, and not all the same."""
    return bool(log_odds.abs().max() < _MOST_LOG_ODDS and log_odds.min() < log_odds.max())


def _logistic(
    inputs: Tensor, offset: Tensor, target: Tensor, counts: Tensor, risks: TopLabel, *, at: Tensor | None = None
) -> list[Estimate] | None:
    """Fit a logistic regression by Newton's method; None where it does not converge.

    Return its coefficients or, with inputs ``at``, (m, k), its log-odds there.
    """
    beta = torch.zeros(inputs.shape[1], dtype=torch.float64, device=inputs.device)
    for _ in range(_MOST_STEPS):
        p = (inputs @ beta + offset).sigmoid()
        residual = (counts * (target - p))[:, None] * inputs
        hessian = (inputs * (counts * p * (1 - p))[:, None]).T @ inputs
        factor, failed = torch.linalg.cholesky_ex(hessian)
        if failed:
            return None
        step = torch.cholesky_solve(residual.sum(0)[:, None], factor)[:, 0]
        beta = beta + step * min(1.0, 1 / float(step.abs().max().clamp(min=1e-300)))  # no overshoot from 0
        if step.abs().max() < 1e-9:
            rows = torch.eye(len(beta)).to(beta) if at is None else at
            half = _half_widths(inputs, counts * p * (1 - p), residual, hessian, risks, rows).tolist()
            return [Estimate(b, b - e, b + e) for b, e in zip((rows @ beta).tolist(), half, strict=True)]
    return None


def _half_widths(
    inputs: Tensor, curvature: Tensor, residual: Tensor, hessian: Tensor, risks: TopLabel, rows: Tensor
) -> Tensor:
    """Return half the width of the interval of each row of coefficients, from how each sample or cluster moves them."""
    size, k, clusters = risks.independent_size, inputs.shape[1], Clusters.of(risks)
    if size < FEWEST:
        return torch.full_like(rows[:, 0], math.nan)
    scores = torch.stack([risks.cluster_sums(column) for column in residual.T], 1)
    if size <= _FEW:
        products = [risks.cluster_sums(curvature * inputs[:, i] * inputs[:, j]) for i in range(k) for j in range(k)]
        others = hessian - torch.stack(products, 1).view(-1, k, k)
        changes = torch.linalg.solve_ex(others, scores[:, :, None]).result[:, :, 0]
    else:
        changes = torch.linalg.solve(hessian, scores.T).T
    degrees = size - k if clusters is None else max(1.0, clusters.degrees() + 1 - k)
    variance = ((rows @ (changes.T @ changes)) * rows).sum(1).clamp(min=0)
    return t_quantile(degrees) * (variance * (size - 1) / size).sqrt()

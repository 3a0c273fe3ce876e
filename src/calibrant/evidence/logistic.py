"""Logistic regression of outcomes on the log-odds of their probabilities: calibration slope, and smooth curves."""

import math
from enum import StrEnum
from itertools import combinations_with_replacement
from typing import NamedTuple, Protocol, final

import torch
from torch import Tensor

from calibrant.evidence.clusters import Clusters, sizes_of
from calibrant.evidence.estimates import Estimate
from calibrant.evidence.intervals import FEWEST, t_quantile
from calibrant.predictions import Predictions, TopLabel, as_risk

_MOST_LOG_ODDS, _MOST_STEPS = 60.0, 50  # probabilities of 0 have log-odds of a floor; beyond 50 steps, it diverges
_ROWS = 1 << 14  # whose products are summed together
_FEW = 10_000  # samples, or clusters, up to which it shows that each moves the line towards itself


class Spread(Protocol):
    """How far the coefficients of a regression would spread with other samples from the same source."""

    def half_widths(self, inputs: Tensor, curvature: Tensor, residual: Tensor, rows: Tensor) -> Tensor:
        """Return half the width of the 95 % interval of each row of coefficients, (m,)."""
        ...

    def of(self, chosen: Tensor) -> "Spread":
        """Return that of some of the samples."""
        ...


@final
class Outcomes(NamedTuple):
    """What a regression is fitted to: outcomes at log-odds, and how often each counts."""

    log_odds: Tensor  # (n,) float64
    occurred: Tensor  # (n,) 0 or 1, float64
    counts: Tensor  # (n,)
    spread: Spread

    @classmethod
    def of(cls, risks: TopLabel) -> "Outcomes":
        log_odds = risks.log_odds.double()
        counts = torch.ones_like(log_odds) if risks.sample_counts is None else risks.sample_counts.double()
        return cls(log_odds, risks.correct.double(), counts, SpreadOfSamples(risks))

    @property
    def have_line(self) -> bool:
        """Whether a regression may have an optimum: the log-odds are finite, and not all the same."""
        return bool(self.log_odds.abs().max() < _MOST_LOG_ODDS and self.log_odds.min() < self.log_odds.max())

    def without_extremes(self) -> "Outcomes":
        """Return those whose probability is neither 0 nor 1, if there are any."""
        kept = self.log_odds.abs() < _MOST_LOG_ODDS
        if kept.all() or not kept.any():
            return self
        return Outcomes(self.log_odds[kept], self.occurred[kept], self.counts[kept], self.spread.of(kept))


@final
class SpreadOfSamples:
    """The spread by how each sample, or cluster of them, moves the coefficients."""

    def __init__(self, risks: TopLabel) -> None:
        self._risks = risks

    def of(self, chosen: Tensor) -> "SpreadOfSamples":
        """Return that of some of the samples."""
        return SpreadOfSamples(self._risks[chosen])

    def half_widths(self, inputs: Tensor, curvature: Tensor, residual: Tensor, rows: Tensor) -> Tensor:
        """Return half the width of each interval by the jackknife variance and Student's t of its own degrees."""
        risks, k = self._risks, inputs.shape[1]
        size, of_variance = sizes_of(Clusters.of(risks), risks.effective_size)
        if size < FEWEST:
            return torch.full_like(rows[:, 0], math.nan)
        hessian = (inputs * curvature[:, None]).T @ inputs
        scores = torch.stack([risks.cluster_sums(column) for column in (residual[:, None] * inputs).T], 1)
        if size <= _FEW:
            products = [risks.cluster_sums(curvature * inputs[:, i] * inputs[:, j]) for i in range(k) for j in range(k)]
            others = hessian - torch.stack(products, 1).view(-1, k, k)
            changes = torch.linalg.solve_ex(others, scores[:, :, None]).result[:, :, 0]
        else:
            changes = torch.linalg.solve(hessian, scores.T).T
        return half_widths_of(changes, rows, size, max(1.0, of_variance - k))


def half_widths_of(changes: Tensor, rows: Tensor, n: float, most: float, shares: Tensor | None = None) -> Tensor:
    """Return half the width of the interval of each row of coefficients, from what independent parts change them by.

    The variance is the sum of squared changes. It has the degrees of freedom of the chi-squared distribution whose
    variance is to its mean as the fourth powers show: few where a few parts decide, such as the samples of a rare
    outcome, and ``most`` where all count alike.

    Args:
        changes: What each part, or some equal parts together, change the coefficients by, (p, k).
        rows: Sums of the coefficients that get an interval, (m, k).
        n: Number of parts.
        most: Degrees of freedom of a variance to which all contribute.
        shares: What one part is of those together, (p,).
    """
    columns = changes.T.contiguous()
    pairs = list(combinations_with_replacement(range(len(columns)), 2))
    second, fourth = rows.new_zeros(len(pairs)), rows.new_zeros(len(pairs), len(pairs))
    for place in range(0, columns.shape[1], _ROWS):
        some = columns[:, place : place + _ROWS]
        products = torch.stack([some[i] * some[j] for i, j in pairs])
        scaled = products if shares is None else products * shares[place : place + _ROWS]
        second += scaled.sum(1)
        fourth += scaled @ (scaled if shares is None else scaled * shares[place : place + _ROWS]).T
    of_rows = torch.stack([rows[:, i] * rows[:, j] * (1 + (i != j)) for i, j in pairs], 1)
    variance, powers = (of_rows @ second).clamp(min=0), ((of_rows @ fourth) * of_rows).sum(1)
    excess = (powers - variance.square() / n).clamp(min=1e-300)
    degrees = (2 * variance.square() / excess).clamp(1.0, most)
    quantiles = torch.tensor([t_quantile(number) for number in degrees.tolist()], dtype=torch.float64).to(rows)
    return quantiles * (variance * (n - 1) / n).sqrt()


class CalibrationLine(NamedTuple):
    """Logistic regression of outcomes on the log-odds of their probabilities: 1 and 0 if these are calibrated."""

    slope: Estimate  # below 1, probabilities are too extreme, above 0.5 and below it
    intercept: Estimate  # beside that slope
    in_the_large: Estimate  # the intercept at a slope of 1: below 0, probabilities are too high on average


def calibration_line(samples: Predictions | TopLabel) -> CalibrationLine | None:
    """Return calibration slope, intercept and calibration in the large of class 1 of two, or of top labels.

    Maximum likelihood; Wald intervals from the jackknife variance, which also holds where no line fits, by cluster
    where samples are in some, and Student's t with the degrees of freedom that this variance has, few where one
    outcome is rare. None for more classes, and where there is no line: probabilities of 0 or 1, one outcome only,
    separable samples. The intervals of fewer than ten samples or clusters are unknown.

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
    return line_of(Outcomes.of(as_risk(samples)))


class NoLine(StrEnum):
    """Why top labels have no calibration line."""

    all_right = "all_right"
    all_wrong = "all_wrong"
    extreme = "extreme"  # some confidences are 0 or 1
    constant = "constant"
    separable = "separable"  # by a threshold of the confidence


def why_no_line(outcomes: Outcomes) -> NoLine:
    """Return why outcomes, of which :func:`line_of` is None, have no line.

    Example:
        >>> print(why_no_line(Outcomes.of(TopLabel([0.8, 0.8], [True, False]))))
        constant
    """
    if (outcomes.occurred == outcomes.occurred[0]).all():
        return NoLine.all_right if outcomes.occurred[0] else NoLine.all_wrong
    if outcomes.have_line:
        return NoLine.separable
    return NoLine.constant if outcomes.log_odds.abs().max() < _MOST_LOG_ODDS else NoLine.extreme


def line_of(outcomes: Outcomes) -> CalibrationLine | None:
    """Return the calibration line of outcomes, where there is one."""
    if not outcomes.have_line:
        return None
    log_odds, ones = outcomes.log_odds, torch.ones_like(outcomes.log_odds)
    with_slope = logistic(outcomes, torch.stack([ones, log_odds], 1))
    alone = logistic(outcomes, ones[:, None], offset=log_odds)
    return None if with_slope is None or alone is None else CalibrationLine(with_slope[1], with_slope[0], alone[0])


def logistic(
    outcomes: Outcomes, inputs: Tensor, *, offset: Tensor | None = None, at: Tensor | None = None
) -> list[Estimate] | None:
    """Fit a logistic regression on inputs, (n, k), by Newton's method; None where it does not converge.

    Return its coefficients or, with inputs ``at``, (m, k), its log-odds there.
    """
    beta = torch.zeros(inputs.shape[1], dtype=torch.float64, device=inputs.device)
    for _ in range(_MOST_STEPS):
        p = (inputs @ beta if offset is None else inputs @ beta + offset).sigmoid()
        residual, curvature = outcomes.counts * (outcomes.occurred - p), outcomes.counts * p * (1 - p)
        factor, failed = torch.linalg.cholesky_ex((inputs * curvature[:, None]).T @ inputs)
        if failed:
            return None
        step = torch.cholesky_solve((residual @ inputs)[:, None], factor)[:, 0]
        beta = beta + step * min(1.0, 1 / float(step.abs().max().clamp(min=1e-300)))  # no overshoot from 0
        if step.abs().max() < 1e-9:
            rows = torch.eye(len(beta)).to(beta) if at is None else at
            half = outcomes.spread.half_widths(inputs, curvature, residual, rows).tolist()
            return [Estimate(b, b - e, b + e) for b, e in zip((rows @ beta).tolist(), half, strict=True)]
    return None

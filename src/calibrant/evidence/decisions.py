"""Decisions taken by the risk of the positive class: what acting above a threshold gains (net benefit).

References: Vickers & Elkin (2006), Decision Curve Analysis, Medical Decision Making.
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
from calibrant.evidence.clusters import Clusters, sizes_of
from calibrant.evidence.estimates import Estimate, after_all, draw_groups
from calibrant.evidence.intervals import FEWEST, bootstrap_interval, t_quantile, wilson_interval
from calibrant.metrics.states import effective_number
from calibrant.numerics.binning import sums_by
from calibrant.predictions import Predictions, TopLabel, as_risk, counted_samples

_ROUNDING = 32  # relative, in the precision of the scores: a risk that is read may lie so far below what a file holds
_CURVE = tuple(percent / 100 for percent in range(1, 100))


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
    odds = at / (1 - at)
    draws = draw_groups(risks, resamples, np.random.default_rng([seed, 3]))
    weights, groups = after_all(draws.weights), draws.weights.shape[1]
    size = min(groups, sizes_of(Clusters.of(risks), len(risks))[1])
    number = risks.independent_size

    def benefits(of: TopLabel, reached: Tensor) -> tuple[Tensor, Tensor, Above]:
        above = Above.of(of, reached, draws.group, groups)
        treated, totals = torch.tensordot(weights, above.treated, 1), torch.tensordot(weights, above.totals, 1)
        n = totals.sum(1, keepdim=True)
        return (treated[:, 1] - odds * treated[:, 0]) / n, (totals[:, 1:] - odds * totals[:, :1]) / n, above

    def estimates(drawn: Tensor) -> list[Estimate]:  # (1 + resamples, m); the first is of all samples
        if number < FEWEST:
            return [Estimate(value, math.nan, math.nan) for value in drawn[0].tolist()]
        return [Estimate(float(own[0]), *bootstrap_interval(own[1:], size=size)) for own in drawn.T]

    reached = lowest_reaching(at, _dtype(samples))
    model, all_of_them, above = benefits(risks, reached)
    widened = above.widened(odds, *map(estimates, (model, all_of_them, model - all_of_them)))
    to_baseline: list[Estimate] | list[None] = [None] * len(at)
    if baseline is not None:
        others = counted_samples(as_risk(baseline))
        if len(others) != len(risks) or not torch.equal(others.correct, risks.correct):
            raise InputError("baseline must have the same samples with the same labels, in the same order.")
        theirs = lowest_reaching(at, _dtype(baseline))
        estimated = estimates(model - benefits(others, theirs)[0])
        ours_alone, theirs_alone = _treated_by_one(risks, others, reached, theirs)
        masses = ((-odds, ours_alone[0]), (1.0, ours_alone[1]), (odds, theirs_alone[0]), (-1.0, theirs_alone[1]))
        to_baseline = above.widened_by(estimated, *masses)
    return tuple(map(NetBenefit, at.tolist(), *widened, *above.shares(draws.weights), to_baseline))


def lowest_reaching(thresholds: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the lowest risks that reach thresholds, as those of this precision are read."""
    return thresholds * (1 - _ROUNDING * torch.finfo(dtype).eps)


def _treated_by_one(risks: TopLabel, others: TopLabel, reached: Tensor, theirs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mass that one model acts on and the other does not, and the reverse, by class, (2, m) each."""
    mass, positive, m = risks.mass.cpu(), risks.correct.long().cpu(), len(reached)
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
    clusters: Clusters | None = None

    @classmethod
    def of(cls, risks: TopLabel, thresholds: Tensor, group: Tensor, groups: int) -> "Above":
        confidence, positive, m = risks.confidence.double().cpu(), risks.correct.long().cpu(), len(thresholds)
        mass = risks.mass.cpu()
        order = thresholds.argsort()
        place = torch.searchsorted(thresholds[order], confidence, right=True)  # thresholds that it reaches
        sums = sums_by((group * 2 + positive) * (m + 1) + place, mass, groups * 2 * (m + 1)).view(groups, 2, m + 1)
        squares = sums_by(positive * (m + 1) + place, mass.square(), 2 * (m + 1)).view(2, m + 1)
        above, squares_above = (part.flip(-1).cumsum(-1).flip(-1)[..., 1:] for part in (sums, squares))
        back = order.argsort()
        return cls(above[..., back], sums.sum(-1), squares_above[..., back], squares.sum(-1), Clusters.of(risks))

    @property
    def _design_effect(self) -> float:
        return 1.0 if self.clusters is None else self.clusters.design_effect

    def widened(
        self, odds: Tensor, *estimated: list[Estimate]
    ) -> tuple[list[Estimate], list[Estimate], list[Estimate]]:
        """Return net benefits, those of acting on all, and their differences, as wide as their shares at least."""
        treated = self.treated.sum(0)
        totals = self.totals.sum(0)[:, None].expand_as(treated)
        net_benefit, treat_all, to_treat_all = estimated
        return (
            self.widened_by(net_benefit, (-odds, treated[0]), (1.0, treated[1])),
            self.widened_by(treat_all, (1 + odds, totals[1])),
            self.widened_by(to_treat_all, (odds, totals[0] - treated[0]), (-1.0, totals[1] - treated[1])),
        )

    def widened_by(self, estimated: list[Estimate], *masses: tuple[Tensor | float, Tensor]) -> list[Estimate]:
        """Return estimates as wide at least as the sum of factors times shares of all samples, of these masses, (m,).

        Wilson's distances to the bounds of the shares add up in squares.
        """
        n = float(self.totals.sum())
        size = n**2 / float(self.total_squares.sum() * self._design_effect)
        below, above = torch.zeros(2, len(estimated), dtype=torch.float64)
        for factor, mass in masses:
            shares = (mass / n).clamp(0, 1)
            bounds = torch.tensor([wilson_interval(share * size, size) for share in shares.tolist()])
            ends = torch.stack([bounds[:, 0] - shares, bounds[:, 1] - shares]) * factor
            below, above = below + ends.amin(0).square(), above + ends.amax(0).square()
        return [
            Estimate(one.value, min(one.low, one.value - low), max(one.high, one.value + high))
            for one, low, high in zip(estimated, below.sqrt().tolist(), above.sqrt().tolist(), strict=True)
        ]

    def shares(self, drawn: Tensor | None = None) -> list[list[Estimate]]:
        """Return the shares of treated samples, of treated positives, and of positives among the treated.

        Samples of a cluster have similar risks even if their outcomes do not depend on each other: shares have no fewer
        than the trials that spread as the resamples of clusters do, given how often groups are ``drawn``, (r, groups).
        """
        treated = self.treated.sum(1)
        totals, positives = (of[:, None].expand_as(treated) for of in (self.totals.sum(1), self.totals[:, 1]))

        def share(hits: Tensor, of: Tensor, squares: Tensor) -> list[Estimate]:  # (groups, m), (groups, m), (m,)
            n = of.sum(0)
            shares, trials = hits.sum(0) / n, effective_number(n, squares * self._design_effect)
            if self.clusters is not None and drawn is not None:
                wider = t_quantile(self.clusters.degrees()) / t_quantile(math.inf)
                spread = (drawn @ hits / (drawn @ of)).nan_to_num(0.0).var(0) * wider**2
                known = shares * (1 - shares) / spread.clamp(min=1e-300)
                trials = torch.where(known > 0, trials.minimum(known), trials)
            return [
                Estimate(value, *wilson_interval(value * size, size)) if size > 0 else Estimate(*[math.nan] * 3)
                for value, size in zip(shares.tolist(), trials.tolist(), strict=True)
            ]

        alike = torch.ones_like(treated[0])
        return [
            share(treated, totals, self.total_squares.sum() * alike),
            share(self.treated[:, 1], positives, self.total_squares[1] * alike),
            share(self.treated[:, 1], treated, self.squares.sum(0)),
        ]

"""Class proportions of samples without labels, and tests of what changed, by resamples of both files.

What a resample changes is followed to first order (the score bootstrap): from the reference to the calibration fitted
on it, and from both files to the proportions, which are cut off at 0. So a thousand resamples are products of matrices.

Reference: Kline & Santos (2012), A Score Based Approach to Wild Bootstrap Inference, Journal of Econometric Methods.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from calibrant.evidence.estimates import Estimate, draw_groups
from calibrant.evidence.intervals import FEWEST, bootstrap_interval, p_value, wilson_interval
from calibrant.numerics.binning import sums_by
from calibrant.numerics.mixture import MixtureFit, fit_mixture, inverse_of
from calibrant.predictions import Predictions

_LEVELS = 32  # of confidence, between which the distributions are compared
_ROWS = 1 << 20  # numbers of a block
_SMALLEST = 1e-30  # probability whose logarithm is taken


@final
class Scores(NamedTuple):
    """Inputs of an affine calibration, the probabilities that it gives, and resamples of the samples."""

    inputs: Tensor  # (n, k)
    probs: Tensor  # (n, k)
    mass: Tensor  # (n,) weights that sum to one
    size: float  # samples of equal weight that know as much
    group: Tensor  # (n,)
    weights: Tensor  # (r, groups) how often each is drawn
    clusters: Tensor | None

    @classmethod
    def of(
        cls, samples: Predictions, weight: Tensor, bias: Tensor, resamples: int, rng: np.random.Generator
    ) -> "Scores":
        """Return the scores of samples under ``weight * logits + bias``."""
        inputs = samples.logits.double().cpu()
        probs = (inputs * weight.cpu() + bias.cpu()).softmax(dim=1)
        mass, clusters = samples.mass.cpu(), None if samples.clusters is None else samples.clusters.cpu()
        draws = draw_groups(samples, resamples, rng)
        return cls(inputs, probs, mass / mass.sum(), samples.effective_size, *draws, clusters)

    @property
    def groups(self) -> int:
        return self.weights.shape[1]

    def sums(self, values: Tensor) -> Tensor:
        """Return the weighted sums of numbers per sample, (n, c), by group, (groups, c)."""
        sums = values.new_zeros(self.groups, values.shape[1])
        step = max(1, _ROWS // values.shape[1])
        for start in range(0, len(values), step):
            rows = slice(start, start + step)
            sums.index_add_(0, self.group[rows], values[rows] * self.mass[rows, None])
        return sums

    def counts(self, place: Tensor, size: int, mass: Tensor | None = None) -> Tensor:
        """Return the weight of the samples at each place, (groups, size), or what is given for it."""
        mass = self.mass if mass is None else mass
        return sums_by(self.group * size + place, mass, self.groups * size).view(self.groups, size)

    def drawn(self, sums: Tensor) -> Tensor:
        """Return by how much means differ in every resample, (r, c), from the sums by group, (groups, c)."""
        mass = sums_by(self.group, self.mass, self.groups)
        centred = sums - mass[:, None] * sums.sum(dim=0)
        return (self.weights @ centred) / (self.weights @ mass)[:, None]


class Discrepancy(NamedTuple):
    """How far two distributions differ."""

    p: float  # of the hypothesis that they are one
    distance: float  # largest share of the samples by which they differ


@final
@dataclass(frozen=True, eq=False)
class LabelShift:
    """The proportions of the new samples, and those of every resample."""

    old: Scores
    new: Scores
    labels: Tensor  # (n,) of the reference
    reference: Tensor  # (k,) its class proportions
    fit: MixtureFit
    drawn: Tensor  # (r, k) proportions of the resamples; some below 0
    change: Tensor  # (r, k) by how much the difference from the reference's moves in them, also below 0
    influence: Tensor  # (n, k + 1) of every reference sample on weight and bias of the calibration

    @classmethod
    def of(cls, old: Scores, new: Scores, labels: Tensor) -> "LabelShift":
        """Estimate the proportions of the new samples, given the calibration fitted on the reference."""
        k = old.probs.shape[1]
        reference = sums_by(labels, old.mass, k)
        ratios = new.probs / reference
        fit = fit_mixture(ratios, new.mass)
        shares, gradient, curvature, _ = fit
        relative = ratios.div_((ratios @ shares)[:, None])  # (n, k): gradients of the samples
        response = _response(fit)
        # What the scores of the likelihood owe to weight and bias of the calibration, and to the reference's shares.
        centre = (new.inputs * relative).mul_(shares).sum(dim=1)
        to_weight = (new.mass @ (relative * new.inputs)) - (new.mass * centre) @ relative
        to_bias = gradient.diag() - curvature * shares
        influence = _influence(old, labels)
        moved = old.sums(influence)
        seen = old.counts(labels, k)
        of_old = moved[:, :1] * to_weight + (moved[:, 1:] - seen / reference) @ to_bias.T
        change = new.drawn(new.sums(relative)) @ response.T + old.drawn(of_old @ response.T)
        # Shares above 0 may fall below it in a resample, which intervals cut off; those at 0 would have to rise above.
        absent = ((gradient - 1) * response.diagonal() + change).clamp(min=0)
        drawn = torch.where(shares > 0, shares + change, absent)
        return cls(old, new, labels, reference, fit, drawn, change - old.drawn(seen), influence)

    @property
    def size(self) -> int:
        """Number of groups that the resamples are drawn from, of the file that has fewer."""
        return min(self.old.groups, self.new.groups)

    @cached_property
    def ratio(self) -> Tensor:
        """By how much more of every class there is, (k,)."""
        return self.fit.shares / self.reference

    @cached_property
    def effective_size(self) -> float:
        """Effective number of reference samples, reweighted by class."""
        weights = self.old.mass * self.ratio[self.labels]
        return float(weights.sum().square() / weights.square().sum()) * min(1.0, self.old.size / len(self.labels))

    def left_out(self) -> Tensor:
        """Return by how much weight and bias of the calibration are due to every sample or its cluster, (n, k + 1)."""
        own = self.influence * self.old.mass[:, None]
        if self.old.clusters is None:
            return own
        codes = self.old.clusters.unique(return_inverse=True)[1]
        return own.new_zeros(int(codes.max()) + 1, own.shape[1]).index_add_(0, codes, own)[codes]

    def expected(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the means over new samples of numbers known of the reference, (n, c), and those of resamples, (r, c).

        They are means over the reference, reweighted by class. A class of one sample shows no spread of its own.
        """
        k = len(self.reference)
        weighted = values * self.old.mass[:, None]
        means = values.new_zeros(k, values.shape[1]).index_add_(0, self.labels, weighted) / self.reference[:, None]
        number = torch.bincount(self.labels, minlength=k)
        centre = torch.where((number > 1)[:, None], means, self.reference @ means)
        scale = self.ratio * (number / (number - 1).clamp(min=1)).sqrt()
        residuals = (values - centre[self.labels]) * scale[self.labels, None]
        return self.fit.shares @ means, self.drawn @ means + self.old.drawn(self.old.sums(residuals))

    def p_unchanged(self) -> float:
        """Return the p-value of the hypothesis that the classes are as frequent as in the reference.

        Then the mean probabilities of the classes are equal in both files, also if the calibration is not exact: on the
        reference its errors cancel.
        """
        means = [side.mass @ side.probs for side in (self.old, self.new)]
        drawn = self.new.drawn(self.new.sums(self.new.probs)) - self.old.drawn(self.old.sums(self.old.probs))
        return self._p(means[1] - means[0], drawn, self.reference.sqrt())

    def goodness_of_fit(self) -> dict[str, Discrepancy]:
        """Test the hypothesis that the new samples are those of the reference, reweighted by class.

        Distributions of :func:`features` are compared as Anderson and Darling do; ``predicted``, of more than two
        classes, is how often every class is predicted.
        """
        levels = torch.linspace(0, 1, _LEVELS // 2 + 2, dtype=torch.float64)[1:-1]
        tests = {}
        for name, (old, new) in self.features().items():
            edges = torch.cat([torch.quantile(one, levels) for one in (old, new)]).unique()
            reweighted, gap, drawn = self.compared(old, new, edges)
            below, gap = (reweighted + gap / 2).cumsum(0)[:-1].clamp(0, 1), gap.cumsum(0)[:-1]
            p = self._p(gap, drawn.cumsum(1)[:, :-1], (below * (1 - below)).clamp(min=1e-12))
            tests[name] = Discrepancy(p, float(gap.abs().max()))
        if (k := len(self.reference)) > 2:
            old, new = (side.probs.argmax(dim=1) for side in (self.old, self.new))
            reweighted, gap, drawn = self.compared(old, new, torch.arange(1, k))
            p = self._p(gap, drawn, (reweighted + gap / 2).clamp(min=1e-12).sqrt())
            tests["predicted"] = Discrepancy(p, float(gap.abs().sum() / 2))
        return tests

    def features(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Return numbers of every sample that are compared, of the reference and new, (n,) each.

        Of two classes it is the probability of the second; of more, the confidence, and the ``spread`` of the
        logarithms of all probabilities, their standard deviation. The spread rises with noise in the inputs, as of a
        poor camera, which may leave the confidence as it was.
        """
        sides = (self.old.probs, self.new.probs)
        if len(self.reference) == 2:
            return {"confidence": (sides[0][:, 1].contiguous(), sides[1][:, 1].contiguous())}
        first, second = (side.clamp(min=_SMALLEST).log_().std(dim=1) for side in sides)
        return {"confidence": (sides[0].amax(dim=1), sides[1].amax(dim=1)), "spread": (first, second)}

    def compared(self, old: Tensor, new: Tensor, edges: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return shares of the reweighted reference between edges, and by how much new ones differ, also resampled."""
        size, (old, new) = len(edges) + 1, (torch.searchsorted(edges, one, right=True) for one in (old, new))
        values, drawn = self.expected(torch.nn.functional.one_hot(old, size).double())
        counts = self.new.counts(new, size)
        return values, counts.sum(dim=0) - values, self.new.drawn(counts) - (drawn - values)

    def _p(self, difference: Tensor, drawn: Tensor, scale: Tensor) -> float:
        """Return the p-value of squared differences, (c,), from those of resamples, (r, c)."""
        widened = drawn.square() @ (1 / scale) * (self.size / max(self.size - 1, 1))
        return p_value(float(difference.square() @ (1 / scale)), widened)

    def interval(self, value: float, drawn: Tensor, trials: float | None = None) -> Estimate:
        """Return a number with the interval of its resamples, (r,); that of a share is no narrower than of so many."""
        if self.size < FEWEST:
            return Estimate(value, math.nan, math.nan)
        low, high = bootstrap_interval(drawn, size=min(self.size, trials or self.size))
        if trials is None:  # not a share
            return Estimate(value, low, high)
        least = wilson_interval(min(max(value, 0.0), 1.0) * trials, trials)
        return Estimate(value, max(0.0, min(low, least[0])), min(1.0, max(high, least[1])))

    def p_of_classes(self) -> Tensor:
        """Return the p-value of no change of each class, (k,)."""
        from scipy.special import stdtr

        shares, n_old, n_new = self.fit.shares, self.old.size, self.new.size
        pooled = (n_old * self.reference + n_new * shares) / (n_old + n_new)
        # No estimate knows more than labels would: resamples of none, or of few samples of a class, show no spread.
        least = (pooled * (1 - pooled) * (1 / n_old + 1 / n_new)).sqrt()
        spread = self.change.std(dim=0).maximum(least).clamp(min=1e-300)
        return 2 * torch.from_numpy(stdtr(self.size - 1, -((shares - self.reference).abs() / spread).numpy()))


def _response(fit: MixtureFit) -> Tensor:
    """Return what changes of the gradient do to the proportions, (k, k).

    Those above 0 move together; one at 0 is taken as the only one that could rise.
    """
    present, absent = ((fit.shares > 0) == is_present for is_present in (True, False))
    within = inverse_of(fit.curvature[present][:, present])
    across = within @ fit.curvature[present][:, absent]
    own = (fit.curvature.diagonal()[absent] - (fit.curvature[present][:, absent] * across).sum(dim=0)).clamp(min=1e-12)
    response = torch.zeros_like(fit.curvature)
    response[present.nonzero(), present.nonzero()[:, 0]] = within
    response[absent.nonzero(), present.nonzero()[:, 0]] = -across.T / own[:, None]
    response[absent, absent] = 1 / own
    return response


def _influence(old: Scores, labels: Tensor) -> Tensor:
    """Return the influence of every sample on weight and bias of the calibration, (n, k + 1)."""
    inputs, probs, mass = old.inputs, old.probs, old.mass
    n, k = probs.shape
    mean = (inputs * probs).sum(dim=1)
    weighted = probs * mass[:, None]
    curvature = torch.zeros(k + 1, k + 1, dtype=torch.float64)
    curvature[0, 0] = (weighted * inputs * inputs).sum() - mass @ mean.square()
    curvature[0, 1:] = curvature[1:, 0] = (weighted * inputs).sum(dim=0) - mean @ weighted
    curvature[1:, 1:] = weighted.sum(dim=0).diag() - weighted.T @ probs
    score = torch.cat([(inputs.gather(1, labels[:, None])[:, 0] - mean)[:, None], -probs], dim=1)
    score[torch.arange(n), labels + 1] += 1
    return score @ torch.linalg.pinv(curvature, hermitian=True)

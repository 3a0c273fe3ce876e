"""Intervals and p-values: from resamples, by Wilson's score, or from the influence of every sample."""

import math
from statistics import NormalDist
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant.evidence.clusters import Clusters
from calibrant.metrics import AUROC
from calibrant.metrics.base import Metric, RankMetric
from calibrant.metrics.binned import folded_mean
from calibrant.metrics.states import EXACT, Ranked, as_divisor, effective_number

Array: TypeAlias = NDArray[np.float64]
LEVEL = 0.05  # significance level of every test
FEWEST = 10  # samples below which a bootstrap interval is too narrow to be shown
_Z, _TAIL, _NORMAL = 1.959963984540054, 0.025, NormalDist()  # two-sided 95 %
_FOLDED = math.sqrt(2 / math.pi)  # mean of |N(0, 1)|


def bootstrap_interval(resampled: Tensor, *, size: float, acceleration: float = 0.0) -> tuple[float, float]:
    """Return the 95 % interval from the metric of every resample of ``size`` samples, (r,), by percentiles.

    These are moved by the :func:`acceleration` of what is skewed.
    """
    resampled = resampled[~resampled.isnan()]
    if not resampled.numel():
        return math.nan, math.nan
    moved = (acceleration + z for z in (-_Z, _Z))
    levels = [_NORMAL.cdf(acceleration + z / (1 - acceleration * z)) for z in moved]
    low, high = torch.quantile(_widened(resampled, size).cpu(), resampled.cpu().new_tensor(levels)).tolist()
    return low, high


def acceleration(metric: Metric, resampled: Tensor) -> float:
    """Return by how much the percentiles of a skewed mean must move: a sixth of its skewness; 0 for other metrics.

    A few samples with a large score decide a mean log-loss or Brier score, and a set with few of them shows too small a
    mean and too small a spread: without this, three in four intervals that miss the truth end below it. Bias correction
    and acceleration of a mean are alike (Efron, 1987, Better Bootstrap Confidence Intervals, Journal of the American
    Statistical Association); both come from the resamples, (r,).
    """
    if metric.family == "calibration" or metric.interval_method != "bootstrap":
        return 0.0
    above = resampled.cpu().double() - resampled.nanmean().cpu()
    above = above / above.abs().nan_to_num().max().clamp(min=1e-300)  # so that no power overflows
    skewness = float(above.pow(3).nanmean() / above.square().nanmean().clamp(min=1e-300) ** 1.5)
    signal = 1 - 6 / (len(resampled) * max(skewness**2, 1e-9))  # normal draws show a square of 6 / r
    return max(0.0, signal) * max(-1.0, min(skewness, 1.0)) / 6  # one sample that decides all gives 1


def error_interval(value: float, resampled: Tensor, floor: float | None, *, size: float) -> tuple[float, float]:
    """Return the 95 % interval of the true calibration error, from that of all samples and of every resample, (r,).

    Noise raises every calibration error, and resampling adds it a second time: the resampled errors lie above the
    original by about as much as the original lies above the truth. That bias is subtracted twice from the lower and
    once from the upper bound, because close to zero resampling shows too little of it. This suits errors of few among
    many bins; :func:`without_noise` suits errors that all bins share, if the ``floor`` is known. The interval holds
    both.
    """
    low, high = bootstrap_interval(resampled, size=size)
    bias = float(resampled.nanmean()) - value
    low, high = low - max(bias, 2 * bias), high - min(bias, 2 * bias)
    if floor is None:
        return low, high
    evenly = bootstrap_interval(without_noise(value, resampled, floor)[1], size=size)
    return min(low, evenly[0]), max(high, evenly[1])


def without_noise(
    value: float, resampled: Tensor, floor: float | None = None, *, one_sided: bool = False
) -> tuple[float, Tensor]:
    """Return a calibration error and those of its resamples, (r,), without what noise adds to them.

    ``floor`` is the mean error of a calibrated model; unknown, it follows from how far the resamples lie above the
    value. An error is taken for the mean of absolute values of normal numbers with one mean, which is returned, and a
    spread that is known from the floor: errors up to the floor become 0, large ones stay. Resamples have the noise
    twice, and so a floor higher by up to √2: as gives their mean what the value has. ``one_sided``: below 0 is 0.

    Example:
        >>> value, _ = without_noise(0.05, torch.tensor([0.06]), 0.04)
        >>> round(value, 4), without_noise(0.03, torch.tensor([0.06]), 0.04)[0]
        (0.0362, 0.0)
    """
    mean = float(resampled.nanmean())
    floor = _floor_of(value, mean) if floor is None else floor
    if not floor > 0:
        return value, resampled
    spreads = torch.cat([torch.ones(1, dtype=torch.float64), torch.linspace(2**0.25, 2**0.5, 65, dtype=torch.float64)])
    spreads *= floor / _FOLDED * (2 if one_sided else 1)
    true = _unfolded(spreads.new_tensor([value] + [mean] * 65), spreads, one_sided)
    closest = 1 + (true[1:] - true[0]).abs().argmin()
    return float(true[0]), _unfolded(resampled.double().cpu(), spreads[closest], one_sided)


def _unfolded(means: Tensor, spread: Tensor, one_sided: bool) -> Tensor:
    """Return μ for each mean of |N(μ, spread²)|, or of its positive part; 0 where no μ has so small a mean."""
    seen, rest = means / spread, float(one_sided)  # the positive part is the mean of number and absolute value
    mean, wanted = seen, (1 + rest) * seen  # too large, for a convex function, which Newton's steps then approach
    for _ in range(40):
        density = _FOLDED * torch.exp(mean.square() / -2)
        slope = torch.erf(mean / 2**0.5) + rest
        before, mean = mean, ((wanted - density) / slope.clamp(min=1e-12)).clamp(min=0)
        if bool(((before - mean).abs() < 1e-13).all()):
            break
    return spread * mean


def _floor_of(value: float, mean: float) -> float:
    """Return the mean error of a calibrated model, from the error and the mean of its resamples."""
    if mean <= value:
        return 0.0
    mu = torch.linspace(0, 12, 12_001, dtype=torch.float64)
    of_resamples = math.sqrt(2) * folded_mean(mu / math.sqrt(2))
    # The ratio of the two means falls from √2 to 1 with μ.
    closest = (of_resamples / folded_mean(mu) - (mean / value if value else math.inf)).abs().argmin()
    return _FOLDED * mean / float(of_resamples[closest])


def _widened(resampled: Tensor, size: float) -> Tensor:
    """Return the values of resamples of so many samples, or groups of samples, spread as Student's t asks.

    Without this the interval of a mean of ten samples misses the truth in 12 % of cases (Hesterberg, 2015, What
    Teachers Should Know About the Bootstrap, The American Statistician).
    """
    if size < 2:
        return resampled
    mean = resampled.mean()
    return mean + math.sqrt(size / (size - 1)) * t_quantile(size - 1) / _Z * (resampled - mean)


def wilson_interval(successes: float, n: float) -> tuple[float, float]:
    """Return the 95 % score interval of a share; it does not collapse when all samples are right.

    Example:
        >>> tuple(round(bound, 3) for bound in wilson_interval(20, 20))
        (0.839, 1.0)
    """
    share, spread = successes / n, _Z * _Z / n
    middle = (share + spread / 2) / (1 + spread)
    half = _Z / (1 + spread) * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    # No success, or nothing else, is beyond rounding.
    return max(0.0, middle - half) if successes > 0 else 0.0, min(1.0, middle + half) if successes < n else 1.0


def is_like_guessing(accuracy: float, n: float, classes: int) -> bool:
    """Return whether 30 samples or more are right about as often as guessing one of the classes would be, or less."""
    return n >= 30 and wilson_interval(accuracy * n, n)[0] <= 1 / classes and accuracy < 1.2 / classes


def draw_right(total: Array, squared_weights: Array, chance: Array, rng: np.random.Generator, times: int) -> Array:
    """Draw the weight of the right samples at each confidence, (times, m), were the confidences calibrated.

    Weighted samples at one confidence count as their effective number of trials. Where that is not whole, the next
    lower or the next higher number is drawn, as often as gives the variance of the weighted samples.

    Example:
        >>> drawn = draw_right(np.array([3.0]), np.array([5.0]), np.array([0.5]), np.random.default_rng(0), 100_000)
        >>> round(float(drawn.mean()), 1), round(float(drawn.var()), 2)  # of samples of weight 1 and 2
        (1.5, 1.25)
    """
    trials = total**2 / squared_weights
    whole = np.round(trials)
    trials = np.where(np.abs(trials - whole) < 1e-9 * trials, whole, trials)
    lower = np.maximum(np.floor(trials), 1).astype(np.int64)
    share = lower * ((lower + 1) / trials - 1)
    drawn = lower + (rng.random((times, len(total))) >= share)
    return np.minimum(rng.binomial(drawn, chance) * (total / drawn), total)  # rounding may lead above


def t_quantile(degrees: float) -> float:
    """Return the 97.5 % quantile of Student's t.

    Example:
        >>> round(t_quantile(10), 3), round(t_quantile(1e9), 3)
        (2.228, 1.96)
    """
    from scipy.special import stdtrit

    return float(stdtrit(min(degrees, 1e9), 1 - _TAIL))


def p_value(value: float, calibrated: Tensor) -> float:
    """Return the share of calibrated draws that are at least as large, the observed value counted among them.

    Above all draws an exponential tail, from below the highest twentieth, replaces counting: tests of many slices need
    p-values smaller than one in the number of draws. The error of a calibrated model has a lighter tail.
    """
    # Slack: draws that equal the value must count as ties even if summed in another order.
    reached = int((calibrated >= value * (1 - 1e-9) - 1e-12).sum())
    counted = (reached + 1) / (calibrated.numel() + 1)
    draws = calibrated[calibrated.isfinite()].sort().values
    below = draws[draws < draws[-1 - len(draws) // 20]] if len(draws) else draws
    if reached or len(below) < 50 or math.isnan(value):
        return counted
    tail = draws[len(below) :] - below[-1]
    return counted * min(1.0, len(tail) * math.exp(-min(float((value - below[-1]) / tail.mean()), 600.0)))


def paired_p(drawn: Tensor, size: float, acceleration: float = 0.0) -> float:
    """Return the two-sided p-value of a difference, from draws of it, (r,): twice the share on the rarer side of zero.

    A draw is of ``size`` samples, or groups of samples. The :func:`acceleration` moves the share as the ends of the
    interval.

    Below p = .05 the tail of Student's t with the draws' spread replaces counting: a handful of draws is coarse, and
    several comparisons at once need p-values smaller than one in the number of draws.
    """
    from scipy.special import ndtr, ndtri, stdtr

    widened = _widened(drawn, size)
    below, above = int((widened <= 0).sum()), int((widened >= 0).sum())
    share = min(0.5, (min(below, above) + 1) / (len(drawn) + 1))
    spread = float(drawn.std()) * math.sqrt(size / (size - 1)) if len(drawn) > 1 and size > 1 else 0.0
    if share <= _TAIL and spread > 0:
        share = min(_TAIL, float(stdtr(size - 1, -abs(float(drawn.mean())) / spread)))
    if acceleration == 0:
        return 2 * share
    place = float(ndtri(max(share, 1e-300))) * (1 if below < above else -1) - acceleration
    # Where it makes a difference clearer, by no more than at the end of the interval.
    least = 1 / (1 + abs(acceleration) * (_Z - abs(acceleration)))
    return 2 * float(ndtr(-abs(place / max(1 + acceleration * place, least) - acceleration)))


# Rank metrics get their interval from the influence of every sample, which is right also with few errors: percentiles
# of the bootstrap hold the true AUROC of fifty errors in 84 to 92 of 100 cases. The interval is symmetric on the
# log-odds scale, where areas are close to normal, and its width accounts for its own uncertainty.

_CELLS = 16384  # distinct confidences that the influences are taken at: with more, neighbours are joined
_FEWEST_DEGREES = 4.0  # below so many degrees of freedom an estimate of them is noise
_FEWEST_OF_A_KIND = 5  # fewer errors may lie close together by luck


def influence_interval(metric: RankMetric, ranked: Ranked, clusters: Clusters | None = None) -> tuple[float, float]:
    """Return the 95 % interval of a metric of ranks in 0..1 whose ``interval_method`` is influence or threshold.

    Its variance is the sum of the squared influences of the samples (the infinitesimal jackknife; for AUROC that of
    DeLong et al.), its degrees of freedom follow from how uneven they are (Satterthwaite). Without spread, at the
    metric's bound, with all samples right or wrong, or the AUROC of fewer than five errors: Wilson's for as many trials
    as could have moved it. The influences of ``clusters`` are sums; a trial is then a cluster.

    Reference: Efron (1982), The Jackknife, the Bootstrap and Other Resampling Plans, chapter 6; DeLong, DeLong &
    Clarke-Pearson (1988), Comparing the Areas under Two or More Correlated ROC Curves, Biometrics.

    Example:
        >>> from calibrant.metrics import AUROC
        >>> rising = torch.linspace(-3, 3, 100, dtype=torch.float64)
        >>> right = (torch.arange(100) % 10 != 3).double()
        >>> low, high = influence_interval(AUROC(), Ranked(rising, rising.sigmoid(), right, 1 - right))
        >>> round(low, 2), round(high, 2)
        (0.31, 0.72)
    """
    exact, cell = ranked, ranked.cells(_CELLS)
    ranked = ranked.merged(cell)
    right, wrong = _kinds(ranked)
    n_right, n_wrong, n = right.n, wrong.n, right.n + wrong.n
    if clusters is not None:
        correct = clusters.top.correct
        n_right, n_wrong, n = clusters.number(correct), clusters.number(~correct), clusters.number()
    value = float(metric.value(ranked))
    if math.isnan(value):
        return math.nan, math.nan
    trials = n if metric.counts_all_samples else max(1.0, min(n_right, n_wrong))
    if not 0 < value < 1 or min(n_right, n_wrong) < 2:
        return wilson_interval(value * trials, trials)
    if metric.interval_method == "threshold":  # it has jumps and no derivative
        return _share_interval(ranked, value, n_right, n_wrong)
    of_right, of_wrong = _influences(metric, ranked)
    if clusters is None:
        variance, degrees = _spread((right, of_right), (wrong, of_wrong))
    else:
        place = cell[torch.searchsorted(exact.log_odds, EXACT(clusters.top).log_odds)]
        influence = clusters.sums(torch.where(correct, of_right[place], of_wrong[place]) * clusters.mass)
        ones = torch.ones_like(influence)
        variance, degrees = _spread((_Kind(ones, ones), influence))
    if not variance > 0 or (isinstance(metric, AUROC) and min(n_right, n_wrong) < _FEWEST_OF_A_KIND):
        return wilson_interval(value * trials, trials)
    middle = math.log(value / (1 - value))
    half = t_quantile(degrees) * math.sqrt(variance) / (value * (1 - value))
    low, high = torch.tensor([middle - half, middle + half], dtype=torch.float64).sigmoid().tolist()
    return low, high


class _Kind(NamedTuple):
    """The right samples, or the wrong ones."""

    mass: Tensor  # (m,) sum of their weights at each confidence
    squares: Tensor  # (m,) sum of their squared weights

    @property
    def n(self) -> float:  # effective
        return float(effective_number(self.mass.sum(), self.squares.sum()))


def _kinds(ranked: Ranked) -> tuple[_Kind, _Kind]:
    if ranked.squared_weights is None:
        return _Kind(ranked.right, ranked.right), _Kind(ranked.wrong, ranked.wrong)
    assert ranked.squared_right is not None, "ranks of samples have it"
    squared_wrong = (ranked.squared_weights - ranked.squared_right).clamp(min=0)
    return _Kind(ranked.right, ranked.squared_right), _Kind(ranked.wrong, squared_wrong)


def accuracy_interval(ranked: Ranked, clusters: Clusters | None = None) -> tuple[float, float]:
    """Return Wilson's interval of the accuracy of ranked samples.

    Weighted samples, and those in clusters, count as many as have the variance of the weighted share (Korn & Graubard,
    1998, Confidence Intervals for Proportions with Small Expected Number of Positive Counts Estimated from Survey
    Data), but no more than their effective number: where few heavy ones are all right, that variance is too small. The
    variance of few clusters is itself uncertain, which Student's t accounts for.
    """
    right, total = float(ranked.n_right), float(ranked.n)
    share = right / total
    if clusters is not None:
        sums, number = clusters.sums(clusters.mass * (clusters.top.correct.double() - share)), clusters.number()
        variance = float(sums.square().sum()) / total**2 * number / max(number - 1, 1.0)
        trials = min(float(ranked.effective_n), share * (1 - share) / variance) if variance > 0 else number
        trials *= (_Z / t_quantile(clusters.degrees())) ** 2
        return wilson_interval(share * trials, trials)
    if ranked.squared_weights is None:
        return wilson_interval(right, total)
    of_right, of_wrong = (float(kind.squares.sum()) / total**2 for kind in _kinds(ranked))
    variance = of_right * (1 - share) ** 2 + of_wrong * share**2
    trials = min(float(ranked.effective_n), share * (1 - share) / variance if variance > 0 else math.inf)
    return wilson_interval(share * trials, trials)


def _influences(metric: Metric, ranked: Ranked) -> tuple[Tensor, Tensor]:
    """Return the derivatives of the metric in the number of right, and of wrong, samples at each confidence."""
    with torch.inference_mode(mode=False), torch.enable_grad():
        # Copies: numbers made in inference mode have no derivatives. The leading dimension makes every metric treat
        # each entry as a group of any size, which one that may grow by a little is.
        right, wrong = (mass.detach().clone()[None].requires_grad_() for mass in (ranked.right, ranked.wrong))
        log_odds, confidence = ranked.log_odds.clone(), ranked.confidence.clone()
        value = metric.value(Ranked(log_odds, confidence, right, wrong)).sum()
        of_right, of_wrong = torch.autograd.grad(value, (right, wrong))
    return of_right[0], of_wrong[0]


def _share_interval(ranked: Ranked, value: float, n_right: float, n_wrong: float) -> tuple[float, float]:
    """Return the interval of the share of wrong samples above the threshold that 95 % of the right ones reach.

    Two uncertainties add up in squares (Zou & Donner, 2008, Statistics in Medicine): Wilson's of the share above a
    known threshold, and that of the threshold itself. This is a quantile of the right samples, which lies between two
    of them, by the binomial distribution of how many it exceeds (Thompson, 1936, Annals of Mathematical Statistics). Of
    fewer than about 70 it may well exceed none: then all that is known is that at most all wrong samples reach it.
    """
    from scipy.special import bdtrik

    accepted_right = 1 - (ranked.cumulative_right - ranked.right) / float(ranked.n_right)
    accepted_wrong = 1 - (ranked.wrong.cumsum(0) - ranked.wrong) / float(ranked.n - ranked.n_right)

    def share_at(accepted: float) -> float:
        place = max(0, int((accepted_right >= accepted - 1e-9).sum()) - 1)
        return float(accepted_wrong[place])

    fewest, most = (math.ceil(max(float(bdtrik(tail, n_right, 0.05)), 0.0)) for tail in (_TAIL, 1 - _TAIL))
    low, high = wilson_interval(value * n_wrong, n_wrong)
    low = value - math.hypot(value - low, value - share_at(1 - most / n_right))
    above = 1.0 if fewest == 0 else share_at(1 - (fewest - 1) / n_right)
    return max(0.0, low), min(1.0, value + math.hypot(high - value, above - value))


def _spread(*kinds: tuple[_Kind, Tensor]) -> tuple[float, float]:
    """Return variance and degrees of freedom, from the samples and their influence, right and wrong ones apart."""
    variance, variance_of_variance, normal, largest = 0.0, 0.0, 0.0, 0.0
    for kind, influence in kinds:
        weight = kind.squares / as_divisor(kind.mass)  # of one sample
        n, squares = kind.n, float((kind.squares * influence.square()).sum())
        variance += squares * n / (n - 1)
        variance_of_variance += float((kind.squares * weight.square() * influence.pow(4)).sum()) - squares * squares / n
        normal += 2 * squares * squares / (n - 1)
        largest = max(largest, float((weight * influence).abs().max()))
    # The largest counts twice: one more like it may just have been missed. Equal influences of few samples leave as
    # much uncertainty as so many normal numbers.
    variance_of_variance = max(variance_of_variance + largest**4, normal)
    if not variance_of_variance > 0:
        return variance, math.inf
    return variance, max(_FEWEST_DEGREES, 2 * variance**2 / variance_of_variance)

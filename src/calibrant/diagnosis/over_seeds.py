"""Statistics over the runs of a candidate.

Two things make a number vary: other test samples, and another seed. The test samples are the same for all runs, so
resampling them for all at once shows the first, also for a mean over runs. The spread of the runs of a candidate shows
the second. The two variances are added. The effect of a seed on single samples is in both, so that the sum is a little
too large, and intervals err on the wide side: in simulations with two to five seeds they miss the truth in 1 to 5 % of
cases, where 5 % are allowed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, final

import numpy as np

from calibrant.evidence import LEVEL

__all__ = ["Spread", "TwoSample", "spread", "two_sample"]

RunSide: TypeAlias = Literal["higher", "lower", "alike"]

_FEWEST = 2  # runs on either side of a test over runs
_SAME = 1e-24  # a variance that rounding leaves of numbers that are all the same


@final
@dataclass(frozen=True)
class Spread:
    """A number over the runs that have one; NaN where none does, and without a deviation where only one does."""

    mean: float
    std: float  # of the runs, not of their mean
    lowest: float
    highest: float
    values: tuple[float, ...]  # one per run, in their order; NaN where there is none


def spread(values: Sequence[float]) -> Spread:
    """Compute the mean and standard deviation over runs.

    Example:
        >>> spread([1.0, 3.0]).mean, round(spread([1.0, 3.0]).std, 4)
        (2.0, 1.4142)
    """
    known = _known(values)
    if not known.size:
        return Spread(math.nan, math.nan, math.nan, math.nan, tuple(values))
    std = float(known.std(ddof=1)) if known.size > 1 else math.nan
    return Spread(float(known.mean()), std, float(known.min()), float(known.max()), tuple(values))


def _known(values: Sequence[float]) -> np.ndarray:
    return np.array([value for value in values if not math.isnan(value)])


@final
@dataclass(frozen=True)
class TwoSample:
    """A two-sample t-test of runs against the baseline's runs, as in "Rethinking Calibration" (its ▲ and ▼).

    Welch's form, which does not assume equal variances; the paper does not say which it uses. Not corrected for the
    number of candidates, as in the paper. It covers the noise of seeds alone: with other test samples all runs move.
    """

    difference: float  # of the means, candidate minus baseline
    t: float
    df: float
    p: float
    side: RunSide  # "alike" where p is above .05, or unknown
    note: str | None  # why there is no test


def two_sample(baseline: Sequence[float], candidate: Sequence[float]) -> TwoSample:
    """Test whether the means of two samples of runs differ.

    Example:
        >>> test = two_sample([1.0, 1.1, 0.9], [2.0, 2.1, 1.9])
        >>> test.side, round(test.p, 4)
        ('higher', 0.0003)
    """
    first, second = _known(baseline), _known(candidate)
    difference = float(second.mean() - first.mean()) if first.size and second.size else math.nan
    if min(first.size, second.size) < _FEWEST:
        note = f"a test over runs needs {_FEWEST} of each or more; there are {second.size} and {first.size}"
        return TwoSample(difference, math.nan, math.nan, math.nan, "alike", note)
    noise = noise_of_seeds(first, second)
    assert noise is not None, "there are several of each"
    if noise.variance <= _SAME:
        is_zero = abs(difference) <= math.sqrt(_SAME)
        reason = None if is_zero else "runs that are all the same show nothing about noise"
        return TwoSample(difference, math.nan, math.nan, 1.0 if is_zero else math.nan, "alike", reason)
    from scipy.special import stdtr

    t = difference / math.sqrt(noise.variance)
    p = 2 * float(stdtr(noise.df, -abs(t)))
    side: RunSide = "alike" if p > LEVEL else "higher" if difference > 0 else "lower"
    return TwoSample(difference, t, noise.df, p, side, None)


class Noise(NamedTuple):
    """Variance of a number, and the degrees of freedom of its estimate."""

    variance: float
    df: float


def noise_of_seeds(*samples: Sequence[float] | np.ndarray) -> Noise | None:
    """Estimate the noise of a difference (or sum) of means over the runs of each candidate; None for single runs alone.

    A single run beside several of another candidate is assumed to vary as those do.
    """
    variances = [float(np.var(sample, ddof=1)) if len(sample) > 1 else math.nan for sample in samples]
    if all(math.isnan(variance) for variance in variances):
        return None
    degrees = [len(sample) - 1 for sample in samples]
    pooled = sum(df * variance for df, variance in zip(degrees, variances, strict=True) if df) / sum(degrees)
    if 0 in degrees:
        return Noise(pooled * sum(1 / len(sample) for sample in samples), sum(degrees))
    shares = [variance / len(sample) for variance, sample in zip(variances, samples, strict=True)]
    return _added([Noise(share, df) for share, df in zip(shares, degrees, strict=True)])


def interval_of(value: float, noises: Sequence[Noise]) -> tuple[float, float, float]:
    """Return both ends of the 95 % interval of a number, and its two-sided p-value, under independent noises."""
    noise = _added(noises)
    if noise.variance <= _SAME:
        return value, value, 1.0 if abs(value) <= math.sqrt(_SAME) else math.nan
    from scipy.special import stdtr, stdtrit

    error = math.sqrt(noise.variance)
    reach = float(stdtrit(noise.df, 1 - LEVEL / 2)) * error
    return value - reach, value + reach, 2 * float(stdtr(noise.df, -abs(value) / error))


def _added(noises: Sequence[Noise]) -> Noise:
    """Add up noises, with the degrees of freedom of Welch and Satterthwaite."""
    variance = sum(noise.variance for noise in noises)
    doubt = sum(noise.variance**2 / noise.df for noise in noises)
    return Noise(variance, variance**2 / doubt if doubt else math.inf)

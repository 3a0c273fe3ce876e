"""Thresholds of the confidence for error rates: by the estimate, and with a guarantee."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from calibrant.checks import check_rates
from calibrant.evidence.clusters import Clusters
from calibrant.evidence.intervals import LEVEL, wilson_interval
from calibrant.metrics.states import EXACT, Ranked
from calibrant.predictions import Predictions, TopLabel

# Coverages from which guaranteed thresholds are lowered, at how many coverages the error rate is tested, and how many
# times the samples that show it if none is wrong a start must have.
_STARTS, _STEPS, _FEWEST = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0), 1000, 1.5


@final
@dataclass(frozen=True)
class OperatingPoint:
    """The lowest confidence at which predictions can be accepted with at most some share of them wrong.

    Intervals are 95 % score intervals for this threshold, without regard to how it was chosen.
    """

    error_rate: float  # largest allowed
    is_guaranteed: bool  # holds with 95 % confidence, the choice of the threshold included; else by the estimate alone
    threshold: float | None = None  # accept predictions with at least this confidence; None: no threshold reaches it
    accepted: float = 0.0  # samples, effective ones if they have weights
    coverage: float = 0.0  # share of samples accepted
    coverage_low: float = math.nan
    coverage_high: float = math.nan
    error: float = math.nan  # share of wrong ones among those accepted
    error_low: float = math.nan
    error_high: float = math.nan

    @property
    def accepts(self) -> str:
        """The confidences that are accepted, in words."""
        return "none" if self.threshold is None else "any" if self.coverage == 1 else f"≥ {self.threshold!r}"


def ranked_trials(samples: Predictions | TopLabel) -> Ranked:
    """Return the samples by confidence, with the weights of their clusters where they have any."""
    ranked, clusters = EXACT(samples).ranked, Clusters.of(samples.top)
    return ranked if clusters is None else clusters.as_trials(ranked)


def operating_points(
    ranked: Ranked, error_rates: Sequence[float], *, edges: tuple[Tensor, Tensor] | None = None
) -> tuple[OperatingPoint, ...]:
    """Return for every error rate the largest coverage whose estimate keeps to it, and the largest that is guaranteed.

    A guaranteed threshold has a true error rate above the allowed one in at most 5 % of cases. From several coverages,
    thresholds are lowered as long as a binomial test shows that the error rate is below. Starts share the level, and
    add theirs to that of the one before if all tests between were passed (Wiens, 2003, A Fixed Sequence Bonferroni
    Procedure). Samples, or clusters of them, must be independent, and drawn as those that the threshold is used for; a
    cluster counts as one trial. With weights, or clusters of several sizes, tests are approximate, by the variance of
    the weighted share if one more sample were wrong, a heavy one.

    Args:
        ranked: Samples by confidence.
        error_rates: Largest shares of wrong predictions among those accepted, between 0 and 1.
        edges: Lowest and highest confidence that entries stand for, (m,), where they are cells; None: exact ones.

    Example:
        >>> top = TopLabel([0.9] * 80 + [0.6] * 20, [True] * 79 + [False] * 11 + [True] * 10)
        >>> [(one.threshold, one.coverage) for one in operating_points(EXACT(top).ranked, [0.1])]
        [(0.8, 0.8), (0.8, 0.8)]
    """
    from scipy.special import betainc

    rates = check_rates(error_rates)
    squared = (ranked.total, ranked.wrong)  # weights, of all and of wrong samples
    if ranked.squared_weights is not None and ranked.squared_right is not None:
        squared = (ranked.squared_weights, ranked.squared_weights - ranked.squared_right)
    columns = (ranked.total, ranked.wrong, *squared, *(edges or (ranked.confidence, ranked.confidence)))
    *parts, lowest, highest = (column.flip(-1).double().cpu().numpy() for column in columns)
    below = np.append(highest[1:], -1.0)
    # The confidence of tied samples may differ in the last digit from what a file holds.
    rounding = 0.0 if edges else 4 * torch.finfo(ranked.confidence.dtype).eps
    ends = np.flatnonzero((lowest - below >= 2 * rounding) & (parts[0].cumsum() > 0))
    total, wrong, squares, squared_wrong = (part.cumsum()[ends] for part in parts)
    trials, risk, coverage = total**2 / squares, wrong / total, total / total[-1]
    n = float(trials[-1])
    steps = np.unique(np.searchsorted(coverage, np.linspace(0, 1, _STEPS + 1)[1:] * (1 - 1e-12)))
    starts = np.unique(np.searchsorted(coverage[steps], np.array(_STARTS) * (1 - 1e-12)))
    heavy = float((parts[2] ** 2 / parts[0].clip(1e-300)).sum() / squares[-1])
    weight = (squared_wrong + heavy**2) / (wrong + heavy)  # of a wrong sample

    def point(rate: float, place: int | None, *, is_guaranteed: bool) -> OperatingPoint:
        if place is None:
            return OperatingPoint(rate, is_guaranteed)
        end, share, error, size = ends[place], float(coverage[place]), float(risk[place]), float(trials[place])
        threshold = _shortest(float(lowest[end]) - rounding, float(below[end]) + rounding)
        bounds = (share, *wilson_interval(share * n, n), error, *wilson_interval(error * size, size))
        return OperatingPoint(rate, is_guaranteed, threshold, size, *bounds)

    points = []
    for rate in rates:
        kept = np.flatnonzero(risk <= rate * (1 + 1e-12))
        points.append(point(rate, int(kept[-1]) if len(kept) else None, is_guaranteed=False))
        size = np.minimum(trials, total / ((1 - rate) * weight + rate * squares / total))[steps]
        hits = (size * risk[steps]).clip(0, size * (1 - 1e-12))
        p = betainc(size - hits, hits + 1, 1 - rate)  # P(as few wrong | rate)
        usable = starts[size[starts] >= _FEWEST * math.log(LEVEL) / math.log1p(-rate)].tolist()
        reached, level = None, 0.0
        for start, end in itertools.pairwise([*usable, len(steps)]):
            level += LEVEL / len(usable)
            passed = int(np.cumprod(p[start:end] <= level).sum())
            reached = int(steps[start + passed - 1]) if passed else reached
            level *= passed == end - start
        points.append(point(rate, reached, is_guaranteed=True))
    return tuple(points)


def _shortest(highest: float, above: float) -> float:
    """Return the number with the fewest decimals that is at most the one and above the other.

    Example:
        >>> _shortest(0.8534, 0.8), _shortest(0.25, -1.0)
        (0.85, 0.0)
    """
    rounded = (math.floor(highest * 10**digits) / 10**digits for digits in range(17))
    return next((number for number in rounded if above < number <= highest), highest)

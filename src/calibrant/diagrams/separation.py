"""Separation of correct from wrong predictions by confidence: smoothed densities, and risk against coverage."""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from calibrant.checks import with_devices_of_inputs
from calibrant.evidence.clusters import effective_number_of
from calibrant.evidence.intervals import wilson_interval
from calibrant.metrics.ranked import AURC, AUROC, EAURC
from calibrant.metrics.states import Grid, Gridded, RankedSamples, as_divisor
from calibrant.numerics.binning import damped_density, gaussian_damping
from calibrant.predictions import Predictions, TopLabel, counted_samples

__all__ = ["ConfidenceDensity", "RiskCoverage", "confidence_density", "risk_coverage"]

_MOST_POINTS = 1000


@final
@dataclass(frozen=True, eq=False)
class ConfidenceDensity:
    """Densities of confidence on a common grid; each has area 1, or is 0 where there is no such prediction."""

    confidence: Tensor  # (m,) evenly spaced over 0..1
    right: Tensor  # (m,)
    wrong: Tensor  # (m,)
    n_right: int
    n_wrong: int
    share_right: float  # of the samples, by weight
    median_right: float  # NaN without correct predictions
    median_wrong: float  # NaN without wrong predictions
    auroc: float  # of correctness; NaN without one of them
    width: float  # of the kernel
    effective_n: float | None = None  # of weighted samples


def confidence_density(predictions: Predictions | TopLabel) -> ConfidenceDensity:
    """Compute smoothed densities of confidence for correct and for wrong predictions.

    The further apart the two, the better confidence shows what to trust. Two curves that coincide mean that confidence
    is no help, however well calibrated. The kernel is a Gaussian reflected at 0 and 1 of width 1.06 s n^(-1/5), the
    same for both; s is the standard deviation of all confidences.

    Example:
        >>> density = confidence_density(TopLabel([0.9, 0.8, 0.6], [True, True, False]))
        >>> density.n_right, density.median_wrong, density.auroc
        (2, 0.6, 1.0)
    """
    predictions = counted_samples(predictions)
    grid = Grid(*(part.cpu() for part in Gridded()(predictions).tensors()))
    width = max(0.01, float(grid.kernel_width()))
    masses = torch.stack([grid.right, grid.total - grid.right])
    masses = masses / as_divisor(masses.sum(-1, keepdim=True))
    damping = gaussian_damping(masses.new_tensor(width), masses.shape[-1])
    # About five hundred of the nodes are enough for a figure.
    right, wrong, nodes = torch.stack([*damped_density(masses, damping), grid.nodes])[:, ::2]
    top = predictions.top
    parts = [top[kind] if bool(kind.any()) else None for kind in (top.correct, ~top.correct)]
    median_right, median_wrong = (math.nan if part is None else _median(part) for part in parts)
    return ConfidenceDensity(
        confidence=nodes,
        right=right,
        wrong=wrong,
        n_right=int(top.correct.sum()),
        n_wrong=int((~top.correct).sum()),
        share_right=top.accuracy,
        median_right=median_right,
        median_wrong=median_wrong,
        auroc=AUROC()(predictions),
        width=width,
        effective_n=effective_number_of(top),
    )


def _median(top: TopLabel) -> float:
    """Return the median confidence, the lower of two, by weight where there are weights."""
    if top.weights is None:
        return float(top.confidence.median())
    rising, order = top.confidence.sort()
    up_to = top.weights[order].cumsum(0)
    return float(rising[int(torch.searchsorted(up_to, up_to[-1] / 2).clamp(max=len(rising) - 1))])


@final
@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """The risk-coverage curve at up to a thousand coverages, and the best one that the same accuracy allows."""

    coverage: Tensor  # (m,) share of samples answered, rising to 1
    risk: Tensor  # (m,) share of wrong ones among those answered
    risk_low: Tensor  # (m,) pointwise 95 % score interval of the risk, for these thresholds
    risk_high: Tensor  # (m,)
    optimal: Tensor  # (m,) the risk if every wrong prediction were less confident than every correct one
    threshold: Tensor  # (m,) confidence of the least confident sample answered
    n: int
    aurc: float  # exact, from all samples
    e_aurc: float
    effective_n: float | None = None  # of weighted samples

    def widest_at(self, risk: float) -> int | None:
        """Return the index of the largest coverage whose risk is at most this, or None if there is none.

        Example:
            >>> curve = risk_coverage(TopLabel([0.9, 0.8, 0.7, 0.6], [True, True, False, True]))
            >>> curve.coverage[curve.widest_at(0.3)].item(), curve.widest_at(0.0)
            (1.0, 1)
        """
        places = (self.risk <= risk).nonzero()
        return int(places[-1]) if len(places) else None


@with_devices_of_inputs
def risk_coverage(predictions: Predictions | TopLabel) -> RiskCoverage:
    """Compute the error rate among the most confident samples, for every share of samples answered.

    Read it at the coverage you can afford. Its left end rests on few samples and is noisy. Tied samples have no order,
    so the expectation over all their orders is taken.

    Example:
        >>> curve = risk_coverage(TopLabel([0.9, 0.8, 0.7, 0.6], [True, False, True, False]))
        >>> curve.coverage.tolist(), curve.risk.tolist()
        ([0.25, 0.5, 0.75, 1.0], [0.0, 0.5, 0.3333333333333333, 0.5])
    """
    predictions = counted_samples(predictions)
    ranked = RankedSamples()(predictions).ranked
    n, n_right = float(ranked.n), float(ranked.n_right)
    # Up to a thousand numbers of samples, evenly spaced and ending with all n; of weighted ones the effective number.
    shown = min(math.ceil(n - 1e-9), _MOST_POINTS)
    answered = torch.arange(1, shown + 1, dtype=torch.float64) * n / shown
    answered = answered.round() if predictions.weights is None else answered
    # Most confident first: wrong predictions expected among those answered, and the confidence of the last of these.
    total, wrong, confidence = (part.flip(-1).cpu() for part in (ranked.total, ranked.wrong, ranked.confidence))
    cumulative_total = total.cumsum(0)
    last = torch.searchsorted(cumulative_total, answered).clamp(max=len(total) - 1)
    # Part of the last group of tied samples is held back; its wrong ones are expected in proportion.
    held_back = (cumulative_total[last] - answered) / total[last]
    wrong = wrong.cumsum(0)[last] - held_back * wrong[last]
    fewer = n / (effective_number_of(predictions) or n)  # trials know as much
    pairs = zip((wrong / fewer).tolist(), (answered / fewer).tolist(), strict=True)
    band = [wilson_interval(*pair) for pair in pairs]
    low, high = torch.tensor(band, dtype=torch.float64).unbind(-1)
    return RiskCoverage(
        coverage=answered / n,
        risk=wrong / answered,
        risk_low=low,
        risk_high=high,
        optimal=(answered - n_right).clamp(min=0) / answered,
        threshold=confidence[last],
        n=len(predictions),
        effective_n=effective_number_of(predictions),
        aurc=float(AURC().value(ranked)),
        e_aurc=float(EAURC().value(ranked)),
    )

"""Calibration errors over bins: of the top label, class by class, and by proximity."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias, Unpack, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant.checks import as_tensor, check_at_least, check_bins, check_finite, check_known, check_real
from calibrant.errors import InputError, check_kind
from calibrant.metrics import states
from calibrant.metrics.base import BinMetric
from calibrant.numerics.binning import bin_index
from calibrant.paper import GUO, KUMAR, NAEINI, Paper
from calibrant.predictions import Arrays, Predictions, TopLabel, effective_counts

__all__ = [
    "ECE", "MCE", "OE", "SCE", "TLECE", "ECEL1Debiased", "ECEL2Debiased", "ece", "ece_l1_debiased",
    "ece_l2_debiased", "mce", "oe", "piece", "sce", "tl_ece",
]  # fmt: skip

_THULASIDASAN = Paper("Thulasidasan et al.", 2019, "On Mixup Training: Improved Calibration and Predictive Uncertainty "
                      "for Deep Neural Networks", "arXiv:1905.11001")  # fmt: skip
_NIXON = Paper("Nixon et al.", 2019, "Measuring Calibration in Deep Learning", "arXiv:1904.01685")
_GUPTA = Paper("Gupta & Ramdas", 2022, "Top-label Calibration and Multiclass-to-binary Reductions",
               "arXiv:2107.08353")  # fmt: skip

Floats: TypeAlias = NDArray[np.float64]
_ONE = 1 + 1e-9  # an effective number of samples above this is of several


@final
@dataclass(frozen=True)
class ECE(BinMetric, name="ece", title="Expected calibration error", paper=GUO.at("eq. 3")):
    """Expected calibration error: mean gap between confidence and accuracy over equal-width bins.

    The field's common currency, and a noisy one: read it beside its noise floor. Gaps of opposite sign inside a bin
    cancel; more bins mean less cancelling and more bias.

    Formula: Σ_b |B_b|/n · |acc(B_b) − conf(B_b)|
    Estimator: plug-in, bins (lo, hi].
    Bias: upward, about Σ_b √(|B_b| acc (1 − acc))/n·0.8: a perfectly calibrated model scores .084/.037/.018 at
        n = 200/1000/5000. The floor reports it for the data at hand.
    Cost: O(n) after the softmax; the state is 3 numbers per bin.
    """

    def value(self, state: states.Bins) -> Tensor:
        # |mean confidence - accuracy| times bin share: the bin counts cancel.
        return (state.confidence - state.correct).abs().sum(-1) / state.count.sum(-1)


@final
@dataclass(frozen=True)
class MCE(BinMetric, name="mce", title="Maximum calibration error", paper=NAEINI, noise="largest"):
    """Maximum calibration error: the largest gap of any bin that holds a sample.

    Formula: max_b |acc(B_b) − conf(B_b)| over non-empty bins
    Estimator: plug-in, bins (lo, hi].
    Bias: strongly upward: one lone mistake in a thin bin sets it. Differences between models have no interval.
    Cost: as ece.
    """

    def value(self, state: states.Bins) -> Tensor:
        return ((state.confidence - state.correct).abs() / states.as_divisor(state.count)).amax(-1)


@final
@dataclass(frozen=True)
class OE(BinMetric, name="oe", title="Overconfidence error", paper=_THULASIDASAN, noise="positive"):
    """Overconfidence error: the gap of overconfident bins only, weighted by their confidence.

    Zero for an underconfident model, so it is no calibration error by itself.

    Formula: Σ_b |B_b|/n · conf(B_b) · max(conf(B_b) − acc(B_b), 0)
    Estimator: plug-in, bins (lo, hi].
    Bias: upward, as ece.
    Cost: as ece.
    """

    def value(self, state: states.Bins) -> Tensor:
        excess = (state.confidence - state.correct).clamp(min=0) * state.confidence / states.as_divisor(state.count)
        return excess.sum(-1) / state.count.sum(-1)


@final
@dataclass(frozen=True)
class ECEL2Debiased(
    BinMetric, name="ece_l2_debiased", title="Calibration error, L2 debiased", paper=KUMAR, noise="subtracted"
):
    """Root-mean-square calibration error with the noise of the bins' accuracies subtracted.

    Formula: √max(0, Σ_b |B_b|/n · [(acc − conf)² − acc (1 − acc)/(|B_b| − 1)])
    Estimator: debiased plug-in (Kumar et al.); the interval is analytic (Sun et al., arXiv:2408.08998): variance of
        the U-statistic inside the bins plus that of the bins' sizes, cut at 0. Bins with a single sample are left out.
    Bias: none before the root is taken and negatives are set to 0. It measures the binned model: bins still average.
    Cost: as ece.
    """

    bins = states.BinnedMoments

    def value(self, state: states.BinMoments) -> Tensor:
        return self.squared(state).clamp(min=0).sqrt()

    def squared(self, state: states.BinMoments) -> Tensor:  # unbiased, and may be negative
        count, n = states.as_divisor(state.count), states.effective_number(state.count, state.squared_weights)
        accuracy, gap = state.correct / count, (state.correct - state.confidence) / count
        several = n > _ONE
        noise = accuracy * (1 - accuracy) / torch.where(several, n - 1, 1)
        return (state.count * (gap.square() - noise) * several).sum(-1) / state.count.sum(-1)

    def interval(self, state: states.BinMoments, z: float) -> tuple[Tensor, Tensor]:
        """Return the interval of z standard errors around the squared error, mapped through the root."""
        count, size = states.as_divisor(state.count), states.effective_number(state.count, state.squared_weights)
        several = size > _ONE
        size, less_one = torch.where(size > 0, size, 1), torch.where(several, size - 1, 1)
        mean = (state.correct - state.confidence) / count
        # Variance of correctness minus confidence inside each bin.
        squares = state.correct - 2 * state.confidence_correct + state.confidence_squared
        spread = (squares / count - mean.square()).clamp(min=0) * size / less_one
        signal = (mean.square() - spread / size).clamp(min=0)
        inside = 2 / (size * less_one) * spread.square() + 4 / size * signal * spread
        total = state.count.sum(-1)
        share = state.count / total[..., None]
        between = (share * signal.square()).sum(-1) - (share * signal).sum(-1).square()
        n = states.effective_number(total, state.squared_weights.sum(-1))
        error = ((share.square() * inside * several).sum(-1) + between / n).clamp(min=0).sqrt()
        middle = self.squared(state)
        return (middle - z * error).clamp(min=0).sqrt(), (middle + z * error).clamp(min=0).sqrt()


@final
@dataclass(frozen=True)
class ECEL1Debiased(
    BinMetric, name="ece_l1_debiased", title="Calibration error, L1 debiased", paper=KUMAR, noise="subtracted"
):
    """Expected calibration error minus its expected inflation by noise.

    Formula: 2·ECE − E[ECE with acc_b ~ N(acc_b, acc_b (1 − acc_b)/|B_b|)]
    Estimator: debiased plug-in; the expectation of the folded normal in closed form, where the reference code samples.
    Bias: far from calibration almost none; on calibrated data 59 % of that of ece remains, and in between it can
        overshoot a little downward. Set to 0 where negative.
    Cost: as ece.
    """

    def value(self, state: states.Bins) -> Tensor:
        count = states.as_divisor(state.count)
        accuracy = (state.correct / count).clamp(max=1)
        gap = (state.correct - state.confidence).abs() / count
        noise = (
            accuracy * (1 - accuracy) / states.as_divisor(states.effective_number(count, state.squared_weights))
        ).sqrt()
        folded = torch.where(noise > 0, noise * folded_mean(gap / noise.clamp(min=1e-300)), gap)
        return ((2 * gap - folded) * state.count).sum(-1).clamp(min=0) / state.count.sum(-1)


def folded_mean(mean: Tensor) -> Tensor:
    """Return the mean of the absolute value of normal numbers with these means and a spread of 1."""
    return math.sqrt(2 / math.pi) * torch.exp(-mean.square() / 2) + mean * torch.erf(mean / math.sqrt(2))


def ece(*predictions: Predictions | TopLabel, n_bins: int = 15, **arrays: Unpack[Arrays]) -> float:
    """Expected calibration error over equal-width bins (:class:`ECE`).

    Example:
        >>> round(ece(TopLabel([0.9, 0.9, 0.9, 0.9], [True, True, True, False])), 6)
        0.15
    """
    return ECE(n_bins)(*predictions, **arrays)


def mce(*predictions: Predictions | TopLabel, n_bins: int = 15, **arrays: Unpack[Arrays]) -> float:
    """Largest gap of any non-empty bin (:class:`MCE`)."""
    return MCE(n_bins)(*predictions, **arrays)


def oe(*predictions: Predictions | TopLabel, n_bins: int = 15, **arrays: Unpack[Arrays]) -> float:
    """Overconfidence error (:class:`OE`)."""
    return OE(n_bins)(*predictions, **arrays)


def ece_l2_debiased(*predictions: Predictions | TopLabel, n_bins: int = 15, **arrays: Unpack[Arrays]) -> float:
    """Root-mean-square calibration error, debiased (:class:`ECEL2Debiased`)."""
    return ECEL2Debiased(n_bins)(*predictions, **arrays)


def ece_l1_debiased(*predictions: Predictions | TopLabel, n_bins: int = 15, **arrays: Unpack[Arrays]) -> float:
    """Expected calibration error, debiased (:class:`ECEL1Debiased`)."""
    return ECEL1Debiased(n_bins)(*predictions, **arrays)


@final
@dataclass(frozen=True)
class SCE(BinMetric, name="sce", title="Classwise calibration error", paper=_NIXON, smallest_effect=None):
    """Static calibration error, also called classwise ECE: the ece of every class's probability, averaged.

    Looks at all probabilities, not only the largest. With many classes nearly all of them are near 0 and so is their
    gap: compare values only at the same number of classes. The papers print it times 100 or 1000.

    Formula: 1/k Σ_k Σ_b |B_bk|/n · |share of class k in B_bk − mean p_k in B_bk|, all n samples binned by p_k
    Estimator: plug-in, bins (lo, hi]; the class count comes from the logits.
    Bias: upward, as ece.
    Cost: one pass over the probabilities; the state is 3 numbers per class and bin.
    """

    bins = states.BinnedClasswise

    def value(self, state: states.ClassBins) -> Tensor:
        return self.by_class(state).mean(-1)

    def by_class(self, state: states.ClassBins) -> Tensor:  # (..., k)
        n = state.count[..., 0, :].sum(-1)
        return (state.probability - state.hits).abs().sum(-1) / n[..., None]


@final
@dataclass(frozen=True)
class TLECE(BinMetric, name="tl_ece", title="Top-label-conditional ECE", paper=_GUPTA):
    """Top-label-conditional calibration error: as ece, with the samples binned by predicted class and confidence.

    Sees what ece averages away: a model overconfident on cats and as underconfident on dogs.

    Formula: Σ_k Σ_b |B_bk|/n · |acc(B_bk) − conf(B_bk)|, B_bk the samples predicted k with confidence in bin b
    Estimator: plug-in, bins (lo, hi].
    Bias: upward, and more than ece's: k times as many bins share the same samples. Read it beside its floor.
    Cost: O(n) after the softmax; the state is 3 numbers per class and bin.
    """

    bins = states.BinnedByPrediction

    def value(self, state: states.ClassBins) -> Tensor:
        return (state.probability - state.hits).abs().sum((-1, -2)) / state.count.sum((-1, -2))


def sce(*predictions: Predictions, n_bins: int = 15, **arrays: Unpack[Arrays]) -> float:
    """Classwise calibration error (:class:`SCE`)."""
    return SCE(n_bins)(*predictions, **arrays)


def tl_ece(*predictions: Predictions, n_bins: int = 15, **arrays: Unpack[Arrays]) -> float:
    """Top-label-conditional calibration error (:class:`TLECE`)."""
    return TLECE(n_bins)(*predictions, **arrays)


def piece(
    predictions: Predictions | TopLabel,
    proximity: object,
    *,
    n_bins: int = 15,
    proximity_bins: int = 10,
    bins: Literal["equal_mass", "equal_width"] = "equal_mass",
) -> float:
    """Proximity-informed expected calibration error.

    Each bin of confidence is divided by proximity. Where near samples are underconfident and far ones overconfident,
    the two cancel in the calibration error of a bin, but not here. It is never below the error over the same bins of
    confidence alone (``ace`` for equal mass, ``ece`` for equal width). With few samples much of the difference is
    noise, since there are ``n_bins * proximity_bins`` parts: compare it between maps on the same samples. It is no
    :class:`~calibrant.metrics.Metric`, because it needs the proximity beside the predictions.

    Formula: Σ_b Σ_h |B_bh|/n · |acc(B_bh) − conf(B_bh)|
    Estimator: plug-in; parts cut by rank, sizes differing by at most one; ties are exchangeable.
    Bias: upward, more than that of ece: about 0.8 Σ_bh √(|B_bh| acc (1 − acc))/n on calibrated data.
    Cost: O(n log n).

    Reference: Xiong et al. (2023), Proximity-Informed Calibration for Deep Neural Networks, arXiv:2306.04590, eq. 4.

    Args:
        predictions: Logits and labels, or confidence and correctness.
        proximity: Closeness of each sample to the calibration samples, larger is closer, (n,): from
            :meth:`calibrant.maps.ProximityMap.proximity` or :func:`calibrant.numerics.neighbours.proximity`.
        n_bins: Bins of confidence.
        proximity_bins: Parts of each bin, of equal numbers of samples.
        bins: Kind of confidence bins: of equal mass, as in Appendix C, or of equal width, as in ``ece``.

    Example:
        >>> samples = TopLabel([0.7] * 20, [True] * 5 + [False] * 5 + [True] * 9 + [False])
        >>> far_and_near = [0.2] * 10 + [0.8] * 10  # half of the far samples are right, and nine tenths of the near
        >>> round(piece(samples, far_and_near, n_bins=1, proximity_bins=2), 6), round(piece(samples, [0.5] * 20), 6)
        (0.2, 0.0)
    """
    check_bins(n_bins)
    check_at_least(proximity_bins, 1, "proximity_bins")
    check_known(bins, ("equal_mass", "equal_width"), "bins")
    check_kind(predictions, (Predictions, TopLabel), "predictions", "Predictions.from_logits(z, y) makes them.")
    top = predictions.top
    nearness = check_real(as_tensor(proximity, "proximity"), "proximity").to(top.confidence.device)
    if nearness.shape != top.confidence.shape:
        raise InputError(f"proximity must have shape ({len(top)},), one per sample; got shape {tuple(nearness.shape)}.")
    check_finite(nearness, "proximity")
    counted = top.mass > 0
    top, nearness = top[counted], nearness[counted]
    mass = effective_counts(top.mass).cpu().numpy()
    gap = (top.confidence - top.correct.double()).cpu().numpy()
    near = nearness.double().cpu().numpy()
    if bins == "equal_mass":
        members = _equal_mass(top.log_odds.double().cpu().numpy(), mass, n_bins)
    else:
        index = bin_index(top.confidence, n_bins).cpu().numpy()
        whole = (np.flatnonzero(index == place) for place in np.unique(index))
        members = ((samples, np.ones(samples.size)) for samples in whole)
    divided = (_divided_gap(near[part], gap[part], mass[part], share, proximity_bins) for part, share in members)
    return float(sum(divided) / mass.sum())


def _equal_mass(scores: Floats, mass: Floats, n_bins: int) -> Iterator[tuple[NDArray[np.intp], Floats]]:
    """Yield the samples of each bin, and their shares: ties that span an edge are in both bins, in parts."""
    order = np.argsort(scores, kind="stable")
    rising, up_to = scores[order], np.concatenate([[0.0], np.cumsum(mass[order])])
    first, last = (up_to[np.searchsorted(rising, rising, side=side)] for side in ("left", "right"))
    for low, high in pairwise(_edges(up_to[-1], n_bins)):
        inside = slice(np.searchsorted(last, low, side="right"), np.searchsorted(first, high, side="left"))
        overlap = np.minimum(last[inside], high) - np.maximum(first[inside], low)
        if low < high:
            yield order[inside], overlap / (last[inside] - first[inside])


def _edges(mass: float, parts: int) -> Floats:
    """Return the edges between parts, rounded to whole samples; the last part ends with the last sample."""
    edges = np.floor(mass * np.arange(parts + 1) / parts + 1e-9)
    edges[-1] = mass
    return edges


def _divided_gap(proximity: Floats, gap: Floats, mass: Floats, share: Floats, parts: int) -> float:
    """Add up the absolute gaps of parts of equal mass in order of proximity."""
    order = np.argsort(proximity, kind="stable")
    ends = np.flatnonzero(np.diff(proximity[order], append=np.inf) > 0)
    drift = np.cumsum((gap * mass * share)[order])[ends]
    # Among ties the drift grows evenly: that is what exchangeable means. Whole samples stay whole.
    is_whole, mass = (share == 1).all(), np.cumsum((mass * share)[order])[ends]
    edges = _edges(mass[-1], parts) if is_whole else mass[-1] * np.arange(parts + 1) / parts
    at_edges = np.interp(edges, np.concatenate([[0.0], mass]), np.concatenate([[0.0], drift]))
    return float(np.abs(np.diff(at_edges)).sum())

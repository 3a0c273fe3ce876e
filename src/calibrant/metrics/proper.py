"""Means over samples: accuracy, confidence, entropy, and the proper scores, by which to select a method.

The proper scores are then split into calibration and refinement: Murphy's parts, equation 9 of Singh et al., and by a
cross-fitted temperature.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, Unpack, final

import torch
from torch import Tensor

from calibrant.checks import check_at_least, with_devices_of_inputs
from calibrant.metrics.base import DESCRIPTION, Facts, MeanMetric, Metric
from calibrant.metrics.binned import ECE
from calibrant.metrics.ranked import AUROC
from calibrant.metrics.states import Averaged, BinMoments, Binned, BinnedMoments, Bins, as_divisor, full_predictions
from calibrant.numerics.inverse_temperature import find_root, temperature_derivatives
from calibrant.numerics.softmax import SoftmaxRows, Wanted
from calibrant.paper import BRIER, GUO, TANG, Paper
from calibrant.predictions import LABEL_FLOOR, Arrays, Predictions, TopLabel, as_predictions, by_unit

__all__ = [
    "NLL", "Accuracy", "Brier", "Confidence", "Entropy", "Murphy", "RefinementTerms", "ScoreSplit", "TopBrier",
    "accuracy", "brier", "calibration_refinement", "confidence", "entropy", "murphy", "nll", "refinement_terms",
    "top_brier",
]  # fmt: skip

_GNEITING = Paper("Gneiting & Raftery", 2007, "Strictly Proper Scoring Rules, Prediction, and Estimation",
                  "doi:10.1198/016214506000001437")  # fmt: skip

_UNIT: Facts = DESCRIPTION | {"largest": 1.0}
_SHARE: Facts = _UNIT | {"lower_is_better": False, "smallest_effect": 0.001, "interval_method": "wilson"}


@final
@dataclass(frozen=True)
class Accuracy(Metric, name="accuracy", title="Accuracy", paper=GUO, **_SHARE):
    """Share of samples whose predicted class is the label.

    Formula: 1/n Σ_i a_i
    Estimator: sample mean; Wilson's score interval, which stays sensible when every prediction is right.
    Bias: none.
    Cost: O(n k) once for the argmax.
    """

    statistic = Binned(1)

    def value(self, state: Bins) -> Tensor:
        return state.correct[..., 0] / state.count[..., 0]


@final
@dataclass(frozen=True)
class Confidence(Metric, name="confidence", title="Mean confidence", paper=GUO, **_UNIT):
    """Mean confidence. Above the accuracy the model is overconfident on average, below it underconfident.

    Formula: 1/n Σ_i c_i
    Estimator: sample mean.
    Bias: none.
    Cost: O(n k) once for the softmax.
    """

    statistic = Binned(1)

    def value(self, state: Bins) -> Tensor:
        return state.confidence[..., 0] / state.count[..., 0]


@final
@dataclass(frozen=True)
class Entropy(MeanMetric, name="entropy", title="Entropy", paper=TANG, **DESCRIPTION):
    """Mean entropy of the predicted distribution, in nats: how spread out the predictions are.

    Formula: −1/n Σ_i Σ_k p_ik ln p_ik
    Estimator: sample mean.
    Bias: none.
    Cost: O(n k).
    """

    statistic = Averaged(SoftmaxRows.entropy, Wanted(entropy=True))


@final
@dataclass(frozen=True)
class NLL(MeanMetric, name="nll", title="Log-loss", family="proper", paper=_GNEITING):
    """Log-loss: mean negative log-probability of the true class, in nats.

    One confident mistake can dominate it; that is its point.

    Formula: −1/n Σ_i ln p_i(y_i)
    Estimator: sample mean.
    Bias: none.
    Cost: O(n k).
    """

    statistic = Averaged(SoftmaxRows.nll)


@final
@dataclass(frozen=True)
class Brier(MeanMetric, name="brier", title="Brier score", family="proper", paper=BRIER, largest=2.0):
    """Brier score: squared distance between the probabilities and the one-hot truth, summed over the classes.

    In 0..2. Some libraries divide by the number of classes; the papers do not, and neither do we.

    Formula: 1/n Σ_i Σ_k (p_ik − [y_i = k])²
    Estimator: sample mean.
    Bias: none.
    Cost: O(n k).
    """

    statistic = Averaged(SoftmaxRows.brier, Wanted(squares=True))


@final
@dataclass(frozen=True)
class TopBrier(Metric, name="top_brier", title="Brier score, top label", family="proper", paper=BRIER, largest=1.0):
    """Brier score of the statement "my prediction is right", made with the confidence as its probability.

    Formula: 1/n Σ_i (c_i − a_i)²
    Estimator: sample mean.
    Bias: none.
    Cost: O(n) after the softmax.
    """

    statistic = BinnedMoments(1)

    def value(self, state: BinMoments) -> Tensor:
        # (c − a)² = c² − 2ca + a, since a² = a.
        squares = state.confidence_squared - 2 * state.confidence_correct + state.correct
        return squares[..., 0] / state.count[..., 0]


def accuracy(*predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
    """Share of samples whose predicted class is the label (:class:`Accuracy`)."""
    return Accuracy()(*predictions, **arrays)


def confidence(*predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
    """Mean confidence (:class:`Confidence`)."""
    return Confidence()(*predictions, **arrays)


def entropy(*predictions: Predictions, **arrays: Unpack[Arrays]) -> float:
    """Mean entropy of the predicted distributions, in nats (:class:`Entropy`)."""
    return Entropy()(*predictions, **arrays)


def nll(*predictions: Predictions, **arrays: Unpack[Arrays]) -> float:
    """Log-loss in nats (:class:`NLL`)."""
    return NLL()(*predictions, **arrays)


def brier(*predictions: Predictions, **arrays: Unpack[Arrays]) -> float:
    """Brier score, summed over classes (:class:`Brier`)."""
    return Brier()(*predictions, **arrays)


def top_brier(*predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
    """Brier score of the top label (:class:`TopBrier`)."""
    return TopBrier()(*predictions, **arrays)


class Murphy(NamedTuple):
    """The top-label Brier score, :attr:`brier`, in parts."""

    reliability: float
    resolution: float
    uncertainty: float
    within_bin: float

    @property
    def brier(self) -> float:
        return self.reliability - self.resolution + self.uncertainty + self.within_bin

    @property
    def refinement(self) -> float:
        """Score that remains without calibration error: uncertainty minus resolution."""
        return self.uncertainty - self.resolution


def murphy(*predictions: Predictions | TopLabel, n_bins: int = 15, **arrays: Unpack[Arrays]) -> Murphy:
    """Murphy's decomposition of the top-label Brier score over equal-width bins.

    ``reliability − resolution + uncertainty`` is exact for confidences that are constant inside a bin; ``within_bin``
    (variance of the confidences inside the bins minus twice their covariance with correctness) makes it exact for any.

    Example:
        >>> parts = murphy(TopLabel([0.9, 0.9, 0.5, 0.5], [True, True, True, False]))
        >>> round(parts.brier, 3), round(parts.reliability, 3), round(parts.refinement, 3)
        (0.13, 0.005, 0.125)

    Reference: Murphy (1973), A New Vector Partition of the Probability Score; Stephenson et al. (2008).
    """
    return murphy_of_state(BinnedMoments(n_bins)(as_predictions(predictions, "murphy", arrays)))


def murphy_of_state(state: BinMoments) -> Murphy:
    """Return :func:`murphy` of the samples behind a state."""
    n, count = state.count.sum(), as_divisor(state.count)
    overall = state.correct.sum() / n
    accuracy, confidence = state.correct / count, state.confidence / count
    reliability = (state.count * (confidence - accuracy).square()).sum() / n
    resolution = (state.count * (accuracy - overall).square()).sum() / n
    variance = state.confidence_squared - state.count * confidence.square()
    covariance = state.confidence_correct - state.count * confidence * accuracy
    within, uncertainty = (variance - 2 * covariance).sum() / n, overall * (1 - overall)
    return Murphy(float(reliability), float(resolution), float(uncertainty), float(within))


class RefinementTerms(NamedTuple):
    """The terms α, β and γ of Singh et al. (2021), equation 9, and the numbers that are exact.

    Equation 9, ``ece = α − β − γ``, is **not an identity**: its right side is mean confidence minus the accuracy of a
    detector of right predictions averaged over how many it lets pass, not minus the classifier's accuracy. It is off by
    +.35 at an accuracy of .9. What holds exactly is ``ece = confidence − accuracy`` when no bin is underconfident
    (equation 7), and ``ece ≥ |confidence − accuracy|`` always.
    """

    alpha: float
    beta: float
    gamma: float
    ece: float
    confidence_minus_accuracy: float
    overconfident_bins: float

    @property
    def equation_9(self) -> float:
        """α − β − γ, which the paper equates with ece."""
        return self.alpha - self.beta - self.gamma


def refinement_terms(
    *predictions: Predictions | TopLabel, n_bins: int = 15, **arrays: Unpack[Arrays]
) -> RefinementTerms:
    """Terms α, β, γ of equation 9 (see :class:`RefinementTerms`), and the share of bins that are not underconfident.

    ``α = mean confidence``, ``β = auroc · 2PN/n²``, ``γ = (P² + N²)/(2n²)`` with P right and N wrong predictions.

    Reference: Singh et al. (2021), arXiv:2106.09385, equations 7 to 9.
    """
    samples = as_predictions(predictions, "refinement_terms", arrays)
    return refinement_terms_of_state(Binned(n_bins)(samples), auroc=AUROC()(samples))


def refinement_terms_of_state(state: Bins, *, auroc: float) -> RefinementTerms:
    """Return :func:`refinement_terms` of the samples behind a state, from their area under the ROC curve."""
    n, right, mean_confidence = (float(part.sum()) for part in (state.count, state.correct, state.confidence))
    wrong, mean_confidence = n - right, mean_confidence / n
    # Without right or without wrong predictions the separation has no pairs and its weight is zero.
    separation, seen = auroc if right and wrong else 0.0, state.count > 0
    return RefinementTerms(
        alpha=mean_confidence,
        beta=separation * 2 * right * wrong / n**2,
        gamma=(right**2 + wrong**2) / (2 * n**2),
        ece=float(ECE(len(state.count)).value(state)),
        confidence_minus_accuracy=mean_confidence - right / n,
        overconfident_bins=float((state.correct <= state.confidence)[seen].double().mean()),
    )


_MIN_TEMPERATURE, _MAX_TEMPERATURE = 1e-3, 1e3  # only broken models need others
_BLOCK, _GPU_BLOCK = 1 << 18, 1 << 24  # numbers computed at a time


class ScoreSplit(NamedTuple):
    """A proper score in two parts, with the 95 % interval of the calibration part."""

    total: float
    calibration: float
    calibration_low: float
    calibration_high: float
    refinement: float


@with_devices_of_inputs
def calibration_refinement(
    *predictions: Predictions, folds: int = 5, seed: int = 0, **arrays: Unpack[Arrays]
) -> dict[str, ScoreSplit]:
    """Split log-loss (``nll``) and ``brier`` into calibration and refinement by a cross-fitted temperature.

    Refinement is the score that remains after the temperature was fitted on the other folds: what one temperature
    cannot lower, though a richer recalibration or a better model may. Calibration is what it removed, a lower bound
    of what recalibration can; it is negative where a temperature does not help, or was fitted on too few samples. Its
    interval is one for what the best temperature by log-loss would remove: the upper end is the highest of those at the
    fitted ones and at both ends of the 95 % interval of the best (White, 1982, Econometrica 50). Given probabilities
    with zeros are mixed with a share of the uniform distribution first, as temperature scaling does.

    Args:
        predictions: At least two samples per fold.
        folds: Number of folds.
        seed: Random seed of the fold assignment.

    Reference: Berta et al. (2025), Rethinking Early Stopping: Refine, Then Calibrate, arXiv:2501.19195.
    """
    samples = full_predictions(as_predictions(predictions, "calibration_refinement", arrays))
    check_at_least(folds, 2, "folds")
    check_at_least(len(samples), 2 * folds, "samples for the cross-fitted split")
    chance, device = torch.Generator().manual_seed(seed), samples.logits.device
    fold = by_unit(len(samples), samples.clusters, lambda n: torch.randperm(n, generator=chance).to(device) % folds)
    recalibrated = samples.mixed_with_uniform(samples.uniform_share)  # of all folds, on which it hardly depends
    beta, ends = _beta_by_fold(recalibrated, fold, folds)
    before = _scores(samples, torch.ones_like(beta), fold)
    if samples.given_as_probs:  # as the log-loss of given probabilities counts them
        before["nll"].clamp_(max=-math.log(LABEL_FLOOR))
    share = samples.mass / samples.mass.sum()
    trials = [_scores(recalibrated, betas, fold) for betas in (beta, *ends[:, None].expand(2, folds))]
    splits = {}
    for name, score in before.items():
        (low, mean, high), *others = (_gain_interval(samples, score - trial[name], share) for trial in trials)
        total, refinement = (float((part * share).sum()) for part in (score, trials[0][name]))
        splits[name] = ScoreSplit(total, mean, low, max(high, *(gain[2] for gain in others)), refinement)
    return splits


def _gain_interval(samples: Predictions, gain: Tensor, share: Tensor) -> tuple[float, float, float]:
    """Return the weighted mean between the ends of its 95 % interval.

    These allow for skewness, as of the gain in log-loss where few losses are large. Reference: Hall (1992), On the
    Removal of Skewness by Transformation, Journal of the Royal Statistical Society B.
    """
    largest = float(gain.abs().max()) or 1.0  # divided by, so that no square overflows
    mean, n = float((gain * share).sum()), 1 / float(samples.cluster_sums(share).square().sum())  # effective
    moved = samples.cluster_sums(share * (gain - mean) / largest)
    squares, cubes = float(moved.square().sum()), float(moved.pow(3).sum())
    skewness, error = cubes / (squares**1.5 or 1.0), math.sqrt(squares * n / max(n - 1, 1)) * largest
    skewness = math.copysign(max(abs(skewness), 1e-6), skewness)  # below that it makes no difference
    reached = (math.cbrt(1 + skewness * (z - skewness / 6)) - 1 for z in (1.96, -1.96))
    low, high = (mean - 3 * error / skewness * root for root in reached)
    return low, mean, high


def _beta_by_fold(predictions: Predictions, fold: Tensor, folds: int) -> tuple[Tensor, Tensor]:
    """Return the best inverse temperature for all samples but those of each fold, (folds,), and its interval, (2,)."""
    weights = None if predictions.weights is None else predictions.weights / predictions.weights.mean()
    reached, slopes = 1.0, torch.zeros(3, folds, dtype=torch.float64, device=fold.device)
    of_samples = torch.empty(0 if predictions.clusters is None else len(predictions)).to(slopes)

    def slope_and_curvature(beta: float) -> list[float]:
        nonlocal reached
        reached = beta
        slopes.zero_()
        for block in temperature_derivatives(predictions.logits, predictions.labels, beta):
            both = torch.stack([block.slope, block.curvature]).double() * (
                1 if weights is None else weights[block.rows]
            )
            slopes.index_add_(1, fold[block.rows], torch.cat([both, both[:1].square()]))
            if len(of_samples):
                of_samples[block.rows] = both[0]
        return slopes[:2].sum(dim=1).tolist()

    find_root(slope_and_curvature, start=1.0, low=1 / _MAX_TEMPERATURE, high=1 / _MIN_TEMPERATURE, tolerance=1e-4)
    # One Newton step from there without the fold's samples: the sums are additive, so leaving a fold out costs nothing.
    total = slopes.sum(dim=1, keepdim=True)
    step = (total - slopes)[0] / (total - slopes)[1].clamp(min=1e-300)
    squares = predictions.cluster_sums(of_samples).square().sum() if len(of_samples) else total[2]
    half = 1.96 * squares.sqrt() / total[1].clamp(min=1e-300)
    beta = torch.cat([reached - step, reached - half, reached + half])
    return beta.clamp(1 / _MAX_TEMPERATURE, 1 / _MIN_TEMPERATURE).split([folds, 2])


def _scores(predictions: Predictions, beta: Tensor, fold: Tensor) -> dict[str, Tensor]:
    """Return log-loss and Brier score of every sample at its fold's inverse temperature."""
    scores: dict[str, list[Tensor]] = {"nll": [], "brier": []}
    start, farthest = 0, -torch.finfo(torch.float64).max / (4 * len(predictions))  # log-losses add up to a number
    numbers = _BLOCK if predictions.logits.device.type == "cpu" else _GPU_BLOCK
    for block in predictions.blocks(max(1, numbers // predictions.n_classes)):
        scale = beta[fold[start : start + len(block)]]
        logits = block.logits.double()
        gaps = (logits - logits.amax(dim=1, keepdim=True)).mul_(scale[:, None]).clamp_(min=farthest)
        soft = SoftmaxRows(gaps, block.labels, Wanted(squares=True))
        scores["nll"].append(soft.nll())
        scores["brier"].append(soft.brier())
        start += len(block)
    return {name: torch.cat(parts) for name, parts in scores.items()}

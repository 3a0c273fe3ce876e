"""Scores taken apart: what part is calibration, what part is refinement."""

from typing import NamedTuple, Unpack

from calibrant.metrics.binned import ECE
from calibrant.metrics.detection import AUROC
from calibrant.metrics.statistics import Binned, BinnedMoments
from calibrant.predictions import Arrays, Predictions, TopLabel, as_predictions

__all__ = ["Murphy", "RefinementTerms", "murphy", "refinement_terms"]


class Murphy(NamedTuple):
    """The top-label Brier score in parts; :attr:`brier` is their exact sum."""

    reliability: float
    resolution: float
    uncertainty: float
    within_bin: float

    @property
    def brier(self) -> float:
        """Top-label Brier score."""
        return self.reliability - self.resolution + self.uncertainty + self.within_bin

    @property
    def refinement(self) -> float:
        """What remains of the score when the calibration error is gone: uncertainty minus resolution."""
        return self.uncertainty - self.resolution


def murphy(*predictions: Predictions | TopLabel, n_bins: int = 15, **arrays: Unpack[Arrays]) -> Murphy:
    """Murphy's decomposition of the top-label Brier score over equal-width bins.

    ``reliability − resolution + uncertainty`` is exact for confidences that are constant inside a bin; ``within_bin``
    (variance of the confidences inside the bins minus twice their covariance with correctness) makes it exact for any.

    Example:
        >>> parts = murphy(TopLabel([0.9, 0.9, 0.5, 0.5], [True, True, True, False]))
        >>> round(parts.brier, 3), round(parts.reliability, 3), round(parts.refinement, 3)
        (0.13, 0.005, 0.125)

    Reference:
        Murphy (1973), A New Vector Partition of the Probability Score; Stephenson et al. (2008) for the within-bin
        terms.
    """
    state = BinnedMoments(n_bins)(as_predictions(predictions, "murphy", arrays))
    n, count = state.count.sum(), state.count.clamp(min=1)
    overall = state.correct.sum() / n
    accuracy, confidence = state.correct / count, state.confidence / count
    reliability = (state.count * (confidence - accuracy).square()).sum() / n
    resolution = (state.count * (accuracy - overall).square()).sum() / n
    variance = state.confidence_squared - state.count * confidence.square()
    covariance = state.confidence_correct - state.count * confidence * accuracy
    within = (variance - 2 * covariance).sum() / n
    uncertainty = overall * (1 - overall)
    return Murphy(float(reliability), float(resolution), float(uncertainty), float(within))


class RefinementTerms(NamedTuple):
    """The terms of equation 9 of "On the Dark Side of Calibration", beside what is exact.

    Equation 9, ``ece = α − β − γ``, is **not an identity**: its right side is mean confidence minus the accuracy of a
    detector of right answers averaged over how many it lets pass, not minus the classifier's accuracy. It is off by
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

    ``α = mean confidence``, ``β = auroc · 2PN/n²``, ``γ = (P² + N²)/(2n²)`` with P right and N wrong answers.

    Reference:
        Singh et al. (2021), arXiv:2106.09385, equations 7 to 9.
    """
    samples = as_predictions(predictions, "refinement_terms", arrays)
    state = Binned(n_bins)(samples)
    n = float(state.count.sum())
    right = float(state.correct.sum())
    wrong = n - right
    mean_confidence = float(state.confidence.sum()) / n
    # Without right or without wrong answers the separation has no pairs and its weight is zero.
    separation = AUROC()(samples) if right and wrong else 0.0
    seen = state.count > 0
    return RefinementTerms(
        alpha=mean_confidence,
        beta=separation * 2 * right * wrong / n**2,
        gamma=(right**2 + wrong**2) / (2 * n**2),
        ece=float(ECE(n_bins).value(state)),
        confidence_minus_accuracy=mean_confidence - right / n,
        overconfident_bins=float((state.correct <= state.confidence)[seen].double().mean()),
    )

"""Means over samples: accuracy, confidence, entropy, and the proper scores, by which to select a method."""

from dataclasses import dataclass
from typing import Unpack, final

from torch import Tensor

from calibrant.metrics.base import DESCRIPTION, Facts, MeanMetric, Metric
from calibrant.metrics.states import Averaged, BinMoments, Binned, BinnedMoments, Bins
from calibrant.numerics.softmax import SoftmaxRows, Wanted
from calibrant.paper import Paper
from calibrant.predictions import Arrays, Predictions, TopLabel

__all__ = [
    "NLL", "Accuracy", "Brier", "Confidence", "Entropy", "TopBrier", "accuracy", "brier", "confidence", "entropy",
    "nll", "top_brier",
]  # fmt: skip

_CLAMPING = Paper("Tang et al.", 2024, "Neural Clamping: Joint Input Perturbation and Temperature Scaling for Neural "
                  "Network Calibration", "arXiv:2209.11604")  # fmt: skip
_GUO = Paper("Guo et al.", 2017, "On Calibration of Modern Neural Networks", "arXiv:1706.04599")
_GNEITING = Paper("Gneiting & Raftery", 2007, "Strictly Proper Scoring Rules, Prediction, and Estimation",
                  "doi:10.1198/016214506000001437")  # fmt: skip
_BRIER = Paper("Brier", 1950, "Verification of Forecasts Expressed in Terms of Probability",
               "doi:10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2")  # fmt: skip

_SHARE: Facts = DESCRIPTION | {"lower_is_better": False, "smallest_effect": 0.001, "interval_method": "wilson"}


@final
@dataclass(frozen=True)
class Accuracy(Metric, name="accuracy", title="Accuracy", paper=_GUO, **_SHARE):
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
class Confidence(Metric, name="confidence", title="Mean confidence", paper=_GUO, **DESCRIPTION):
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
class Entropy(MeanMetric, name="entropy", title="Entropy", paper=_CLAMPING, **DESCRIPTION):
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
class Brier(MeanMetric, name="brier", title="Brier score", family="proper", paper=_BRIER):
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
class TopBrier(Metric, name="top_brier", title="Brier score, top label", family="proper", paper=_BRIER):
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

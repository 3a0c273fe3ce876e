"""Descriptions of predictions: accuracy, mean confidence and mean entropy."""

from dataclasses import dataclass
from typing import ClassVar, Unpack, final

from torch import Tensor

from calibrant.metrics.base import Family, Metric
from calibrant.metrics.bins import Bins
from calibrant.metrics.states import Average
from calibrant.metrics.statistics import Averaged, Binned
from calibrant.numerics.softmax import SoftmaxRows, Wanted
from calibrant.paper import Paper
from calibrant.predictions import Arrays, Predictions, TopLabel

__all__ = ["Accuracy", "Confidence", "Entropy", "accuracy", "confidence", "entropy"]

_CLAMPING = Paper("Tang et al.", 2024, "Neural Clamping: Joint Input Perturbation and Temperature Scaling for Neural "
                  "Network Calibration", "arXiv:2209.11604")  # fmt: skip
_GUO = Paper("Guo et al.", 2017, "On Calibration of Modern Neural Networks", "arXiv:1706.04599")


@final
@dataclass(frozen=True)
class Accuracy(Metric):
    """Share of rows whose predicted class is the label.

    Formula: 1/n Σ_i a_i
    Estimator: sample mean; Wilson's score interval, which stays sensible when every answer is right.
    Bias: none.
    Cost: O(n k) once for the argmax.
    """

    name: ClassVar[str] = "accuracy"
    title: ClassVar[str] = "Accuracy"
    family: ClassVar[Family] = "description"
    paper: ClassVar[Paper] = _GUO
    lower_is_better: ClassVar[bool | None] = False

    @property
    def statistic(self) -> Binned:
        """One bin: the plain sums."""
        return Binned(1)

    def value(self, state: Bins) -> Tensor:
        """Right answers over all answers."""
        return state.correct[..., 0] / state.count[..., 0]


@final
@dataclass(frozen=True)
class Confidence(Metric):
    """Mean confidence. Above the accuracy the model is overconfident on average, below it underconfident.

    Formula: 1/n Σ_i c_i
    Estimator: sample mean.
    Bias: none.
    Cost: O(n k) once for the softmax.
    """

    name: ClassVar[str] = "confidence"
    title: ClassVar[str] = "Mean confidence"
    family: ClassVar[Family] = "description"
    paper: ClassVar[Paper] = _GUO
    lower_is_better: ClassVar[bool | None] = None

    @property
    def statistic(self) -> Binned:
        """One bin: the plain sums."""
        return Binned(1)

    def value(self, state: Bins) -> Tensor:
        """Summed confidence over all answers."""
        return state.confidence[..., 0] / state.count[..., 0]


@final
@dataclass(frozen=True)
class Entropy(Metric):
    """Mean entropy of the predicted distribution, in nats: how spread out the predictions are.

    Formula: −1/n Σ_i Σ_k p_ik ln p_ik
    Estimator: sample mean.
    Bias: none.
    Cost: O(n k).
    """

    name: ClassVar[str] = "entropy"
    title: ClassVar[str] = "Entropy"
    family: ClassVar[Family] = "description"
    paper: ClassVar[Paper] = _CLAMPING
    lower_is_better: ClassVar[bool | None] = None

    @property
    def statistic(self) -> Averaged:
        """Entropy of every row."""
        return Averaged(SoftmaxRows.entropy, Wanted(entropy=True))

    def value(self, state: Average) -> Tensor:
        """Mean of the rows."""
        return state.total / state.count


def accuracy(*predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
    """Share of rows whose predicted class is the label (:class:`Accuracy`)."""
    return Accuracy()(*predictions, **arrays)


def confidence(*predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
    """Mean confidence (:class:`Confidence`)."""
    return Confidence()(*predictions, **arrays)


def entropy(*predictions: Predictions, **arrays: Unpack[Arrays]) -> float:
    """Mean entropy of the predicted distributions, in nats (:class:`Entropy`)."""
    return Entropy()(*predictions, **arrays)

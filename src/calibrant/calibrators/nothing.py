"""Doing nothing: the candidate that every other must beat."""

from dataclasses import dataclass
from typing import ClassVar, final

from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted
from calibrant.maps import Identity
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["DoNothing"]


@final
@dataclass(frozen=True)
class DoNothing(Calibrator):
    """Leave the predictions as they are.

    A well-regularised or well-ensembled network can be calibrated already; with few held-out rows every fitted map
    then adds more noise than it takes away. On large image benchmarks it beats vector scaling.

    Formula: q = softmax(z)
    Rows: none.
    """

    name: ClassVar[str] = "none"
    title: ClassVar[str] = "Uncalibrated"
    family: ClassVar[CalibratorFamily] = "baseline"
    paper: ClassVar[Paper] = Paper(
        "Guo et al.", 2017, "On Calibration of Modern Neural Networks", "arXiv:1706.04599", "the uncalibrated baseline"
    )
    preserves_accuracy: ClassVar[bool] = True
    preserves_ranking: ClassVar[bool] = True

    def learn(self, predictions: Predictions) -> Fitted:
        return Fitted(Identity(n_classes=predictions.n_classes))

"""What a calibrator that sees features is: a recipe fitted on predictions and the features they were made from."""

import dataclasses
import time
from abc import ABC, abstractmethod
from typing import Any, ClassVar, final

from torch import Tensor

from calibrant.calibrators.base import CalibratorFamily, gathered_warnings, with_comparison
from calibrant.calibrators.own_samples import compare_on_own_samples
from calibrant.errors import FitError, InputError
from calibrant.maps import FitSummary, ProximityMap, Surface
from calibrant.numerics.neighbours import Closeness, as_features, proximity, unit_rows
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["XIONG", "FeatureCalibrator"]

XIONG = Paper("Xiong et al.", 2023, "Proximity-Informed Calibration for Deep Neural Networks", "arXiv:2306.04590")


class FeatureCalibrator(ABC):
    """A method of the literature that sees features beside predictions; concrete ones are frozen dataclasses.

    The features are those of the layer before the logits, one row for each prediction; they are divided by their
    lengths. What ``preserves_accuracy`` and ``preserves_ranking`` mean is said at
    :class:`~calibrant.calibrators.Calibrator`.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    family: ClassVar[CalibratorFamily]
    paper: ClassVar[Paper]
    preserves_accuracy: ClassVar[bool]
    preserves_ranking: ClassVar[bool]

    neighbours: int
    closeness: Closeness

    @abstractmethod
    def learn(self, predictions: Predictions, nearness: Tensor) -> Surface:
        """Find the new log-odds, given each row's proximity to the others (n,), float64; called by :meth:`fit`."""

    @final
    def fit(self, predictions: Predictions, features: object) -> ProximityMap:
        """The map that suits these held-out predictions and features, with a summary of how it was found.

        Args:
            predictions: Rows the network was not trained on, and that will not judge the map.
            features: Of the same rows, (n, d): what the last layer makes its logits of.

        Raises:
            FitError: If there are too few rows to have neighbours.
            InputError: If the features do not belong to the predictions, or are not finite numbers.
        """
        if not isinstance(predictions, Predictions):
            raise InputError(f"{self.name} must be fitted on Predictions; got {type(predictions).__name__}.")
        given = as_features(features, rows=len(predictions)).to(predictions.logits.device)
        if len(predictions) <= self.neighbours:
            raise FitError(
                f"{self.name} needs more rows than neighbours ({self.neighbours}), since no row is its own neighbour; "
                f"got {len(predictions)}. Take more rows, or fewer neighbours."
            )
        start = time.perf_counter()
        with gathered_warnings() as warned:
            nearness = proximity(given, neighbours=self.neighbours, closeness=self.closeness).double()
            surface = self.learn(predictions, nearness)
        fitted = ProximityMap(
            unit_rows(given),
            surface,
            n_classes=predictions.n_classes,
            neighbours=self.neighbours,
            closeness=self.closeness,
        )
        fitted.summary = FitSummary(
            method=self.name,
            settings=self.settings(),
            rows=len(predictions),
            seconds=time.perf_counter() - start,
            notes=tuple(map(str, warned)),
        )
        found = compare_on_own_samples(predictions, lambda logits, places: fitted(logits, given[places]))
        fitted.summary = with_comparison(fitted.summary, found)
        return fitted

    @final
    def settings(self) -> dict[str, Any]:
        """The options, as a file can hold them."""
        return dataclasses.asdict(self)  # type: ignore[call-overload]  # concrete calibrators are dataclasses

"""The mean of two methods between which cross-validation cannot decide."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch

from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted
from calibrant.maps import LogMixture
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["Pool"]


@final
@dataclass(frozen=True)
class Pool(Calibrator):
    """Fit several methods and average their log-probabilities.

    Args:
        members: The methods.
        weights: One a method, above 0, summing to one.
    """

    name: ClassVar[str] = "pool"
    title: ClassVar[str] = "Mean of several methods"
    family: ClassVar[CalibratorFamily] = "composition"
    paper: ClassVar[Paper] = Paper(
        "Genest & Zidek",
        1986,
        "Combining Probability Distributions: A Critique and an Annotated Bibliography",
        "doi:10.1214/ss/1177013825",
        "the logarithmic opinion pool",
    )
    # What it preserves depends on its members; these hold for all of them.
    preserves_accuracy: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False

    members: tuple[Calibrator, ...]
    weights: tuple[float, ...]

    def learn(self, predictions: Predictions) -> Fitted:
        maps = [member.fit_uncompared(predictions) for member in self.members]
        weights = torch.tensor(self.weights, dtype=torch.float64, device=predictions.logits.device)
        return Fitted(LogMixture(weights, maps, n_classes=predictions.n_classes))

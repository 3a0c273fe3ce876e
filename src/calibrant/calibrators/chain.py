"""The uncalibrated baseline, chains of calibrators, and geometric means of two."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch

from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted, check_calibrators
from calibrant.errors import InputError
from calibrant.maps import ChainMap, Identity, LogMixture
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["Chain", "DoNothing", "Pool"]


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


@final
@dataclass(frozen=True)
class Chain(Calibrator):
    """Fit the first method, apply it, fit the next on the result, and so on.

    Temperature scaling before an isotonic or binning method gives the latter a better scale to work on (the
    composition of Mix-n-Match). All are fitted on the same rows, so a long chain of flexible methods overfits. On the
    command line a chain is written ``temperature+isotonic``.

    Formula: q = (m_r ∘ … ∘ m_1)(z)
    Rows: what its neediest method needs.

    Args:
        steps: The methods, in order.
    """

    name: ClassVar[str] = "chain"
    title: ClassVar[str] = "Methods one after the other"
    family: ClassVar[CalibratorFamily] = "composition"
    paper: ClassVar[Paper] = Paper(
        "Zhang et al.",
        2020,
        "Mix-n-Match: Ensemble and Compositional Methods for Uncertainty Calibration in Deep Learning",
        "arXiv:2003.07329",
    )
    # What a chain preserves depends on its steps; these hold for every chain.
    preserves_accuracy: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False

    steps: tuple[Calibrator, ...] = (DoNothing(),)

    def __post_init__(self) -> None:
        check_calibrators(self.steps, "steps")
        if not self.steps:
            raise InputError("a chain must have at least one step; got none.")

    def learn(self, predictions: Predictions) -> Fitted:
        maps = []
        for step in self.steps:
            maps.append(step.fit_uncompared(predictions))
            predictions = maps[-1].transform(predictions)
        return Fitted(ChainMap(maps, n_classes=predictions.n_classes))


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

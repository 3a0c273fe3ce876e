"""Methods one after the other, each fitted on what the one before it leaves."""

from dataclasses import dataclass
from typing import ClassVar, final

from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted, check_calibrators
from calibrant.calibrators.nothing import DoNothing
from calibrant.errors import InputError
from calibrant.maps import ChainMap
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["Chain"]


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

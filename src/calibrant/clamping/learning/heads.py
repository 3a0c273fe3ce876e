"""The map behind the network, fitted anew for every δ: a temperature solved exactly, or any calibrator's map."""

from functools import partial
from typing import final

import torch
from torch import Tensor

from calibrant.calibrators import Calibrator, TemperatureScaling
from calibrant.errors import FitError, InputError
from calibrant.maps import Map, Scale
from calibrant.numerics.coldest import best_coldness, focal_loss, log_loss
from calibrant.predictions import Predictions

__all__ = ["HeadFit"]


@final
class HeadFit:
    """Fits the head to logits, starting from the last one where that saves time.

    Args:
        calibrator: The head's method.
        gamma: Of the objective's focal loss, which a temperature minimises too.

    Raises:
        InputError: If the method minimises something else than the objective.
    """

    def __init__(self, calibrator: Calibrator, gamma: float) -> None:
        self._calibrator, self._gamma = calibrator, gamma
        self.is_temperature = isinstance(calibrator, TemperatureScaling)
        if isinstance(calibrator, TemperatureScaling) and calibrator.criterion != "nll":
            raise InputError(
                f"a temperature head minimises Neural Clamping's own objective; got criterion "
                f"{calibrator.criterion!r}. Leave it out, and give gamma to NeuralClamping."
            )
        if calibrator.family not in {"scaling", "baseline"}:
            raise InputError(
                f"the head must change smoothly with the logits and minimise a loss, for δ to be learned before it; "
                f"{calibrator.name} is of the family {calibrator.family}. Take one of the family scaling."
            )
        if not self.is_temperature and gamma > 0:
            raise InputError(
                f"gamma must be 0 with the head {calibrator.name}, which minimises the log-loss; got {gamma}. "
                "Only a temperature can follow the focal loss."
            )

    def fit(self, logits: Tensor, labels: Tensor, *, last: Map | None = None) -> Map:
        """The head for these rows.

        Args:
            logits: Shape (n, k), finite.
            labels: Shape (n,), on the same device.
            last: The head for about the same logits.

        Raises:
            FitError: If it has no optimum here.
        """
        if isinstance(last, Scale) and self.is_temperature and 0 < float(last.temperature) < float("inf"):
            loss = partial(focal_loss, gamma=self._gamma) if self._gamma > 0 else log_loss
            best = best_coldness(logits, labels, loss=loss, near=1 / float(last.temperature))
            if best.end == "inside":
                temperature = torch.tensor(1 / best.coldness, dtype=torch.float64, device=logits.device)
                return Scale(temperature, n_classes=logits.shape[1])
        calibrator = self._calibrator
        if self.is_temperature and self._gamma > 0:
            calibrator = TemperatureScaling(criterion="focal", gamma=self._gamma)
        try:
            return calibrator.fit(Predictions.from_logits(logits, labels))
        except FitError as error:
            raise FitError(f"the head {calibrator.name} could not be fitted behind x + δ: {error}") from error

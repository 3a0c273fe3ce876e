"""The map behind the network, fitted anew for every δ: a temperature solved exactly, or any calibrator's map."""

from functools import partial
from typing import final

import torch
from torch import Tensor

from calibrant.calibrators import (
    BetaCalibration,
    Calibrator,
    DiagonalOrderPreserving,
    DirichletODIR,
    EnsembleTemperatureScaling,
    MatrixScalingODIR,
    OrderInvariant,
    OrderPreserving,
    PlattScaling,
    QuadraticScaling,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
)
from calibrant.errors import FitError, InputError, SeparableError
from calibrant.losses.base import log_losses
from calibrant.maps import Map, Scale
from calibrant.numerics.coldest import best_coldness, focal_loss, log_loss
from calibrant.predictions import Predictions

__all__ = ["HeadFit", "own_penalty"]

# Fitted a class at a time; or to features of the logits that are themselves worked out from all rows.
_OF_ANOTHER_LOSS = (
    BetaCalibration,
    DiagonalOrderPreserving,
    OrderInvariant,
    OrderPreserving,
    PlattScaling,
    QuadraticScaling,
)
# They begin with a temperature, and count half an unseen mistake where there is none.
_OF_A_TEMPERATURE = (TemperatureScaling, StructuredVectorScaling, StructuredMatrixScaling)


@final
class HeadFit:
    """Fits the head to logits, starting from the last one where that saves time.

    Args:
        calibrator: The head's method. It must minimise what δ does, or a penalty of its own and that, as svs and sms
            do: only then is the gradient behind the head as it stands that of the head following δ.
        gamma: Of the objective's focal loss, which a temperature minimises too.

    Raises:
        InputError: If the method minimises something else than the objective.
    """

    def __init__(self, calibrator: Calibrator, gamma: float) -> None:
        self._calibrator, self._gamma = calibrator, gamma
        self.is_temperature = isinstance(calibrator, TemperatureScaling)
        _check_minimises_the_objective(calibrator)
        if isinstance(calibrator, TemperatureScaling) and calibrator.value is not None:
            raise InputError(f"the head's temperature must be left to the fit; got value={calibrator.value:g}.")
        if not self.is_temperature and gamma > 0:
            raise InputError(
                f"gamma must be 0 with the head {calibrator.name}, which minimises the log-loss; got {gamma}. "
                "Only a temperature can follow the focal loss."
            )

    def fit(self, logits: Tensor, labels: Tensor, *, last: Map | None = None, is_moved: bool = False) -> Map:
        """The head for these rows.

        Args:
            logits: Shape (n, k), finite.
            labels: Shape (n,), on the same device.
            last: The head for about the same logits.
            is_moved: Whether inputs were moved by δ, for what an error advises.

        Raises:
            SeparableError: If it has no optimum here because (almost) every row is right.
            FitError: If it has none for another reason.
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
        told = f"the head {calibrator.name} could not be fitted behind x + δ"
        advice = " Or hold δ, which has brought this about, with a larger strength." if is_moved else ""
        if isinstance(calibrator, _OF_A_TEMPERATURE) and bool((logits.argmax(dim=1) == labels).all()):
            # It would count half an unseen mistake, and no longer minimise the objective that δ follows.
            raise SeparableError(
                f"{told}: temperature must have a smallest loss above 0; here a smaller one is always better, because "
                f"the label has the largest logit in every row. Fit on rows with some wrong predictions.{advice}"
            )
        try:
            return calibrator.fit_uncompared(Predictions.from_logits(logits, labels))
        except SeparableError as error:
            raise SeparableError(f"{told}: {error}{advice}") from error
        except FitError as error:
            raise FitError(f"{told}: {error}") from error


def own_penalty(head: Map, logits: Tensor, labels: Tensor) -> float:
    """What a head's own penalty adds to the mean log-loss of the rows that it was fitted to; 0 for one without.

    Args:
        head: As :meth:`HeadFit.fit` gives it.
        logits: Shape (n, k), those it was fitted to.
        labels: Shape (n,).
    """
    if head.summary is None or head.summary.certificate is None:
        return 0.0
    with torch.no_grad():
        return head.summary.certificate.objective - float(log_losses(head(logits.double()), labels).mean())


def _check_minimises_the_objective(calibrator: Calibrator) -> None:
    name = calibrator.name
    if isinstance(calibrator, TemperatureScaling) and calibrator.criterion != "nll":
        raise InputError(
            f"a temperature head minimises Neural Clamping's own objective; got criterion "
            f"{calibrator.criterion!r}. Leave it out, and give gamma to NeuralClamping."
        )
    if calibrator.family not in {"scaling", "baseline"}:
        raise InputError(
            f"the head must change smoothly with the logits and minimise a loss, for δ to be learned before it; "
            f"{name} is of the family {calibrator.family}. Take one of the family scaling."
        )
    is_brier = isinstance(calibrator, EnsembleTemperatureScaling) and calibrator.criterion != "nll"
    if isinstance(calibrator, _OF_ANOTHER_LOSS) or is_brier:
        raise InputError(
            f"the head must minimise the log-loss of all classes at once, and a penalty at most, for δ to be learned "
            f"before it; {name} minimises something else. Take temperature, vector, svs, sms or ets."
        )
    if isinstance(calibrator, MatrixScalingODIR | DirichletODIR) and None in {
        calibrator.strength,
        calibrator.bias_strength,
    }:
        raise InputError(
            f"the head {name} must be given its strength and bias_strength: searched anew for every δ they would jump. "
            "Fit it on its own to find them, or take sms."
        )

"""What structured vector and matrix scaling share: a temperature first, then a penalised step away from it."""

import torch

from calibrant.calibrators.absent import warn_of_absent
from calibrant.calibrators.base import Fitted
from calibrant.calibrators.scaling.affine import finite_coldness, log_probs_at
from calibrant.errors import InputError
from calibrant.maps import Affine, ChainMap, Scale
from calibrant.numerics.softmax_regression import Ridge, WeightShape, fit_affine
from calibrant.predictions import Predictions

__all__ = ["check_strengths", "fit_structured"]


def fit_structured(predictions: Predictions, name: str, *, shape: WeightShape, ridge: Ridge) -> Fitted:
    """Temperature scaling, then an affine function of its log-probabilities that is held near the identity.

    Args:
        predictions: The calibration rows.
        name: Of the method, for messages.
        shape: "diagonal" or "matrix".
        ridge: Penalties of the mean log-loss.
    """
    warn_of_absent(predictions, name)
    k, first = predictions.n_classes, finite_coldness(predictions)
    fit = fit_affine(log_probs_at(predictions, first.coldness), predictions.labels, shape=shape, ridge=ridge)
    temperature = torch.tensor(1 / first.coldness, dtype=torch.float64, device=predictions.logits.device)
    # The log-probabilities at a temperature are not linear in those without it, so these stay two maps.
    both = (Scale(temperature, n_classes=k), Affine(fit.weight, fit.bias, n_classes=k, of_log_probs=True))
    certificate = fit.certificate._replace(passes=fit.certificate.passes + first.certificate.passes)
    return Fitted(ChainMap(both, n_classes=k), certificate)


def check_strengths(**strengths: float) -> None:
    """Strengths of penalties are positive: without them there may be no optimum."""
    for name, strength in strengths.items():
        if not 0 < strength < float("inf"):
            raise InputError(
                f"{name} must be above 0 and finite; got {strength}. Without a penalty, use vector or matrix."
            )

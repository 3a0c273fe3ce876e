"""What the methods that are linear in the logits share: where they begin, and what they must refuse or warn of."""

import warnings

import torch
from torch import Tensor

from calibrant.calibrators.absent import some_names
from calibrant.errors import CalibrantWarning, FitError, SeparableError
from calibrant.numerics.coldest import BestColdness, best_coldness, coldness_with_half_a_mistake
from calibrant.numerics.precision import working
from calibrant.predictions import Predictions

__all__ = ["check_every_class_seen", "coldness_of", "finite_coldness", "log_probs_at", "warn_of_few_rows"]


def coldness_of(predictions: Predictions, name: str) -> BestColdness:
    """The inverse temperature to begin from.

    Raises:
        FitError: If there is none, because the label has the largest logit in almost every row.
    """
    best = best_coldness(predictions.logits, predictions.labels, span=predictions.span)
    if best.end == "cold":
        raise SeparableError(
            f"{name} must have some wrong predictions to learn from; here the label has the largest logit in (almost) "
            f"all {len(predictions)} rows, so larger weights are always better. Fit on more rows."
        )
    return best


def finite_coldness(predictions: Predictions) -> BestColdness:
    """Return the best inverse temperature; with a warning where only half an unseen mistake makes it finite.

    For methods that have an optimum wherever a temperature has one.
    """
    best = best_coldness(predictions.logits, predictions.labels, span=predictions.span)
    if best.end == "cold":
        best = coldness_with_half_a_mistake(predictions.logits, predictions.labels)
        warnings.warn(
            f"(almost) all {len(predictions)} predictions are right, so that a smaller temperature always lowers the "
            f"log-loss; T = {1 / best.coldness:.3g} counts half an unseen mistake beside them. It is a guess: fit on "
            "samples with some wrong predictions.",
            CalibrantWarning,
            stacklevel=3,
        )
    return best


def log_probs_at(predictions: Predictions, coldness: float) -> Tensor:
    """Log-probabilities of the logits times a number, (n, k), in float32, or in float64 if the logits are."""
    return (working(predictions.logits) * coldness).log_softmax(dim=1)


def check_every_class_seen(predictions: Predictions, name: str, *, least: int = 1) -> None:
    """Every class has calibration rows.

    Args:
        predictions: The calibration rows.
        name: Of the method, for the message.
        least: How many rows each class must have.

    Raises:
        FitError: If not; the message names the classes.
    """
    rows = torch.bincount(predictions.labels, minlength=predictions.n_classes)
    lacking = (rows < least).nonzero()[:, 0]
    if len(lacking):
        wanted = "rows" if least == 1 else f"at least {least} rows"
        raise FitError(
            f"{name} must see {wanted} of every class, or its parameters for that class have no finite optimum; too "
            f"few of class {some_names(lacking, predictions)}. Use temperature or ets, or gather rows of it."
        )


def warn_of_few_rows(predictions: Predictions, parameters: int, name: str) -> None:
    """Say so where there are fewer rows than parameters."""
    if len(predictions) < parameters:
        warnings.warn(
            f"{name} fits {parameters} parameters to {len(predictions)} rows, and will follow their noise. "
            "Use svs or sms, which hold the parameters back, or more rows.",
            CalibrantWarning,
            stacklevel=3,
        )

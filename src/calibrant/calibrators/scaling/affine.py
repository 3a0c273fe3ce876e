"""Calibrators affine in the logits: bias-corrected temperature, vector and matrix scaling."""

import warnings
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted
from calibrant.calibrators.samples import some_names
from calibrant.errors import CalibrantWarning, FitError, SeparableError
from calibrant.maps import Affine
from calibrant.numerics.inverse_temperature import (
    InverseTemperatureFit,
    fit_inverse_temperature,
    fit_with_half_an_error,
)
from calibrant.numerics.softmax import working
from calibrant.numerics.softmax_regression import fit_affine
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = [
    "BiasCorrectedTemperature",
    "MatrixScaling",
    "VectorScaling",
    "check_every_class_seen",
    "finite_temperature_fit",
    "log_probs_at",
    "temperature_fit",
    "warn_of_few_rows",
]


def temperature_fit(predictions: Predictions, name: str) -> InverseTemperatureFit:
    """The inverse temperature to begin from.

    Raises:
        FitError: If there is none, because the label has the largest logit in almost every row.
    """
    best = fit_inverse_temperature(predictions.logits, predictions.labels, span=predictions.span)
    if best.end == "cold":
        raise SeparableError(
            f"{name} must have some wrong predictions to learn from; here the label has the largest logit in (almost) "
            f"all {len(predictions)} rows, so larger weights are always better. Fit on more rows."
        )
    return best


def finite_temperature_fit(predictions: Predictions) -> InverseTemperatureFit:
    """Return the best inverse temperature; with a warning where only half an unseen mistake makes it finite.

    For methods that have an optimum wherever a temperature has one.
    """
    best = fit_inverse_temperature(predictions.logits, predictions.labels, span=predictions.span)
    if best.end == "cold":
        best = fit_with_half_an_error(predictions.logits, predictions.labels)
        warnings.warn(
            f"(almost) all {len(predictions)} predictions are right, so that a smaller temperature always lowers the "
            f"log-loss; T = {1 / best.beta:.3g} counts half an unseen mistake beside them. It is a guess: fit on "
            "samples with some wrong predictions.",
            CalibrantWarning,
            stacklevel=3,
        )
    return best


def log_probs_at(predictions: Predictions, beta: float) -> Tensor:
    """Log-probabilities of the logits times a number, (n, k), in float32, or in float64 if the logits are."""
    return (working(predictions.logits) * beta).log_softmax(dim=1)


def check_every_class_seen(predictions: Predictions, name: str, *, least: int = 1) -> None:
    """Every class has calibration rows.

    Args:
        predictions: The calibration rows.
        name: Name of the method, for the message.
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


@final
@dataclass(frozen=True)
class BiasCorrectedTemperature(Calibrator):
    """Divide the logits by one number and add another to each class, so that the log-loss is smallest.

    The shifts correct classes that are over- or underrated as a whole: afterwards the mean probability of each class
    over the calibration samples is its share of them, which is what estimates of a shifted class balance rest on. It
    cannot correct a class whose probabilities are too steep or too flat. Where shares differ between calibration and
    use, the shifts carry the wrong ones over, and temperature scaling alone is the safer choice.

    Formula: q = softmax(a z + b), Σ_j b_j = 0
    Rows: about 20 of each class; a class without rows has no optimum.

    Raises:
        FitError: If a class has no rows, or all predictions are right.

    Example:
        >>> import torch
        >>> logits = torch.randn(3000, 3, generator=torch.manual_seed(0), dtype=torch.float64)
        >>> labels = torch.multinomial(logits.softmax(1), 1, generator=torch.manual_seed(1))[:, 0]
        >>> fitted = BiasCorrectedTemperature().fit(Predictions.from_logits(2 * logits + torch.arange(3), labels))
        >>> round(float(fitted.weight), 1), [round(number, 1) for number in fitted.bias.tolist()]
        (0.5, [0.5, 0.0, -0.5])
    """

    name: ClassVar[str] = "bias_corrected"
    title: ClassVar[str] = "Bias-corrected temperature scaling"
    family: ClassVar[CalibratorFamily] = "scaling"
    paper: ClassVar[Paper] = Paper(
        "Alexandari et al.",
        2020,
        "Maximum Likelihood with Bias-Corrected Calibration is Hard-To-Beat at Label Shift Adaptation",
        "arXiv:1901.06852",
        "Section 2.3",
    )
    # The shifts move the thresholds between classes.
    preserves_accuracy: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False

    def learn(self, predictions: Predictions) -> Fitted:
        k = predictions.n_classes
        check_every_class_seen(predictions, self.title)
        warn_of_few_rows(predictions, k + 1, self.title)
        beta = temperature_fit(predictions, self.title).beta
        fit = fit_affine(predictions.logits, predictions.labels, shape="number", start=(beta, 0.0))
        if fit.weight <= 0:
            warnings.warn(
                f"the best multiple of the logits is {float(fit.weight):.3g}, below zero: on these rows the network's "
                "favourites are right less often than chance. Check that labels and logits belong together.",
                CalibrantWarning,
                stacklevel=3,
            )
        return Fitted(Affine(fit.weight, fit.bias, n_classes=k), fit.certificate)


@final
@dataclass(frozen=True)
class VectorScaling(Calibrator):
    """Scale and shift the logit of each class by numbers of its own, so that the log-loss is smallest.

    It corrects classes that are over- or underrated, and classes that are more sure of themselves than others. The 2k
    numbers follow noise: with fewer than a hundred rows a class it is often worse than temperature scaling on new rows,
    and structured vector scaling (svs), the same with a penalty, is nearly always better. Logits are taken as they are:
    a number added to all logits of a row, which no probability shows, changes its result.

    Formula: q = softmax(w ⊙ z + b), Σ_j b_j = 0
    Rows: about 100 of each class; a class without rows has no optimum.

    Raises:
        FitError: If a class has no rows, or the samples are separable.

    Example:
        >>> import torch
        >>> logits = torch.randn(3000, 3, generator=torch.manual_seed(0), dtype=torch.float64)
        >>> labels = torch.multinomial(logits.softmax(1), 1, generator=torch.manual_seed(1))[:, 0]
        >>> steep = logits * torch.tensor([1.0, 2.0, 4.0])
        >>> fitted = VectorScaling().fit(Predictions.from_logits(steep, labels))
        >>> [round(number, 1) for number in fitted.weight.tolist()]
        [1.0, 0.5, 0.3]
    """

    name: ClassVar[str] = "vector"
    title: ClassVar[str] = "Vector scaling"
    family: ClassVar[CalibratorFamily] = "scaling"
    paper: ClassVar[Paper] = Paper(
        "Guo et al.", 2017, "On Calibration of Modern Neural Networks", "arXiv:1706.04599", "Section 4.2"
    )
    # Each class has its own slope and shift.
    preserves_accuracy: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False

    def learn(self, predictions: Predictions) -> Fitted:
        k = predictions.n_classes
        check_every_class_seen(predictions, self.title)
        warn_of_few_rows(predictions, 2 * k, self.title)
        beta = temperature_fit(predictions, self.title).beta
        # Differs from the paper: an exact optimum, where its code takes steps of gradient descent.
        fit = fit_affine(predictions.logits, predictions.labels, shape="diagonal", start=(beta, 0.0))
        return Fitted(Affine(fit.weight, fit.bias, n_classes=k), fit.certificate)


@final
@dataclass(frozen=True)
class MatrixScaling(Calibrator):
    """A linear function of the logits, with a full matrix and no penalty, so that the log-loss is smallest.

    It can undo any confusion between classes, and with ten classes and thousands of rows it does. Its k (k + 1) numbers
    make it the first to overfit: with a hundred classes and 5,000 rows it tells the calibration rows apart almost
    without error, which has no optimum and is refused here. (Papers that report it there stop gradient descent early;
    the result is then that of the stopping.) Structured matrix scaling (sms) and ms_odir are the same with a penalty.

    Formula: q = softmax(W z + b); the off-diagonal of each column of W sums to 0, as does b
    Rows: about 20 (k + 1) of each class; a class without rows has no optimum.

    Raises:
        FitError: If a class has no rows, or the samples are separable.

    Example:
        >>> import torch
        >>> logits = torch.randn(5000, 3, generator=torch.manual_seed(0), dtype=torch.float64)
        >>> labels = torch.multinomial(logits.softmax(1), 1, generator=torch.manual_seed(1))[:, 0]
        >>> swapped = logits[:, [1, 0, 2]]
        >>> fitted = MatrixScaling().fit(Predictions.from_logits(swapped, labels))
        >>> round(float((fitted(swapped).argmax(1) == logits.argmax(1)).float().mean()), 1)
        1.0
    """

    name: ClassVar[str] = "matrix"
    title: ClassVar[str] = "Matrix scaling"
    family: ClassVar[CalibratorFamily] = "scaling"
    paper: ClassVar[Paper] = Paper(
        "Guo et al.", 2017, "On Calibration of Modern Neural Networks", "arXiv:1706.04599", "Section 4.2"
    )
    # Classes are mixed.
    preserves_accuracy: ClassVar[bool] = False
    preserves_ranking: ClassVar[bool] = False

    def learn(self, predictions: Predictions) -> Fitted:
        k = predictions.n_classes
        check_every_class_seen(predictions, self.title)
        warn_of_few_rows(predictions, k * (k + 1), self.title)
        beta = temperature_fit(predictions, self.title).beta
        # Differs from the paper: an exact optimum, where its code takes steps of gradient descent.
        fit = fit_affine(predictions.logits, predictions.labels, shape="matrix", start=(beta, 0.0))
        return Fitted(Affine(fit.weight, fit.bias, n_classes=k), fit.certificate)

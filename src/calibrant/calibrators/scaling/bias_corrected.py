"""Bias-corrected temperature scaling: a temperature, and a shift for every class."""

import warnings
from dataclasses import dataclass
from typing import ClassVar, final

from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted
from calibrant.calibrators.scaling.affine import check_every_class_seen, coldness_of, warn_of_few_rows
from calibrant.errors import CalibrantWarning
from calibrant.maps import Affine
from calibrant.numerics.softmax_regression import fit_affine
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["BiasCorrectedTemperature"]


@final
@dataclass(frozen=True)
class BiasCorrectedTemperature(Calibrator):
    """Divide the logits by one number and add another to each class, so that the log-loss is smallest.

    The shifts mend classes that are over- or underrated as a whole: afterwards the mean probability of each class over
    the calibration rows is its share of them, which is what estimates of a shifted class balance rest on. It cannot
    mend a class whose probabilities are too steep or too flat. Where shares differ between calibration and use, the
    shifts carry the wrong ones over, and temperature scaling alone is the safer choice.

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
        coldness = coldness_of(predictions, self.title).coldness
        fit = fit_affine(predictions.logits, predictions.labels, shape="number", start=(coldness, 0.0))
        if fit.weight <= 0:
            warnings.warn(
                f"the best multiple of the logits is {float(fit.weight):.3g}, below zero: on these rows the network's "
                "favourites are right less often than chance. Check that labels and logits belong together.",
                CalibrantWarning,
                stacklevel=3,
            )
        return Fitted(Affine(fit.weight, fit.bias, n_classes=k), fit.certificate)

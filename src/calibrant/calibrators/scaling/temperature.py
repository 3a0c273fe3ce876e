"""Temperature scaling: one number, fitted by each of the criteria that the literature uses."""

import warnings
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, TypeAlias, final, get_args

import torch
from torch import Tensor

from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted
from calibrant.calibrators.scaling.affine import finite_temperature_fit
from calibrant.checks import check_bins, check_known, check_positive
from calibrant.errors import CalibrantWarning, Caveat, InputError, SeparableError
from calibrant.maps import Scale
from calibrant.numerics.binning import errors_at_temperatures
from calibrant.numerics.inverse_temperature import fit_inverse_temperature, focal_loss
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["TemperatureCriterion", "TemperatureScaling"]

TemperatureCriterion: TypeAlias = Literal[
    "nll", "focal", "ece-neural-clamping", "ece-overconfidence", "ece-meta-regularization"
]
# How many temperatures each paper tries, and how far apart they are.
_GRIDS = {
    "ece-neural-clamping": (5000, 1000),
    # Differs from the paper: its public code stops at 4.99; the text's 10 is used.
    "ece-overconfidence": (1000, 100),
    # Differs from the paper: its public code adds up 0.1 a hundred times and drifts.
    "ece-meta-regularization": (100, 10),
}


@final
@dataclass(frozen=True)
class TemperatureScaling(Calibrator):
    """Divide the logits by the one number that minimises a loss on held-out rows.

    One number cannot overfit, and no prediction changes; it is the baseline that everything else must beat. It corrects
    over- and under-confidence that is the same everywhere, and nothing else: not a class that is overrated, not one
    region of confidence. With more than two classes the order of confidences across rows can change a little, and so
    can AUROC. The log-loss is convex in 1/T, so its minimum is found for certain; a calibration error jumps with T and
    is searched on the papers' grids, only to reproduce them. Without a single wrong prediction the log-loss has no
    minimum: half an unseen mistake is then counted, with a warning.

    Formula: q = softmax(z / T)
    Rows: about 200; with 1,000 the temperature is known to about 3 %.

    Args:
        criterion: ``nll``; ``focal`` (the focal loss of Neural Clamping's ablation, which makes probabilities too
            flat); or the calibration error on the grid of a paper: ``ece-neural-clamping`` (0.001 to 5 by 0.001),
            ``ece-overconfidence`` (0.01 to 10 by 0.01), ``ece-meta-regularization`` (0.1 to 10 by 0.1).
        gamma: Focusing parameter γ of the focal loss.
        n_bins: Number of bins of the calibration error.
        value: T itself, where it is given and nothing is to be fitted, as papers that fix it at 1.5 do; only with the
            criterion ``nll``, which then says nothing.

    Example:
        >>> logits = torch.randn(2000, 5, generator=torch.manual_seed(0), dtype=torch.float64)
        >>> labels = torch.multinomial(logits.softmax(1), 1, generator=torch.manual_seed(1))[:, 0]
        >>> fitted = TemperatureScaling().fit(Predictions.from_logits(3 * logits, labels))
        >>> round(float(fitted.temperature), 1)
        3.0
    """

    name: ClassVar[str] = "temperature"
    title: ClassVar[str] = "Temperature scaling"
    family: ClassVar[CalibratorFamily] = "scaling"
    paper: ClassVar[Paper] = Paper(
        "Guo et al.", 2017, "On Calibration of Modern Neural Networks", "arXiv:1706.04599", "Section 4.2"
    )
    preserves_accuracy: ClassVar[bool] = True
    preserves_ranking: ClassVar[bool] = False  # only for two classes

    criterion: TemperatureCriterion = "nll"
    gamma: float = 1.0
    n_bins: int = 15
    value: float | None = None

    def __post_init__(self) -> None:
        check_known(self.criterion, get_args(TemperatureCriterion), "criterion")
        if not 0 <= self.gamma < float("inf"):
            raise InputError(f"gamma must be at least 0 and finite; got {self.gamma}.")
        check_bins(self.n_bins)
        if self.value is not None:
            check_positive(self.value, "value")
            if self.criterion != "nll":
                raise InputError(f"criterion must be left out where T is given as value; got {self.criterion!r}.")

    def learn(self, predictions: Predictions) -> Fitted:
        if self.value is not None:
            return Fitted(self._scale(predictions, self.value))
        if self.criterion in _GRIDS:
            return Fitted(self._scale(predictions, self._lowest_error(predictions.logits, predictions.labels)))
        # At γ = 0 the focal loss is the log-loss, which is convex.
        if self.criterion == "focal" and self.gamma > 0:
            loss = partial(focal_loss, gamma=self.gamma)
            best = fit_inverse_temperature(predictions.logits, predictions.labels, loss=loss, span=predictions.span)
            if best.end == "cold":
                raise SeparableError(
                    "temperature must have a smallest focal loss above 0; here a smaller one is always better, because "
                    "the label has the largest logit in (almost) every row. Fit on rows with some wrong predictions."
                )
        else:
            best = finite_temperature_fit(predictions)
        if best.end == "hot":
            warnings.warn(
                CalibrantWarning(
                    f"the predictions are no better than guessing, so the best temperature is the largest allowed "
                    f"({1 / best.beta:.3g}), which makes all classes equally likely. Check that the labels are not "
                    "shifted by one class and belong to these rows.",
                    caveat=Caveat.no_better_than_guessing,
                ),
                stacklevel=3,
            )
        return Fitted(self._scale(predictions, 1 / best.beta), best.certificate)

    def _lowest_error(self, logits: Tensor, labels: Tensor) -> float:
        size, per_unit = _GRIDS[self.criterion]
        temperatures = torch.arange(1, size + 1, dtype=torch.float64) / per_unit
        errors = errors_at_temperatures(logits, labels, temperatures, n_bins=self.n_bins)
        best = int(errors.argmin())
        if best in {0, size - 1}:
            warnings.warn(
                f"the calibration error is smallest at the end of the grid, T = {float(temperatures[best])}; "
                "the true minimum may lie beyond it. The criterion nll has no grid.",
                CalibrantWarning,
                stacklevel=3,
            )
        return float(temperatures[best])

    @staticmethod
    def _scale(predictions: Predictions, temperature: float) -> Scale:
        number = torch.tensor(temperature, dtype=torch.float64, device=predictions.logits.device)
        return Scale(number, n_classes=predictions.n_classes)

"""Affine functions of the logits: temperature, bias-corrected, vector, matrix and structured scaling; the identity."""

from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias, final

import torch
from torch import Tensor

from calibrant.calibrators.base import Calibrator, Fitted, absent_classes, class_names, warn_of_missing_classes
from calibrant.checks import BinCount, NonNegative, Positive, check_options
from calibrant.errors import Caveat, FitError, InputError, SeparableError, warn
from calibrant.maps import Affine, ChainMap, Identity, Scale
from calibrant.numerics.binning import errors_at_temperatures
from calibrant.numerics.inverse_temperature import (
    InverseTemperatureFit,
    SampleLoss,
    fit_inverse_temperature,
    fit_with_pseudo_error,
    focal_loss,
    log_loss,
)
from calibrant.numerics.softmax import to_working_precision
from calibrant.numerics.softmax_regression import Ridge, WeightShape, fit_affine
from calibrant.paper import GUO, Paper
from calibrant.predictions import Predictions

_GUO, _BASELINE = GUO.at("Section 4.2"), GUO.at("the uncalibrated baseline")


def inverse_temperature(predictions: Predictions, loss: SampleLoss = log_loss) -> InverseTemperatureFit:
    """Fit the inverse temperature of lowest mean loss."""
    weights, span = predictions.sample_counts, predictions.span
    return fit_inverse_temperature(predictions.logits, predictions.labels, weights=weights, loss=loss, span=span)


def temperature_fit(predictions: Predictions, name: str) -> InverseTemperatureFit:
    """Fit the inverse temperature that the method of this name starts from; refuse samples that have none."""
    best = inverse_temperature(predictions)
    if best.end == "zero_temperature":
        raise SeparableError(
            f"{name} must have some wrong predictions to learn from; here the label has the largest logit in (almost) "
            f"all {len(predictions)} samples, so larger weights are always better. Fit on more samples."
        )
    return best


def finite_temperature_fit(predictions: Predictions) -> InverseTemperatureFit:
    """Fit the inverse temperature; warn if only half a pseudo-error makes it finite."""
    best = inverse_temperature(predictions)
    if best.end == "zero_temperature":
        best = fit_with_pseudo_error(predictions.logits, predictions.labels, predictions.sample_counts)
        warn(
            f"(almost) all {len(predictions)} predictions are right, so that a smaller temperature always lowers the "
            f"log-loss; T = {1 / best.beta:.3g} is the optimum with half a pseudo-error added. It is a guess: fit on "
            "samples with some wrong predictions."
        )
    return best


def log_probs_at(predictions: Predictions, beta: float) -> Tensor:
    """Return log-probabilities at an inverse temperature, (n, k), in float32, or in float64 if the logits are."""
    return predictions.by_blocks(lambda block: (to_working_precision(block.logits) * beta).log_softmax(dim=1))


def check_every_class_seen(predictions: Predictions, name: str, *, least: int = 1) -> None:
    """Check that every class has at least so many calibration samples."""
    lacking = absent_classes(predictions, least)
    if len(lacking):
        wanted = "samples" if least == 1 else f"at least {least} samples"
        raise FitError(
            f"{name} must see {wanted} of every class, or its parameters for that class have no finite optimum; too "
            f"few of class {class_names(lacking, predictions)}. Use temperature or ets, or gather samples of it."
        )


@final
@dataclass(frozen=True)
class Uncalibrated(Calibrator, name="uncalibrated", title="Uncalibrated", family="baseline", paper=_BASELINE):
    """Leave the predictions unchanged.

    A well-regularised or well-ensembled network can be calibrated already; with few held-out samples every fitted map
    then adds more noise than it removes. On large image benchmarks it beats vector scaling.

    Formula: q = softmax(z)
    Samples: none.
    """

    aliases = ("none",)
    preserves_accuracy = True
    preserves_ranking = True

    def _fit(self, predictions: Predictions) -> Fitted:
        return Fitted(Identity(n_classes=predictions.n_classes))


TemperatureCriterion: TypeAlias = Literal[
    "nll", "focal", "ece-neural-clamping", "ece-overconfidence", "ece-meta-regularization"
]
# Size of each paper's grid of temperatures, and temperatures per unit.
_GRIDS = {
    "ece-neural-clamping": (5000, 1000),
    # Differs from the paper: its public code stops at 4.99; the text's 10 is used.
    "ece-overconfidence": (1000, 100),
    # Differs from the paper: its public code adds up 0.1 a hundred times and drifts.
    "ece-meta-regularization": (100, 10),
}


@final
@dataclass(frozen=True)
class TemperatureScaling(Calibrator, name="temperature", title="Temperature scaling", family="scaling", paper=_GUO):
    """Divide the logits by the one number that minimises a loss on held-out samples.

    One number hardly overfits, and no prediction changes; it is the baseline that everything else must beat. It
    corrects over- and underconfidence that is the same everywhere, and nothing else: neither an overrated class nor one
    region of confidence. With more than two classes the order of confidences across samples can change a little, and so
    can AUROC. The log-loss is convex in 1/T, so its minimum is certain; a calibration error jumps with T and is
    searched on the papers' grids, only to reproduce them. Without a single wrong prediction the log-loss has no
    minimum: half a pseudo-error is then added, with a warning.

    Formula: q = softmax(z / T)
    Samples: about 200; with 1,000 the temperature is known to about 3 %.

    Args:
        criterion: ``nll``; ``focal`` (the focal loss of Neural Clamping's ablation, which makes probabilities too
            flat); or the calibration error on the grid of a paper: ``ece-neural-clamping`` (0.001 to 5 by 0.001),
            ``ece-overconfidence`` (0.01 to 10 by 0.01), ``ece-meta-regularization`` (0.1 to 10 by 0.1).
        gamma: Focusing parameter γ of the focal loss.
        n_bins: Number of bins of the calibration error.
        value: T itself, where it is given and nothing is fitted, as in papers that fix it at 1.5; only with the
            criterion ``nll``, which then has no effect.

    Example:
        >>> logits = torch.randn(2000, 5, generator=torch.manual_seed(0), dtype=torch.float64)
        >>> labels = torch.multinomial(logits.softmax(1), 1, generator=torch.manual_seed(1))[:, 0]
        >>> fitted = TemperatureScaling().fit(Predictions.from_logits(3 * logits, labels))
        >>> round(float(fitted.temperature), 1)
        3.0
    """

    preserves_accuracy = True
    preserves_ranking = False  # only for two classes

    criterion: TemperatureCriterion = "nll"
    gamma: NonNegative = 1.0
    n_bins: BinCount = 15
    value: Positive | None = None

    def __post_init__(self) -> None:
        check_options(self)
        if self.value is not None and self.criterion != "nll":
            raise InputError(f"criterion must be left out where T is given as value; got {self.criterion!r}.")

    def _fit(self, predictions: Predictions) -> Fitted:
        if self.value is not None or self.criterion in _GRIDS:
            return Fitted(_scale(predictions, self.value or self._lowest_error(predictions)))
        # At γ = 0 the focal loss is the log-loss, which is convex.
        if self.criterion == "focal" and self.gamma > 0:
            best = inverse_temperature(predictions, partial(focal_loss, gamma=self.gamma))
            if best.end == "zero_temperature":
                raise SeparableError(
                    "temperature must have a smallest focal loss above 0; here a smaller one is always better, because "
                    "the label has the largest logit in (almost) every sample. Fit on samples with some wrong "
                    "predictions."
                )
        else:
            best = finite_temperature_fit(predictions)
        if best.end == "infinite_temperature":
            warn(
                f"the predictions are no better than guessing, so the best temperature is the largest allowed "
                f"({1 / best.beta:.3g}), which makes all classes equally likely. Check that the labels are not "
                "shifted by one class and belong to these samples.",
                caveat=Caveat.no_better_than_guessing,
            )
        return Fitted(_scale(predictions, 1 / best.beta), best.certificate)

    def _lowest_error(self, predictions: Predictions) -> float:
        size, per_unit = _GRIDS[self.criterion]
        temperatures = torch.arange(1, size + 1, dtype=torch.float64) / per_unit
        samples, weights = (predictions.logits, predictions.labels), predictions.sample_counts
        errors = errors_at_temperatures(*samples, temperatures, n_bins=self.n_bins, weights=weights)
        best = int(errors.argmin())
        if best in {0, size - 1}:
            warn(
                f"the calibration error is smallest at the end of the grid, T = {float(temperatures[best])}; "
                "the true minimum may lie beyond it. The criterion nll has no grid."
            )
        return float(temperatures[best])


def _scale(predictions: Predictions, temperature: float) -> Scale:
    number = predictions.logits.new_tensor(temperature, dtype=torch.float64)
    return Scale(number, n_classes=predictions.n_classes)


def _unpenalised(predictions: Predictions, name: str, shape: WeightShape) -> Fitted:
    """Fit an affine function of the logits to the exact optimum of the log-loss, starting from a temperature."""
    # Differs from Guo et al.: the optimum, where their code takes steps of gradient descent.
    check_every_class_seen(predictions, name)
    k = predictions.n_classes
    parameters = k + {"number": 1, "diagonal": k, "matrix": k * k}[shape]
    if len(predictions) < parameters:
        warn(
            f"{name} fits {parameters} parameters to {len(predictions)} samples, and will follow their noise. "
            "Use svs or sms, which penalise the parameters, or more samples."
        )
    beta = temperature_fit(predictions, name).beta
    weights = predictions.sample_counts
    fit = fit_affine(predictions.logits, predictions.labels, weights=weights, shape=shape, start=(beta, 0.0))
    return Fitted(Affine(fit.weight, fit.bias, n_classes=k), fit.certificate)


_ALEXANDARI = Paper("Alexandari et al.", 2020,
                    "Maximum Likelihood with Bias-Corrected Calibration is Hard-To-Beat at Label Shift Adaptation",
                    "arXiv:1901.06852", "Section 2.3")  # fmt: skip


@final
@dataclass(frozen=True)
class BiasCorrectedTemperature(
    Calibrator, name="bias_corrected", title="Bias-corrected temperature scaling", family="scaling", paper=_ALEXANDARI
):
    """Divide the logits by one number and add another to each class, so that the log-loss is smallest.

    The shifts correct classes that are over- or underrated as a whole: afterwards the mean probability of each class
    over the calibration samples is its share of them, which estimates of a shifted class balance need. It cannot
    correct a class whose probabilities are too steep or too flat. Where class shares differ between calibration and
    use, the shifts carry the wrong ones over, and temperature scaling alone is the safer choice.

    Formula: q = softmax(a z + b), Σ_j b_j = 0
    Samples: about 20 of each class; with none of a class, or none predicted wrong, there is no optimum.

    Example:
        >>> logits = torch.randn(3000, 3, generator=torch.manual_seed(0), dtype=torch.float64)
        >>> labels = torch.multinomial(logits.softmax(1), 1, generator=torch.manual_seed(1))[:, 0]
        >>> fitted = BiasCorrectedTemperature().fit(Predictions.from_logits(2 * logits + torch.arange(3), labels))
        >>> round(float(fitted.weight), 1), [round(number, 1) for number in fitted.bias.tolist()]
        (0.5, [0.5, 0.0, -0.5])
    """

    def _fit(self, predictions: Predictions) -> Fitted:
        fitted = _unpenalised(predictions, self.title, "number")
        multiple = float(fitted.map.get_buffer("weight"))
        if multiple <= 0:
            warn(
                f"the best multiple of the logits is {multiple:.3g}, below zero: on these samples the predicted "
                "classes are right less often than chance. Check that labels and logits belong together."
            )
        return fitted


@final
@dataclass(frozen=True)
class VectorScaling(Calibrator, name="vector", title="Vector scaling", family="scaling", paper=_GUO):
    """Scale and shift the logit of each class by numbers of its own, so that the log-loss is smallest.

    It corrects classes that are over- or underrated, and classes that are more confident than others. The 2k numbers
    follow noise: with fewer than a hundred samples per class it is often worse than temperature scaling on new samples,
    and structured vector scaling (svs), the same with a penalty, is nearly always better. A number added to all logits
    of a sample, which no probability shows, changes its result.

    Formula: q = softmax(w ⊙ z + b), Σ_j b_j = 0
    Samples: about 100 of each class; with none of a class, or separable ones, there is no optimum.

    Example:
        >>> logits = torch.randn(3000, 3, generator=torch.manual_seed(0), dtype=torch.float64)
        >>> labels = torch.multinomial(logits.softmax(1), 1, generator=torch.manual_seed(1))[:, 0]
        >>> steep = logits * torch.tensor([1.0, 2.0, 4.0])
        >>> fitted = VectorScaling().fit(Predictions.from_logits(steep, labels))
        >>> [round(number, 1) for number in fitted.weight.tolist()]
        [1.0, 0.5, 0.3]
    """

    def _fit(self, predictions: Predictions) -> Fitted:
        return _unpenalised(predictions, self.title, "diagonal")


@final
@dataclass(frozen=True)
class MatrixScaling(Calibrator, name="matrix", title="Matrix scaling", family="scaling", paper=_GUO):
    """A linear function of the logits, with a full matrix and no penalty, so that the log-loss is smallest.

    It can undo any confusion between classes, and with ten classes and thousands of samples it does. Its k (k + 1)
    numbers make it the first to overfit: with a hundred classes and 5,000 samples the calibration samples are separable
    almost without error, so there is no optimum and the fit is refused. (Papers that report it there stop gradient
    descent early; the result is then that of the stopping.) Structured matrix scaling (sms) and ms_odir are the same
    with a penalty.

    Formula: q = softmax(W z + b); the off-diagonal of each column of W sums to 0, as does b
    Samples: about 20 (k + 1) of each class; with none of a class, or separable ones, there is no optimum.

    Example:
        >>> logits = torch.randn(5000, 3, generator=torch.manual_seed(0), dtype=torch.float64)
        >>> labels = torch.multinomial(logits.softmax(1), 1, generator=torch.manual_seed(1))[:, 0]
        >>> swapped = logits[:, [1, 0, 2]]
        >>> fitted = MatrixScaling().fit(Predictions.from_logits(swapped, labels))
        >>> round(float((fitted(swapped).argmax(1) == logits.argmax(1)).float().mean()), 1)
        1.0
    """

    def _fit(self, predictions: Predictions) -> Fitted:
        return _unpenalised(predictions, self.title, "matrix")


BERTA = Paper("Berta et al.", 2025, "Structured Matrix Scaling for Multi-Class Calibration", "arXiv:2511.03685")


def _fit_structured(
    method: "StructuredVectorScaling | StructuredMatrixScaling", predictions: Predictions, shape: WeightShape
) -> Fitted:
    """Fit a temperature, then an affine function of its log-probabilities that is penalised towards the identity."""
    warn_of_missing_classes(predictions, method.title)
    k, first = predictions.n_classes, finite_temperature_fit(predictions)
    ridge = method.ridge(predictions.effective_size, k)
    inputs, weights = log_probs_at(predictions, first.beta), predictions.sample_counts
    fit = fit_affine(inputs, predictions.labels, weights=weights, shape=shape, ridge=ridge)
    # The log-probabilities at a temperature are not linear in those without it, so these stay two maps.
    both = (_scale(predictions, 1 / first.beta), Affine(fit.weight, fit.bias, n_classes=k, of_log_probs=True))
    certificate = fit.certificate._replace(passes=fit.certificate.passes + first.certificate.passes)
    return Fitted(ChainMap(both, n_classes=k), certificate)


@final
@dataclass(frozen=True)
class StructuredVectorScaling(Calibrator, name="svs", title="Structured vector scaling", family="scaling", paper=BERTA):
    """Temperature scaling, then a slope and a shift for every class, penalised towards no change.

    The penalty weakens as samples are gathered: with few it is temperature scaling, with many vector scaling, and in
    between it is better than both. Of all methods it is the safest improvement on a temperature, up to a thousand
    classes. It sees only each class's own log-probability; classes that are confused with each other need structured
    matrix scaling (sms). If the class balance changes after calibration, the shifts carry the old one over.

    Formula: q = softmax(w ⊙ x + b), x = log_softmax(z / T); w, b minimise NLL + λ_d k/n Σ(w_j − 1)² + λ_b k/n Σ b_j²
    Samples: about 200, as for a temperature; more samples always help. A class without samples is driven out, with a
        warning: use temperature or ets.

    Args:
        diagonal_strength: λ_d.
        bias_strength: λ_b.

    Example:
        >>> logits = torch.randn(2000, 5, generator=torch.manual_seed(0), dtype=torch.float64)
        >>> labels = torch.multinomial(logits.softmax(1), 1, generator=torch.manual_seed(1))[:, 0]
        >>> fitted = StructuredVectorScaling().fit(Predictions.from_logits(3 * logits, labels))
        >>> fitted.summary.certificate.gradient < 1e-8
        True
    """

    diagonal_strength: Positive = 1.0
    bias_strength: Positive = 1.0

    def ridge(self, n: float, k: int) -> Ridge:
        """Return the penalties for n samples of k classes."""
        share = k / n
        return Ridge(diagonal=self.diagonal_strength * share, bias=self.bias_strength * share)

    def _fit(self, predictions: Predictions) -> Fitted:
        return _fit_structured(self, predictions, "diagonal")


@final
@dataclass(frozen=True)
class StructuredMatrixScaling(Calibrator, name="sms", title="Structured matrix scaling", family="scaling", paper=BERTA):
    """Temperature scaling, then a linear function of the log-probabilities, penalised towards no change.

    The diagonal, the shifts and, k times more strongly, the off-diagonal have penalties of their own, which weaken as
    samples are gathered. It corrects what structured vector scaling (svs) does, and classes that are confused with each
    other; on networks for images it has the lowest log-loss of all methods that see only the logits. It costs k times
    as much: a fraction of a second at 100 classes, a minute at 1000.

    Formula: q = softmax(W x + b), x = log_softmax(z / T); W, b minimise NLL + λ_d k/n Σ(w_jj − 1)²
        + λ_o k(k − 1)/n Σ_{j≠l} w_jl² + λ_b k/n Σ b_j²
    Samples: about 200, as for a temperature; more samples always help. A class without samples is driven out, with a
        warning: use temperature or ets.

    Args:
        diagonal_strength: λ_d.
        off_diagonal_strength: λ_o.
        bias_strength: λ_b.
    """

    diagonal_strength: Positive = 1.0
    off_diagonal_strength: Positive = 1.0
    bias_strength: Positive = 1.0

    def ridge(self, n: float, k: int) -> Ridge:
        """Return the penalties for n samples of k classes."""
        return Ridge(
            diagonal=self.diagonal_strength * k / n,
            off_diagonal=self.off_diagonal_strength * k * (k - 1) / n,
            bias=self.bias_strength * k / n,
        )

    def _fit(self, predictions: Predictions) -> Fitted:
        return _fit_structured(self, predictions, "matrix")

"""Ensemble temperature scaling: a mixture of the scaled, the given and the uniform probabilities."""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, final, get_args

import torch
from scipy.optimize import brentq
from torch import Tensor

from calibrant.calibrators.affine import temperature_fit
from calibrant.calibrators.base import Calibrator, Fitted
from calibrant.calibrators.binning import ZHANG
from calibrant.checks import check_known
from calibrant.errors import CalibrantWarning
from calibrant.maps import Identity, Mixture, Scale
from calibrant.numerics.inverse_temperature import beta_range, temperature_derivatives
from calibrant.numerics.simplex import Curved, minimise_on_simplex
from calibrant.predictions import Predictions

EtsCriterion: TypeAlias = Literal["nll", "brier"]
# The Brier score is not convex: the ratio of inverse temperatures of the first grid, the number of samples it is
# computed on, and the precision of the best one, as a logarithm.
_RATIO, _FEW_SAMPLES, _FINE = 1.3, 500, 1e-11


@final
@dataclass(frozen=True)
class EnsembleTemperatureScaling(Calibrator):
    """Mix three predictions, the temperature-scaled, the given and the uniform one, in the best shares.

    No prediction changes. The uniform part puts a floor under every probability, which helps a network that is
    sometimes confident and wrong, and costs little elsewhere: shares that do not help become exactly 0, which leaves
    temperature scaling. Like it, it treats all classes and samples alike. The temperature is fitted first and kept.

    Formula: q = w₁ softmax(z / T) + w₂ softmax(z) + w₃ / k, w on the simplex
    Samples: about 300; four numbers can hardly overfit.

    Args:
        criterion: What T and then w minimise. ``nll``, the log-loss, is the default, since it is what a floor under
            the probabilities is for; on a DenseNet's CIFAR-100 logits it has the lower log-loss on new samples, by
            0.0015, and the same Brier score. ``brier`` is the paper's.

    Raises:
        FitError: If all predictions are right, so that no temperature is best.

    Example:
        >>> logits = 4 * torch.randn(2000, 5, generator=torch.manual_seed(0), dtype=torch.float64)
        >>> labels = torch.multinomial(0.7 * logits.softmax(1) + 0.06, 1, generator=torch.manual_seed(1))[:, 0]
        >>> fitted = EnsembleTemperatureScaling().fit(Predictions.from_logits(logits, labels))
        >>> [round(share, 1) for share in fitted.weights.tolist()]
        [0.0, 0.7, 0.3]
    """

    name = "ets"
    title = "Ensemble temperature scaling"
    family = "scaling"
    paper = replace(ZHANG, where="eq. 8")
    preserves_accuracy = True
    preserves_ranking = False  # only for two classes

    criterion: EtsCriterion = "nll"

    def __post_init__(self) -> None:
        check_known(self.criterion, get_args(EtsCriterion), "criterion")

    def _fit(self, predictions: Predictions) -> Fitted:
        k = predictions.n_classes
        if self.criterion == "brier":
            beta, slope, passes = _beta_by_brier(predictions)
            shares = minimise_on_simplex(_brier(predictions, beta), 3)
        else:
            best = temperature_fit(predictions, self.title)
            beta, slope, passes = best.beta, 0.0, best.certificate.passes  # its slope is bounded there
            shares = minimise_on_simplex(_log_loss(predictions, beta), 3)
        device = predictions.logits.device
        fitted, flat = torch.tensor([1 / beta, math.inf], dtype=torch.float64, device=device)
        parts = (Scale(fitted, n_classes=k), Identity(n_classes=k), Scale(flat, n_classes=k))
        mixture = Mixture(shares.shares.to(device), parts, n_classes=k, keeps_predicted=True)
        gradient = max(shares.certificate.gradient, slope)
        return Fitted(mixture, shares.certificate._replace(gradient=gradient, passes=passes + 2))


def _log_loss(predictions: Predictions, beta: float) -> Curved:
    """Mean log-loss of the mixture in its shares, which needs only the probabilities of the labels."""
    logs = [
        torch.cat(
            [part.log_prob.double() for part in temperature_derivatives(predictions.logits, predictions.labels, at)]
        )
        for at in (beta, 1.0)
    ]
    logs.append(torch.full_like(logs[0], -math.log(predictions.n_classes)))
    label_logs = torch.stack(logs)  # (3, n)
    # Divided by the largest of each sample, so that one of them is 1 however small they are.
    largest = label_logs.amax(dim=0)
    parts, level = (label_logs - largest).exp_(), float(largest.mean())

    def curved(shares: Tensor) -> tuple[float, Tensor, Tensor]:
        mixed = shares.to(parts) @ parts
        ratios = parts / mixed
        hessian = ratios @ ratios.T / len(mixed)
        return -float(mixed.log().mean()) - level, -ratios.mean(dim=1).cpu(), hessian.cpu()

    return curved


def _brier(predictions: Predictions, beta: float) -> Curved:
    """Brier score of the mixture in its shares: a quadratic."""
    n, k = predictions.logits.shape
    products = torch.zeros(3, 3, dtype=torch.float64, device=predictions.logits.device)
    of_label = torch.zeros(3, dtype=torch.float64, device=predictions.logits.device)
    for block, labels in _blocks(predictions):
        parts = torch.stack([(block * beta).softmax(dim=1), block.softmax(dim=1), torch.full_like(block, 1 / k)])
        products += torch.einsum("anj,bnj->ab", parts, parts)
        of_label += parts.gather(2, labels.expand(3, -1)[:, :, None]).sum(dim=(1, 2))
    products, of_label = (products / n).cpu(), (of_label / n).cpu()

    def curved(shares: Tensor) -> tuple[float, Tensor, Tensor]:
        inner = products @ shares
        return float(1 - 2 * of_label @ shares + shares @ inner), 2 * (inner - of_label), 2 * products

    return curved


def _beta_by_brier(predictions: Predictions) -> tuple[float, float, float]:
    """The inverse temperature of the smallest Brier score, the slope there in its logarithm, and the passes it took.

    A grid on a few samples brackets it; all samples refine it.
    """
    lowest, highest = (math.log(end) for end in beta_range(predictions.logits))
    points = math.ceil((highest - lowest) / math.log(_RATIO)) + 1
    width = (highest - lowest) / (points - 1)
    few = predictions[:: max(1, len(predictions) // _FEW_SAMPLES)]
    tried = [_brier_score(few, lowest + width * place)[0] for place in range(points)]
    place = min(range(points), key=tried.__getitem__)
    calls = 0

    def slope(at: float) -> float:
        nonlocal calls
        calls += 1
        return _brier_score(predictions, at)[1]

    left, right = (min(max(lowest + width * each, lowest), highest) for each in (place - 1, place + 1))
    while left > lowest and slope(left) > 0:  # the minimum of all samples is outside the bracket
        left, right = max(left - width, lowest), left
    while right < highest and slope(right) < 0:
        left, right = right, min(right + width, highest)
    flat, sharp = left <= lowest and slope(left) >= 0, right >= highest and slope(right) <= 0
    at = left if flat else right if sharp else float(brentq(slope, left, right, xtol=_FINE))
    if flat or sharp:
        warnings.warn(
            f"the Brier score always falls as the temperature {'rises' if flat else 'falls'}, so the last one tried "
            f"is taken, {math.exp(-at):.3g}: {'equal probabilities are' if flat else 'naming one class is'} best for "
            'these samples. Check that labels and logits belong together, or use criterion="nll".',
            CalibrantWarning,
            stacklevel=4,
        )
    return math.exp(at), abs(slope(at)), calls + points * len(few) / len(predictions)


def _brier_score(predictions: Predictions, log_beta: float) -> tuple[float, float]:
    """Brier score less one at an inverse temperature, and its slope in that number's logarithm."""
    total, slope, beta = 0.0, 0.0, math.exp(log_beta)
    for block, labels in _blocks(predictions):
        logits = block * beta
        probs, label = logits.softmax(dim=1), labels[:, None]
        powers = probs * logits
        mean, of_label = powers.sum(dim=1), probs.gather(1, label)[:, 0]
        total += float(probs.square().sum() - 2 * of_label.sum())
        moved = (probs * powers).sum(dim=1) - probs.square().sum(dim=1) * mean
        slope += 2 * float((moved - of_label * (logits.gather(1, label)[:, 0] - mean)).sum())
    return total / len(predictions), slope / len(predictions)


def _blocks(predictions: Predictions) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits less the largest of their sample, in float64, and labels."""
    for block in predictions.blocks():
        logits = block.logits.double()
        yield logits - logits.amax(dim=1, keepdim=True), block.labels

"""Ensemble temperature scaling: a mixture of the scaled, the given and the uniform probabilities."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, final, get_args

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from calibrant.calibrators.base import Calibrator, CalibratorFamily, Fitted
from calibrant.calibrators.scaling.affine import coldness_of
from calibrant.checks import check_known
from calibrant.maps import Identity, Mixture, Scale
from calibrant.numerics.coldness import cold_rows
from calibrant.numerics.simplex import Curved, minimise_on_simplex
from calibrant.paper import Paper
from calibrant.predictions import Predictions

__all__ = ["EnsembleTemperatureScaling", "EtsCriterion"]

EtsCriterion: TypeAlias = Literal["nll", "brier"]
# Of the Brier score: temperatures this many times larger or smaller than that of the log-loss, and how finely.
_REACH, _FINE = 20.0, 1e-7


@final
@dataclass(frozen=True)
class EnsembleTemperatureScaling(Calibrator):
    """Mix three predictions, the temperature-scaled, the given and the uniform one, in the best shares.

    No prediction changes. The uniform part puts a floor under every probability, which helps a network that is now and
    then sure and wrong, and costs little elsewhere: shares that do not help come out as exactly 0, and what is left is
    temperature scaling. Like it, it treats all classes and rows alike. The temperature is found first and then kept.

    Formula: q = w₁ softmax(z / T) + w₂ softmax(z) + w₃ / k, w on the simplex
    Rows: about 300; four numbers can hardly overfit.

    Args:
        criterion: What T and then w minimise. ``nll``, the log-loss, is the default, since it is what a floor under
            the probabilities is for; on a DenseNet's CIFAR-100 logits it has the lower log-loss on new rows, by 0.0015,
            and the same Brier score. ``brier`` is the paper's.

    Raises:
        FitError: If all predictions are right, so that no temperature is best.

    Example:
        >>> logits = 4 * torch.randn(2000, 5, generator=torch.manual_seed(0), dtype=torch.float64)
        >>> labels = torch.multinomial(0.7 * logits.softmax(1) + 0.06, 1, generator=torch.manual_seed(1))[:, 0]
        >>> fitted = EnsembleTemperatureScaling().fit(Predictions.from_logits(logits, labels))
        >>> [round(share, 1) for share in fitted.weights.tolist()]
        [0.0, 0.7, 0.3]
    """

    name: ClassVar[str] = "ets"
    title: ClassVar[str] = "Ensemble temperature scaling"
    family: ClassVar[CalibratorFamily] = "scaling"
    paper: ClassVar[Paper] = Paper(
        "Zhang et al.",
        2020,
        "Mix-n-Match: Ensemble and Compositional Methods for Uncertainty Calibration in Deep Learning",
        "arXiv:2003.07329",
        "eq. 8",
    )
    preserves_accuracy: ClassVar[bool] = True
    preserves_ranking: ClassVar[bool] = False  # only for two classes

    criterion: EtsCriterion = "nll"

    def __post_init__(self) -> None:
        check_known(self.criterion, get_args(EtsCriterion), "criterion")

    def learn(self, predictions: Predictions) -> Fitted:
        k, best = predictions.n_classes, coldness_of(predictions, self.title)
        coldness, passes, curved = best.coldness, best.certificate.passes + 2, _log_loss
        if self.criterion == "brier":
            coldness, more = _coldest_by_brier(predictions, coldness)
            passes, curved = passes + more, _brier
        found = minimise_on_simplex(curved(predictions, coldness), 3)
        device = predictions.logits.device
        fitted, flat = torch.tensor([1 / coldness, math.inf], dtype=torch.float64, device=device)
        parts = (Scale(fitted, n_classes=k), Identity(n_classes=k), Scale(flat, n_classes=k))
        mixture = Mixture(found.shares.to(device), parts, n_classes=k, keeps_predicted=True)
        return Fitted(mixture, found.certificate._replace(passes=passes))


def _log_loss(predictions: Predictions, coldness: float) -> Curved:
    """Mean log-loss of the mixture in its shares; the label's probabilities are all it needs."""
    logs = [
        torch.cat([rows.log_prob.double() for rows in cold_rows(predictions.logits, predictions.labels, each)])
        for each in (coldness, 1.0)
    ]
    logs.append(torch.full_like(logs[0], -math.log(predictions.n_classes)))
    label_logs = torch.stack(logs, dim=1)  # (n, 3)

    def curved(shares: Tensor) -> tuple[float, Tensor, Tensor]:
        mixed = (label_logs + shares.to(label_logs).log()).logsumexp(dim=1)
        ratios = (label_logs - mixed[:, None]).exp()
        hessian = ratios.T @ ratios / len(ratios)
        return -float(mixed.mean()), -ratios.mean(dim=0).cpu(), hessian.cpu()

    return curved


def _brier(predictions: Predictions, coldness: float) -> Curved:
    """Brier score of the mixture in its shares: a quadratic."""
    n, k = predictions.logits.shape
    products = torch.zeros(3, 3, dtype=torch.float64, device=predictions.logits.device)
    of_label = torch.zeros(3, dtype=torch.float64, device=predictions.logits.device)
    for block, labels in _blocks(predictions):
        parts = torch.stack([(block * coldness).softmax(dim=1), block.softmax(dim=1), torch.full_like(block, 1 / k)])
        products += torch.einsum("anj,bnj->ab", parts, parts)
        of_label += parts.gather(2, labels.expand(3, -1)[:, :, None]).sum(dim=(1, 2))
    products, of_label = (products / n).cpu(), (of_label / n).cpu()

    def curved(shares: Tensor) -> tuple[float, Tensor, Tensor]:
        inner = products @ shares
        return float(1 - 2 * of_label @ shares + shares @ inner), 2 * (inner - of_label), 2 * products

    return curved


def _coldest_by_brier(predictions: Predictions, near: float) -> tuple[float, int]:
    """The inverse temperature of the smallest Brier score, near that of the log-loss, and how many passes it took."""

    def score(log_coldness: float) -> float:
        total = 0.0
        for block, labels in _blocks(predictions):
            probs = (block * math.exp(log_coldness)).softmax(dim=1)
            total += float(probs.square().sum() - 2 * probs.gather(1, labels[:, None]).sum())
        return total / len(predictions)

    bounds = (math.log(near / _REACH), math.log(near * _REACH))
    lowest = minimize_scalar(score, bounds=bounds, method="bounded", options={"xatol": _FINE})
    return math.exp(lowest.x), lowest.nfev


def _blocks(predictions: Predictions) -> Iterator[tuple[Tensor, Tensor]]:
    return ((block.logits.double(), block.labels) for block in predictions.blocks())

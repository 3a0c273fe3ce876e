"""Focal loss with a γ for each row, larger where the true class is improbable."""

import math
from typing import ClassVar, final

import torch
from torch import Tensor

from calibrant.checks import check_real_number
from calibrant.errors import InputError
from calibrant.losses.base import Reduction, RowLoss
from calibrant.losses.focal import focal_weighted
from calibrant.losses.log_loss import log_losses
from calibrant.paper import Paper

__all__ = ["SampleDependentFocalLoss", "focal_gamma"]


@final
class SampleDependentFocalLoss(RowLoss):
    """Focal loss whose γ falls in steps as the probability of the true class grows (FLSD-53).

    One γ cannot both hold back rows that are sure and push those that are wrong: a row below the first threshold keeps
    the largest gradient of all. The steps are fixed beforehand and know nothing of the data. The loss jumps at each
    threshold, so its value is no guide there; the gradient is that of the γ in force.

    Formula: -(1 - p_y)^γ(p_y) log p_y, γ(p_y) = γ_i for t_(i-1) <= p_y < t_i; no gradient through γ

    Args:
        gammas: γ below each threshold, and one more from the last on.
        thresholds: Rising, each between 0 and 1. :func:`focal_gamma` gives the γ that the paper takes for one.
        reduction: See :class:`RowLoss`.
        ignore_index: See :class:`RowLoss`.

    Raises:
        InputError: If an option is out of range, or there is not one γ more than thresholds.

    Example:
        >>> logits = torch.tensor([[0.1, 0.9], [0.3, 0.7]]).log()
        >>> losses = SampleDependentFocalLoss(reduction="none")(logits, torch.tensor([0, 0]))
        >>> (losses / torch.tensor([-(0.9**5), -(0.7**3)])).exp()  # γ is 5 for the first, 3 for the second
        tensor([0.1000, 0.3000])
    """

    name: ClassVar[str] = "flsd"
    title: ClassVar[str] = "Focal loss with γ by sample"
    paper: ClassVar[Paper] = Paper(
        "Mukhoti et al.", 2020, "Calibrating Deep Neural Networks using Focal Loss", "arXiv:2002.09437", "Section 4"
    )

    def __init__(
        self,
        *,
        gammas: tuple[float, ...] = (5.0, 3.0),
        thresholds: tuple[float, ...] = (0.2,),
        reduction: Reduction = "mean",
        ignore_index: int | None = None,
    ) -> None:
        super().__init__(reduction=reduction, ignore_index=ignore_index)
        for gamma in gammas:
            check_real_number(gamma, "each of gammas", least=0)
        for threshold in thresholds:
            _check_probability(threshold, "each of thresholds")
        if list(thresholds) != sorted(set(thresholds)):
            raise InputError(f"thresholds must rise; got {thresholds!r}.")
        if len(gammas) != len(thresholds) + 1:
            raise InputError(
                f"gammas must be one more than thresholds, for the rows from the last one on; got {len(gammas)} gammas "
                f"and {len(thresholds)} thresholds."
            )
        self.gammas = tuple(gammas)
        self.thresholds = tuple(thresholds)

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        losses = log_losses(logits, labels)
        return focal_weighted(losses, self._gamma(losses.detach()))

    def _gamma(self, losses: Tensor) -> Tensor:
        # Told by the loss, as p < t exactly where -log p > -log t: of five equal classes none is below 0.2, though
        # exp(log 0.2) is in float32.
        gamma = torch.full_like(losses, self.gammas[-1])
        for one, threshold in zip(self.gammas[-2::-1], self.thresholds[::-1], strict=True):
            gamma = torch.where(losses > -math.log(threshold), one, gamma)
        return gamma


def focal_gamma(probability: float) -> float:
    """The γ above which rows at least this probable have a smaller gradient than under the cross-entropy.

    Below the probability the focal loss pushes harder than the cross-entropy, above it less. From 1/2 on every γ does
    that, so the answer is 0.

    Formula: the largest γ with (1 - p)^γ - γ p (1 - p)^(γ-1) log p = 1

    Args:
        probability: Of the true class, between 0 and 1.

    Raises:
        InputError: If the probability is 0, 1 or outside.

    Example:
        >>> [round(focal_gamma(p), 2) for p in (0.2, 0.25, 0.5)]
        [4.85, 3.07, 0.0]
    """
    from scipy.special import lambertw

    _check_probability(probability, "probability")
    # With m = -log(1 - p) and b = -p log p / (1 - p) the equation reads (1 + γ b) exp(-γ m) = 1. That is
    # w exp(w) = -r exp(-r) for r = m / b and w = -m γ - r. One root, w = -r, is γ = 0; the other is on the lower branch
    # of Lambert's W, and above 0 while r < 1.
    m = -math.log1p(-probability)
    r = m * (1 - probability) / (-probability * math.log(probability))
    return 0.0 if r >= 1 else (-float(lambertw(-r * math.exp(-r), k=-1).real) - r) / m


def _check_probability(value: float, name: str) -> None:
    check_real_number(value, name, least=0, most=1)
    if value in {0, 1}:
        raise InputError(f"{name} must lie between 0 and 1, without these; got {value!r}.")

"""Focal loss: rows that are already right count less. The weighting here serves the whole family."""

from typing import ClassVar, final

import torch
from torch import Tensor

from calibrant.checks import check_bool, check_real_number
from calibrant.losses.base import Reduction, RowLoss
from calibrant.losses.log_loss import log_losses
from calibrant.paper import Paper

__all__ = ["FocalLoss", "focal_weighted", "power"]


@final
class FocalLoss(RowLoss):
    """Cross-entropy times a power of how far the true class is from certain.

    A row's gradient fades once it is right, so probabilities stay flatter than with the cross-entropy: the loss is an
    upper bound of the cross-entropy less γ times the entropy. It is not proper: its minimum is flatter than the true
    probabilities, so a γ too large, or data that cannot be learnt by heart, make a network underconfident.

    Formula: -(1 - p_y)^γ log p_y

    Args:
        gamma: γ, at least 0; 0 is the cross-entropy.
        detach_weight: Whether the weight is a constant to the gradient. True is no focal loss but a re-weighted
            cross-entropy: what the public code of Wang et al. (2021) trains, only to reproduce it.
        reduction: See :class:`RowLoss`.
        ignore_index: See :class:`RowLoss`.

    Raises:
        InputError: If an option is out of range.

    Example:
        >>> import math
        >>> even = torch.zeros(1, 2)  # p_y = 1/2, so the weight is 1/8
        >>> loss = FocalLoss()(even, torch.tensor([1]))
        >>> round(loss.item() / math.log(2), 4)
        0.125
    """

    name: ClassVar[str] = "focal"
    title: ClassVar[str] = "Focal loss"
    paper: ClassVar[Paper] = Paper(
        "Lin et al.", 2017, "Focal Loss for Dense Object Detection", "arXiv:1708.02002", "eq. 4"
    )

    def __init__(
        self,
        *,
        gamma: float = 3.0,
        detach_weight: bool = False,
        reduction: Reduction = "mean",
        ignore_index: int | None = None,
    ) -> None:
        super().__init__(reduction=reduction, ignore_index=ignore_index)
        check_real_number(gamma, "gamma", least=0)
        check_bool(detach_weight, "detach_weight")
        self.gamma = gamma
        self.detach_weight = detach_weight

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        losses = log_losses(logits, labels)
        return focal_weighted(losses, self.gamma, detach_weight=self.detach_weight)


def focal_weighted(losses: Tensor, gamma: float | Tensor, *, detach_weight: bool = False) -> Tensor:
    """Cross-entropies of rows, each times ``(1 - p_y)^γ``.

    Args:
        losses: ``-log p_y`` of each row, (n,).
        gamma: One number; or a tensor of one, or of one a row (n,), which may carry a gradient of its own.
        detach_weight: Whether the weight is a constant to the gradient.

    Example:
        >>> focal_weighted(-torch.tensor([0.25, 0.5]).log(), gamma=2.0)
        tensor([0.7798, 0.1733])
    """
    # 1 - p_y from its logarithm: 1 - exp(-loss) would round a sure row's to 0.
    return power(-torch.expm1(-(losses.detach() if detach_weight else losses)), gamma) * losses


def power(base: Tensor, exponent: float | Tensor) -> Tensor:
    """A power whose gradient is finite at 0 for an exponent below 1 too, where it is taken as 0.

    Its product with a loss that is 0 there too has no slope in the limit, but floating point makes it 0 times infinity.

    Args:
        base: Any shape, at least 0.
        exponent: At least 0, or a tensor of such that fits the base.
    """
    return base.clamp(min=torch.finfo(base.dtype).tiny) ** exponent

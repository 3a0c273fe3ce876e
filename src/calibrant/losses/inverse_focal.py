"""Inverse focal loss: rows that are already right count more."""

from typing import ClassVar, final

from torch import Tensor

from calibrant.checks import check_bool, check_real_number
from calibrant.errors import InputError
from calibrant.losses.base import Reduction, RowLoss
from calibrant.losses.log_loss import log_losses
from calibrant.paper import Paper

__all__ = ["LARGEST_GAMMA", "InverseFocalLoss"]

# The slope of -(1 + p)^γ log p in p is -(1 + p)^(γ-1) (γ log p + (1 + p) / p). It is nowhere above 0 where
# γ <= (1 + p) / (-p log p) = (1 + e^t) / t with t = -log p, whatever t. The right side is smallest where
# t e^t = 1 + e^t, that is (t - 1) e^(t-1) = 1/e, so t = 1 + W(1/e) with Lambert's W, and there it is
# e^t = 1 / W(1/e) = 3.5911..., at p = W(1/e) = 0.278.
LARGEST_GAMMA = 3.591121476668622


@final
class InverseFocalLoss(RowLoss):
    """Cross-entropy times a power of one plus the probability of the true class.

    The opposite of the focal loss: the easy rows count most, so the network becomes more confident than with the
    cross-entropy, and spreads its logits more by how hard a row is. By itself it is badly calibrated; it is meant to be
    followed by a temperature. Above γ = 3.59 more probability of the true class would raise the loss of some wrong
    rows, so that is refused; with the weight held constant every γ is a re-weighted cross-entropy.

    Formula: -(1 + p_y)^γ log p_y

    Args:
        gamma: γ, at least 0; 0 is the cross-entropy. At most 1/W(1/e) = 3.5911 unless the weight is detached.
        detach_weight: Whether the weight is a constant to the gradient. The paper does not say; its formula read as a
            loss is False.
        reduction: See :class:`RowLoss`.
        ignore_index: See :class:`RowLoss`.

    Raises:
        InputError: If an option is out of range.

    Example:
        >>> import math
        >>> import torch
        >>> even = torch.zeros(1, 2)  # p_y = 1/2, so the weight is 1.5²
        >>> loss = InverseFocalLoss()(even, torch.tensor([1]))
        >>> round(loss.item() / math.log(2), 4)
        2.25
    """

    name: ClassVar[str] = "inverse_focal"
    title: ClassVar[str] = "Inverse focal loss"
    paper: ClassVar[Paper] = Paper(
        "Wang, Feng & Zhang", 2021,
        "Rethinking Calibration of Deep Neural Networks: Do Not Be Afraid of Overconfidence",
        "https://proceedings.neurips.cc/paper/2021/hash/61f3a6dbc9120ea78ef75544826c814e-Abstract.html", "eq. 4",
    )  # fmt: skip

    def __init__(
        self,
        *,
        gamma: float = 2.0,
        detach_weight: bool = False,
        reduction: Reduction = "mean",
        ignore_index: int | None = None,
    ) -> None:
        super().__init__(reduction=reduction, ignore_index=ignore_index)
        check_real_number(gamma, "gamma", least=0)
        check_bool(detach_weight, "detach_weight")
        if gamma > LARGEST_GAMMA and not detach_weight:
            raise InputError(
                f"gamma of the inverse focal loss must be at most {LARGEST_GAMMA:.4f}, or a more probable true class "
                f"would cost more; got {gamma!r}. Take a smaller one, or detach_weight=True."
            )
        self.gamma = gamma
        self.detach_weight = detach_weight

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        losses = log_losses(logits, labels)
        prob = (-(losses.detach() if self.detach_weight else losses)).exp()
        return (1 + prob) ** self.gamma * losses

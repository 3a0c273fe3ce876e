"""Cross-entropy: the loss that every other is a departure from."""

from typing import ClassVar, final

from torch import Tensor

from calibrant.losses.base import RowLoss
from calibrant.losses.log_loss import log_losses
from calibrant.paper import Paper

__all__ = ["CrossEntropyLoss"]


@final
class CrossEntropyLoss(RowLoss):
    """Minus the logarithm of the probability given to the true class.

    Proper: its minimum is the true probability. On a network that can learn its training set by heart the minimum is
    certainty, so networks trained to the end are overconfident; a temperature mends most of that afterwards.

    Formula: -log p_y

    Example:
        >>> import torch
        >>> CrossEntropyLoss()(torch.zeros(3, 4), torch.tensor([0, 1, 3])).item() == torch.tensor(4.0).log().item()
        True
    """

    name: ClassVar[str] = "ce"
    title: ClassVar[str] = "Cross-entropy"
    paper: ClassVar[Paper] = Paper("Good", 1952, "Rational Decisions", "doi:10.1111/j.2517-6161.1952.tb00104.x")
    takes_soft_labels: ClassVar[bool] = True

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        return log_losses(logits, labels)

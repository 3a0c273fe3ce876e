"""Cross-entropy less the entropy of the prediction."""

from typing import ClassVar, final

from torch import Tensor
from torch.nn import functional as F

from calibrant.checks import check_real_number
from calibrant.losses.answers import entropies
from calibrant.losses.base import Reduction, RowLoss
from calibrant.losses.log_loss import NO_LABEL, log_losses
from calibrant.paper import Paper

__all__ = ["EntropyRegularisedLoss"]


@final
class EntropyRegularisedLoss(RowLoss):
    """Cross-entropy with a reward for doubt (ERL, the confidence penalty).

    Sure predictions cost something, right or wrong, so confidence falls everywhere, also where it is earned: which rows
    are right is told apart less well. A reward large enough outweighs the labels.

    Formula: -log p_y - weight · H(p), H(p) = -Σ_j p_j log p_j in nats

    Args:
        weight: What the entropy is multiplied by; 0 leaves the cross-entropy. Code that averages the entropy's terms
            over the classes divides by k: its 0.1 is 0.1/k here.
        reduction: See :class:`RowLoss`.
        ignore_index: See :class:`RowLoss`.

    Raises:
        InputError: If an option is out of range.

    Example:
        >>> import math
        >>> import torch
        >>> even = torch.zeros(1, 2)  # -log p_y and the entropy are both log 2
        >>> loss = EntropyRegularisedLoss()(even, torch.tensor([1]))
        >>> round(loss.item() / math.log(2), 4)
        0.9
    """

    name: ClassVar[str] = "entropy"
    title: ClassVar[str] = "Cross-entropy less the entropy"
    paper: ClassVar[Paper] = Paper(
        "Pereyra et al.", 2017, "Regularizing Neural Networks by Penalizing Confident Output Distributions",
        "arXiv:1701.06548",
    )  # fmt: skip
    takes_soft_labels: ClassVar[bool] = True

    def __init__(self, *, weight: float = 0.1, reduction: Reduction = "mean", ignore_index: int | None = None) -> None:
        super().__init__(reduction=reduction, ignore_index=ignore_index)
        check_real_number(weight, "weight", least=0)
        self.weight = weight

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        if self.weight == 0:
            return log_losses(logits, labels)
        log_probs = logits.log_softmax(1)
        if labels.is_floating_point():
            losses = -(labels * log_probs).sum(1)
        else:
            losses = F.nll_loss(log_probs, labels, reduction="none", ignore_index=NO_LABEL)
        return losses - self.weight * entropies(log_probs)

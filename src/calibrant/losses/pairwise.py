"""Calibration by pairwise constraints: every pair of classes is a question of its own."""

import math
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional as F

from calibrant.checks import check_real_number
from calibrant.losses.base import Reduction, RowLoss
from calibrant.losses.log_loss import log_losses
from calibrant.paper import Paper

__all__ = ["PairwiseConstraintsLoss"]


@final
class PairwiseConstraintsLoss(RowLoss):
    """Cross-entropy plus what each pair of classes should say: the true one beats any other, two wrong ones draw (CPC).

    The cross-entropy alone says little about the probabilities of wrong classes. The first term asks that the true
    class win each duel, σ(z_y - z_j) = 1; the second that a duel between wrong classes be open, σ(z_i - z_j) = 1/2,
    which denies that some mistakes are more natural than others. The second never falls below log 2, so the loss does
    not reach 0, and it needs n (k - 1)² numbers of memory: 20 MB for 512 rows of 100 classes, 2 GB for 1,000.
    A class masked by a logit of -inf can draw with none: the loss is NaN then, unless the second term is left out.

    Formula: -log p_y + λ_D · mean_{j≠y} -log σ(z_y - z_j) + λ_E · mean_{i≠j, both ≠y} -log σ(z_i - z_j)

    Args:
        discrimination_weight: λ_D, of the duels of the true class; 0 leaves them out.
        exclusion_weight: λ_E, of the duels between wrong classes, of which two classes have none; 0 leaves them out.
            Public code halves this term: its 1 is 0.5 here, up to a constant.
        reduction: See :class:`RowLoss`.
        ignore_index: See :class:`RowLoss`.

    Raises:
        InputError: If an option is out of range.

    Example:
        >>> loss = PairwiseConstraintsLoss()(torch.zeros(1, 4), torch.tensor([2]))  # log 4 + log 2 + log 2
        >>> round(loss.item() / math.log(2), 4)
        4.0
    """

    name: ClassVar[str] = "cpc"
    title: ClassVar[str] = "Calibration by pairwise constraints"
    paper: ClassVar[Paper] = Paper(
        "Cheng & Vasconcelos", 2022, "Calibrating Deep Neural Networks by Pairwise Constraints",
        "https://openaccess.thecvf.com/content/CVPR2022/html/"
        "Cheng_Calibrating_Deep_Neural_Networks_by_Pairwise_Constraints_CVPR_2022_paper.html",
    )  # fmt: skip

    def __init__(
        self,
        *,
        discrimination_weight: float = 1.0,
        exclusion_weight: float = 1.0,
        reduction: Reduction = "mean",
        ignore_index: int | None = None,
    ) -> None:
        super().__init__(reduction=reduction, ignore_index=ignore_index)
        check_real_number(discrimination_weight, "discrimination_weight", least=0)
        check_real_number(exclusion_weight, "exclusion_weight", least=0)
        self.discrimination_weight = discrimination_weight
        self.exclusion_weight = exclusion_weight

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        losses = log_losses(logits, labels)
        k = logits.shape[1]
        true, wrong = logits.gather(1, labels[:, None]), _wrong_logits(logits, labels)
        if self.discrimination_weight > 0:
            losses = losses - self.discrimination_weight * F.logsigmoid(true - wrong).mean(1)
        if self.exclusion_weight > 0 and k > 2:
            # Both orders of a pair stand in the table, so their sum is twice the cross-entropy to 1/2. The k - 1 duels
            # of a class with itself are each log 2, without a gradient.
            duels = -F.logsigmoid(wrong[:, :, None] - wrong[:, None, :]).sum((1, 2)) - (k - 1) * math.log(2)
            losses = losses + self.exclusion_weight / ((k - 1) * (k - 2)) * duels
        return losses


def _wrong_logits(logits: Tensor, labels: Tensor) -> Tensor:
    """All but the label's, (n, k - 1): by place and not by a mask, whose result has no shape known beforehand."""
    places = torch.arange(logits.shape[1] - 1, device=logits.device)
    return logits.gather(1, places + (places >= labels[:, None]))

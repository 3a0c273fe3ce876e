"""Dual focal loss: focal by the lead over the runner-up too."""

from typing import ClassVar, final

import torch
from torch import Tensor

from calibrant.checks import check_real_number
from calibrant.losses.base import Reduction, RowLoss
from calibrant.losses.focal import power
from calibrant.paper import Paper

__all__ = ["DualFocalLoss"]


@final
class DualFocalLoss(RowLoss):
    """Focal loss whose weight also looks at the class that comes next after the true one.

    The next class is the most probable of those strictly less so than the true class, wherever that ranks; where the
    true class is last there is none, and the weight is the focal loss's. The weight is larger than the focal loss's, so
    right rows keep learning for longer, which answers the underconfidence of a large γ. Not proper either. Which class
    is next can change from step to step, and the loss has a kink there.

    Formula: -(1 - p_y + p_j)^γ log p_y, p_j = max {p_k : p_k < p_y}, or 0 if there is none

    Args:
        gamma: γ, at least 0; 0 is the cross-entropy.
        reduction: See :class:`RowLoss`.
        ignore_index: See :class:`RowLoss`.

    Raises:
        InputError: If an option is out of range.

    Example:
        >>> import math
        >>> logits = torch.tensor([[0.5, 0.3, 0.2]]).log()  # 1 - 0.5 + 0.3 = 0.8
        >>> loss = DualFocalLoss(gamma=1.0)(logits, torch.tensor([0]))
        >>> round(loss.item() / math.log(2), 4)
        0.8
    """

    name: ClassVar[str] = "dual_focal"
    title: ClassVar[str] = "Dual focal loss"
    paper: ClassVar[Paper] = Paper("Tao, Dong & Xu", 2023, "Dual Focal Loss for Calibration", "arXiv:2305.13665")

    def __init__(self, *, gamma: float = 5.0, reduction: Reduction = "mean", ignore_index: int | None = None) -> None:
        super().__init__(reduction=reduction, ignore_index=ignore_index)
        check_real_number(gamma, "gamma", least=0)
        self.gamma = gamma

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        true = labels[:, None]
        # Found on the logits, which tell classes apart whose probabilities are both 0 in floating point.
        with torch.no_grad():
            behind = logits < logits.gather(1, true)
            runner_up = logits.masked_fill(~behind, -torch.inf).argmax(1, keepdim=True)
            exists = behind.gather(1, runner_up)[:, 0]
        log_prob, log_next = logits.log_softmax(1).gather(1, torch.cat([true, runner_up], 1)).unbind(1)
        lead_missing = -torch.expm1(log_prob) + log_next.exp() * exists
        return power(lead_missing, self.gamma) * -log_prob

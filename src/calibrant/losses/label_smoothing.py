"""Label smoothing: cross-entropy against labels that keep a little doubt."""

from typing import ClassVar, final

from torch import Tensor

from calibrant.checks import check_real_number
from calibrant.losses.base import Reduction, RowLoss
from calibrant.losses.log_loss import log_losses
from calibrant.paper import Paper

__all__ = ["LabelSmoothingLoss"]


@final
class LabelSmoothingLoss(RowLoss):
    """Cross-entropy against the label mixed with the uniform distribution.

    The loss is smallest at a probability below one, so a network that learns its training set by heart stays modest.
    How modest is set by ``smoothing`` and not by how hard a row is: what the probabilities tell about right and wrong
    suffers, and a temperature fitted afterwards has less to mend.

    Formula: (1 - ε) · -log p_y + ε/k Σ_j -log p_j

    Args:
        smoothing: ε, in 0..1; 0 is the cross-entropy. Code that shares ε among the wrong classes only means
            ε k / (k - 1) here.
        reduction: See :class:`RowLoss`.
        ignore_index: See :class:`RowLoss`.

    Raises:
        InputError: If an option is out of range.

    Example:
        >>> import torch
        >>> sure = torch.tensor([[12.0, 0.0, 0.0]])
        >>> round(LabelSmoothingLoss()(sure, torch.tensor([0])).item(), 4)  # 2/3 of ε, times 12
        0.4
    """

    name: ClassVar[str] = "label_smoothing"
    title: ClassVar[str] = "Label smoothing"
    paper: ClassVar[Paper] = Paper(
        "Szegedy et al.", 2016, "Rethinking the Inception Architecture for Computer Vision", "arXiv:1512.00567",
        "Section 7",
    )  # fmt: skip
    takes_soft_labels: ClassVar[bool] = True

    def __init__(
        self, *, smoothing: float = 0.05, reduction: Reduction = "mean", ignore_index: int | None = None
    ) -> None:
        super().__init__(reduction=reduction, ignore_index=ignore_index)
        check_real_number(smoothing, "smoothing", least=0, most=1)
        self.smoothing = smoothing

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        return log_losses(logits, labels, smoothing=self.smoothing)

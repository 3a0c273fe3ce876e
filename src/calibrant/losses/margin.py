"""Cross-entropy plus a price on logits too far below the largest."""

from typing import ClassVar, Literal, TypeAlias, final, get_args

from torch import Tensor

from calibrant.checks import check_known, check_real_number
from calibrant.losses.base import Reduction, RowLoss
from calibrant.losses.log_loss import log_losses
from calibrant.paper import Paper

__all__ = ["MarginLoss", "OverClasses"]

OverClasses: TypeAlias = Literal["mean", "sum"]


@final
class MarginLoss(RowLoss):
    """Cross-entropy that lets the largest logit lead by a margin, and makes more of a lead cost (MbLS).

    Label smoothing draws all wrong logits together; this leaves them alone within the margin. Beyond it the
    cross-entropy has next to nothing to gain, so the margin caps the confidence: a network that reaches it everywhere
    is as sure as the margin says, whatever the row.

    Formula: -log p_y + weight · 1/k Σ_j max(0, max_i z_i - z_j - margin)

    Args:
        margin: The lead that costs nothing, at least 0.
        weight: What the price is multiplied by; 0 leaves the cross-entropy.
        over_classes: ``mean``, as in the formula and in the authors' code, whose weight of 0.1 is the default; or
            ``sum``, as the paper writes it: k times as much.
        reduction: See :class:`RowLoss`.
        ignore_index: See :class:`RowLoss`.

    Raises:
        InputError: If an option is out of range.

    Example:
        >>> import torch
        >>> logits, labels = torch.tensor([[14.0, 0.0]]), torch.tensor([0])  # 4 beyond the margin, for one class of two
        >>> round(MarginLoss()(logits, labels).item(), 4)
        0.2
    """

    name: ClassVar[str] = "mbls"
    title: ClassVar[str] = "Margin-based label smoothing"
    paper: ClassVar[Paper] = Paper(
        "Liu et al.", 2022, "The Devil is in the Margin: Margin-based Label Smoothing for Network Calibration",
        "arXiv:2111.15430",
    )  # fmt: skip
    takes_soft_labels: ClassVar[bool] = True

    def __init__(
        self,
        *,
        margin: float = 10.0,
        weight: float = 0.1,
        over_classes: OverClasses = "mean",
        reduction: Reduction = "mean",
        ignore_index: int | None = None,
    ) -> None:
        super().__init__(reduction=reduction, ignore_index=ignore_index)
        check_real_number(margin, "margin", least=0)
        check_real_number(weight, "weight", least=0)
        check_known(over_classes, get_args(OverClasses), "over_classes")
        self.margin = margin
        self.weight = weight
        self.over_classes = over_classes

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        losses = log_losses(logits, labels)
        if self.weight == 0:
            return losses
        excess = (logits.amax(1, keepdim=True) - self.margin - logits).relu().sum(1)
        # Differs from the paper: its equation sums over the classes; the weight it gives is that of its code's mean.
        share = self.weight / logits.shape[1] if self.over_classes == "mean" else self.weight
        return losses + share * excess

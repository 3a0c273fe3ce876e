"""MDCA: each class predicted as often as it occurs in the batch."""

from typing import ClassVar, Literal, final

from torch import Tensor

from calibrant.losses.base import PenalisedLoss, RowLoss
from calibrant.paper import Paper

__all__ = ["MDCALoss"]


@final
class MDCALoss(PenalisedLoss):
    """Cross-entropy plus the multi-class difference of confidence and accuracy.

    Compares mean probabilities with class frequencies, all classes and all rows at once: over- and underconfident rows
    cancel, and a network that always says the frequencies has no penalty. With many classes and few rows a batch the
    frequencies are mostly noise.

    Formula: 1/k Σ_k |1/n Σ_i p_ik − 1/n Σ_i y_ik|

    Args:
        weight: What the penalty is multiplied by; the default is that of the paper's code.
        base: The loss of each row; the cross-entropy if None. The paper's best results take a focal loss.
        reduction: See :class:`PenalisedLoss`.
        ignore_index: See :class:`PenalisedLoss`.

    Example:
        >>> import torch
        >>> MDCALoss().penalty(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1])).item()
        0.25
    """

    name: ClassVar[str] = "mdca"
    title: ClassVar[str] = "Multi-class difference of confidence and accuracy"
    paper: ClassVar[Paper] = Paper(
        "Hebbalaguppe et al.",
        2022,
        "A Stitch in Time Saves Nine: A Train-Time Regularizing Loss for Improved Neural Network Calibration",
        "arXiv:2203.13834",
    )
    takes_soft_labels: ClassVar[bool] = True

    def __init__(
        self,
        *,
        weight: float = 1.0,
        base: RowLoss | None = None,
        reduction: Literal["mean", "sum"] = "mean",
        ignore_index: int | None = None,
    ) -> None:
        super().__init__(weight=weight, base=base, reduction=reduction, ignore_index=ignore_index)

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        predicted = logits.softmax(1).mean(0)
        if labels.is_floating_point():
            occurring = labels.mean(0)
        else:
            # Not bincount, which waits for a GPU to say how many classes there are.
            ones = predicted.new_ones(len(labels))
            occurring = predicted.new_zeros(logits.shape[1]).index_add_(0, labels, ones) / len(labels)
        return (predicted - occurring).abs().mean()

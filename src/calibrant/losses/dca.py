"""DCA: a batch as confident, on the whole, as it is accurate."""

from typing import ClassVar, Literal, final

from torch import Tensor

from calibrant.losses.answers import Answers
from calibrant.losses.base import PenalisedLoss, RowLoss
from calibrant.paper import Paper

__all__ = ["DCALoss"]


@final
class DCALoss(PenalisedLoss):
    """Cross-entropy plus the difference of mean confidence and accuracy.

    The calibration error with a single bin: over- and underconfident rows cancel. Accuracy has no slope, so the penalty
    only moves confidence, and on a training set learnt by heart it asks for certainty.

    Formula: |1/n Σ_i c_i − 1/n Σ_i a_i|

    Args:
        weight: What the penalty is multiplied by. The default is that of public code.
        base: The loss of each row; the cross-entropy if None.
        reduction: See :class:`PenalisedLoss`.
        ignore_index: See :class:`PenalisedLoss`.

    Example:
        >>> import torch
        >>> DCALoss().penalty(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1])).item()
        0.25
    """

    name: ClassVar[str] = "dca"
    title: ClassVar[str] = "Difference of confidence and accuracy"
    paper: ClassVar[Paper] = Paper(
        "Liang et al.",
        2020,
        "Improved Trainable Calibration Method for Neural Networks on Medical Imaging Classification",
        "arXiv:2009.04057",
    )

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
        _, confidence, correct = Answers.of(logits, labels)
        return (confidence - correct).mean().abs()

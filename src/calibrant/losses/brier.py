"""Brier loss: squared error of the probabilities."""

from typing import ClassVar, final

from torch import Tensor

from calibrant.losses.base import RowLoss
from calibrant.paper import Paper

__all__ = ["BrierLoss"]


@final
class BrierLoss(RowLoss):
    """Squared distance between the probabilities and the one-hot truth, summed over the classes.

    Proper like the cross-entropy, but bounded: one confident mistake costs 2 at most. The price is a gradient that
    fades on rows that are surely wrong, so with many classes training starts slowly or not at all. In 0..2; some
    libraries divide by the number of classes, and their learning rates do not carry over.

    Formula: Σ_j (p_j - [y = j])²

    Args:
        reduction: See :class:`RowLoss`.
        ignore_index: See :class:`RowLoss`.

    Example:
        >>> import torch
        >>> float(BrierLoss()(torch.zeros(1, 2), torch.tensor([0])))
        0.5
    """

    name: ClassVar[str] = "brier"
    title: ClassVar[str] = "Brier loss"
    paper: ClassVar[Paper] = Paper("Brier", 1950, "Verification of Forecasts Expressed in Terms of Probability",
                                   "doi:10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2")  # fmt: skip
    takes_soft_labels: ClassVar[bool] = True

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        probs = logits.softmax(1)
        if labels.is_floating_point():
            return (probs - labels).square().sum(1)
        # Σ p² - 2 p_y + 1 would spare a pass, and be negative for some sure rows.
        return probs.scatter_add(1, labels[:, None], probs.new_full((len(labels), 1), -1.0)).square().sum(1)

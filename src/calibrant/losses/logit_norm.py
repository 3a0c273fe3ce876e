"""Cross-entropy plus the size of the logits."""

from typing import ClassVar, final

import torch
from torch import Tensor

from calibrant.checks import check_real_number
from calibrant.losses.base import Reduction, RowLoss
from calibrant.losses.log_loss import log_losses
from calibrant.paper import Paper

__all__ = ["LogitNormLoss"]


@final
class LogitNormLoss(RowLoss):
    """Cross-entropy plus a price on large logits.

    Small logits make flat probabilities, so overconfidence falls. The price also holds logits to zero that are all
    shifted alike, which changes no probability. A weight that suits ten classes can stop a network of a hundred from
    learning at all (published: 0.05 does). It does not divide logits by their norm: that is another method, also called
    LogitNorm.

    Formula: -log p_y + weight · (Σ_j |z_j|^p)^(1/p)

    Args:
        weight: What the norm is multiplied by; 0 leaves the cross-entropy.
        p: Order of the norm, at least 1.
        reduction: See :class:`RowLoss`.
        ignore_index: See :class:`RowLoss`.

    Raises:
        InputError: If an option is out of range.

    Example:
        >>> import torch
        >>> logits, labels = torch.tensor([[3.0, -4.0]]), torch.tensor([0])
        >>> extra = LogitNormLoss(weight=0.1)(logits, labels) - LogitNormLoss(weight=0)(logits, labels)
        >>> round(extra.item(), 4)
        0.7
    """

    name: ClassVar[str] = "logit_norm"
    title: ClassVar[str] = "Cross-entropy with a norm of the logits"
    paper: ClassVar[Paper] = Paper(
        "Joo & Chung", 2020,
        "Revisiting Explicit Regularization in Neural Networks for Well-Calibrated Predictive Uncertainty",
        "arXiv:2006.06399",
    )  # fmt: skip
    takes_soft_labels: ClassVar[bool] = True

    def __init__(
        self,
        *,
        weight: float = 0.01,
        p: float = 1.0,
        reduction: Reduction = "mean",
        ignore_index: int | None = None,
    ) -> None:
        super().__init__(reduction=reduction, ignore_index=ignore_index)
        check_real_number(weight, "weight", least=0)
        check_real_number(p, "p", least=1)
        self.weight = weight
        self.p = p

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        losses = log_losses(logits, labels)
        return losses if self.weight == 0 else losses + self.weight * _norms(logits, self.p)


def _norms(logits: Tensor, p: float) -> Tensor:
    if p == 1:
        return torch.linalg.vector_norm(logits, ord=1, dim=1)
    # |z|^p can be too large a number where the norm is not. The norm of z / max|z| has the same gradient.
    largest = logits.detach().abs().amax(1, keepdim=True).clamp(min=torch.finfo(logits.dtype).tiny)
    return largest[:, 0] * torch.linalg.vector_norm(logits / largest, ord=p, dim=1)

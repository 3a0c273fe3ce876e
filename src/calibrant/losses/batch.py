"""A batch as the losses work on it: checked, flat, in float32 or better, without the rows that do not count.

Half-precision logits are worked in float32, as torch's own cross-entropy does under autocast.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal, Self, TypeAlias, final

import torch
from torch import Tensor

from calibrant.checks import check_labels
from calibrant.errors import InputError

__all__ = ["Batch", "Reduction", "full_precision"]

Reduction: TypeAlias = Literal["mean", "sum", "none"]
_TORCH_IGNORES = -100


@final
class Batch:
    """Checked rows of a batch, in working precision, and the way back to the shape the labels came in."""

    def __init__(self, logits: Tensor, labels: Tensor, kept: Tensor | None, shape: torch.Size) -> None:
        self.logits, self.labels, self._kept, self._shape = logits, labels, kept, shape
        self.is_empty = len(labels) == 0

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor, *, owner: str, ignore_index: int | None, soft: bool) -> Self:
        """Check and flatten.

        Args:
            logits: Shape (n, k) or (n, k, ...).
            labels: Shape (n,) or (n, ...), or the logits'.
            owner: The name of the loss, for messages.
            ignore_index: The label of rows that do not count.
            soft: Whether the loss takes soft labels.
        """
        _check_shapes(logits, labels, owner=owner, soft=soft, ignore_index=ignore_index)
        logits = logits.float() if logits.dtype in {torch.float16, torch.bfloat16} else logits
        k, shape, soft = logits.shape[1], labels.shape, labels.is_floating_point()
        if logits.ndim > 2:
            logits = logits.movedim(1, -1).reshape(-1, k)
            labels = labels.movedim(1, -1).reshape(-1, k) if soft else labels.reshape(-1)
        if soft:
            return cls(logits, labels.to(logits.dtype), None, torch.Size([shape[0], *shape[2:]]))
        kept = None
        if ignore_index is not None:
            # As int64: a narrower type would take -100 for another number, 156 where it has no negative ones.
            kept = labels.long() != ignore_index
            logits, labels = logits[kept], labels[kept]
        # A look at the labels of a GPU would wait for it, and break a captured graph.
        if labels.device.type == "cpu" and not torch.compiler.is_compiling():
            labels = _checked_labels(labels, k)
        return cls(logits, labels.long(), kept, shape)

    def reduced(self, losses: Tensor, reduction: Reduction) -> Tensor:
        """The rows' losses as one number, or as one each in the shape of the labels."""
        if reduction == "none":
            if self._kept is not None:
                losses = losses.new_zeros(self._kept.shape).masked_scatter(self._kept, losses)
            return losses.reshape(self._shape)
        # Of a batch whose rows are all ignored the sum is 0, and so is the loss; its mean would be NaN.
        return losses.sum() if reduction == "sum" or self.is_empty else losses.mean()


def full_precision(logits: Tensor) -> AbstractContextManager[object]:
    """Keeps autocast out of a loss: it would multiply matrices of probabilities in half precision."""
    device = logits.device.type
    # Tensors without numbers know no autocast.
    is_on = device != "meta" and torch.is_autocast_enabled(device)
    return torch.autocast(device, enabled=False) if is_on else nullcontext()


def _checked_labels(labels: Tensor, k: int) -> Tensor:
    try:
        return check_labels(labels, k)
    except InputError as error:
        if not (labels.long() == _TORCH_IGNORES).any():
            raise
        raise InputError(
            f"{error} If {_TORCH_IGNORES} marks rows that do not count, as in torch, give the loss "
            f"ignore_index={_TORCH_IGNORES}."
        ) from error


def _check_shapes(logits: Tensor, labels: Tensor, *, owner: str, soft: bool, ignore_index: int | None) -> None:
    if logits.ndim < 2 or logits.numel() == 0 or logits.shape[1] < 2 or not logits.is_floating_point():
        raise InputError(
            f"logits must be floating numbers of shape (n, k), with at least one row and two classes; "
            f"got {logits.dtype} of shape {tuple(logits.shape)}."
        )
    if labels.is_floating_point():
        if not soft:
            raise InputError(
                f"{owner} must have whole-numbered labels, (n,); got {labels.dtype} of shape {tuple(labels.shape)}. "
                "Of two labels mixed by mixup, take the mixed sum of two losses: Mixup does."
            )
        if ignore_index is not None:
            raise InputError("ignore_index must be None with soft labels, which no row has; drop those rows instead.")
    expected = logits.shape if labels.is_floating_point() else (logits.shape[0], *logits.shape[2:])
    if labels.shape != expected:
        raise InputError(
            f"labels must have shape {tuple(expected)} for logits of shape {tuple(logits.shape)}; "
            f"got {tuple(labels.shape)}."
        )

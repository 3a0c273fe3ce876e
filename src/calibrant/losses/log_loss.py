"""The cross-entropy of rows, which most losses start from."""

from torch import Tensor
from torch.nn import functional as F

__all__ = ["NO_LABEL", "log_losses"]

# No row's label. Torch's own functions ignore -100 unless told otherwise: where labels are not looked at, on a GPU or
# in a compiled loss, such rows would count as rows with a loss of 0.
NO_LABEL = -(2**62)


def log_losses(logits: Tensor, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """``-log p_y`` of each row, (n,); torch's to the bit, but that no label is ignored.

    Args:
        logits: Shape (n, k).
        labels: Shape (n,), int64; or (n, k), soft.
        smoothing: The share of the uniform distribution that is mixed into the labels.

    Example:
        >>> import torch
        >>> log_losses(torch.tensor([[0.25, 0.75]]).log(), torch.tensor([0])).exp()
        tensor([4.])
    """
    return F.cross_entropy(logits, labels, reduction="none", ignore_index=NO_LABEL, label_smoothing=smoothing)

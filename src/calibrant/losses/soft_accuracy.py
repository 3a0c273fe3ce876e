"""Accuracy with a slope: how close the true class comes to the first place."""

import torch
from torch import Tensor

__all__ = ["soft_accuracy"]


def soft_accuracy(probs: Tensor, labels: Tensor, *, temperature: float = 100.0) -> Tensor:
    """The accuracy of each row, made smooth through the rank of its true class.

    1 where the true class leads by several hundredths, 0 where it comes second or later by as much, 1/2 where two
    classes share the lead. With many classes the small probabilities add up: 100 classes near .01 around a true class
    of .05 make it 0, though the prediction is right.

    Formula: max(0, 2 − R), R = ½ + Σ_k σ((p_k − p_y)·t), in which k = y adds ½

    Args:
        probs: Shape (n, k).
        labels: Shape (n,), int64.
        temperature: t, by which differences are multiplied, as in the paper's code: larger is harder.

    Returns:
        Shape (n,), from 0 to 1.

    Example:
        >>> soft_accuracy(torch.tensor([[0.8, 0.2], [0.5, 0.5], [0.1, 0.9]]), torch.tensor([0, 0, 0]))
        tensor([1.0000, 0.5000, 0.0000])
    """
    lead = probs - probs.gather(1, labels[:, None])
    return torch.relu(1.5 - torch.sigmoid(temperature * lead).sum(1))

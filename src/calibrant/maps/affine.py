"""A linear function of the logits, or of the log-probabilities: most parametric methods end here."""

from typing import ClassVar, final

import torch
from torch import Tensor

from calibrant.checks import check_bool
from calibrant.maps.base import Map, Setting
from calibrant.maps.learned import require

__all__ = ["Affine"]


@final
class Affine(Map):
    """``W x + b``, where x is the logits or their log-probabilities.

    Args:
        weight: One number, a diagonal (k,) or a matrix (k, k) whose row j makes the j-th logit.
        bias: Shape (k,).
        n_classes: Length of a row of logits.
        of_log_probs: Whether x is the log-probabilities. They differ from the logits by a number a row, which matters
            to a matrix or a diagonal, and makes the result independent of it.
    """

    kind: ClassVar[str] = "affine"
    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor, *, n_classes: int, of_log_probs: bool = False) -> None:
        super().__init__(n_classes)
        self.of_log_probs = of_log_probs
        self.keep(weight=weight, bias=bias)

    def settings(self) -> dict[str, Setting]:
        return {"of_log_probs": self.of_log_probs}

    def check_numbers(self) -> None:
        check_bool(self.of_log_probs, "of_log_probs")
        k = self.n_classes
        shapes = ((), (k,), (k, k))
        require(self.weight.shape in shapes, f"weight must have one of the shapes {shapes} of {k} classes", self.weight)
        require(self.bias.shape == (k,), f"bias must have a number for each of {k} classes", self.bias)

    def calibrated(self, logits: Tensor) -> Tensor:
        # Far beyond all that matters, and so that sums of products with the weights are numbers.
        most = torch.finfo(logits.dtype).max ** 0.75
        inputs = (logits.log_softmax(dim=-1) if self.of_log_probs else logits).clamp(-most, most)
        weight, bias = self.weight.to(logits), self.bias.to(logits)
        return (inputs @ weight.T if weight.ndim == 2 else inputs * weight) + bias

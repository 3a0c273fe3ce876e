"""Batch normalisation that does not count padding."""

from typing import ClassVar, final

import torch
from torch import Tensor, nn

__all__ = ["MaskedBatchNorm"]


@final
class MaskedBatchNorm(nn.Module):
    """Each channel with mean 0 and deviation 1 over the words of the batch, then a learned scale and shift.

    Without padding it is ``nn.BatchNorm1d``. With padding that one would count zeros, and the shorter the texts the
    less would be left of its mean and deviation. It is not synchronised when several processes share a batch.

    Args:
        channels: Of the input, (n, channels, length).

    Example:
        >>> words = torch.tensor([[[1.0, 3.0, 0.0]]])
        >>> MaskedBatchNorm(1)(words, torch.tensor([[[1.0, 1.0, 0.0]]]))[0, 0, :2].detach().round().tolist()
        [-1.0, 1.0]
    """

    # Torch's own defaults: the share that a batch has in the running figures, and what keeps the division finite.
    momentum: ClassVar[float] = 0.1
    epsilon: ClassVar[float] = 1e-5

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, words: Tensor, present: Tensor) -> Tensor:
        """Normalised words, and anything at all where there is none.

        Args:
            words: Shape (n, channels, length).
            present: One where there is a word, else zero, (n, 1, length).
        """
        words = words.to(self.weight.dtype)  # sums over a batch are too long for half precision
        present = present.to(words.dtype)
        mean, variance = self._over_the_batch(words, present) if self.training else self._over_training()
        scale = self.weight * torch.rsqrt(variance + self.epsilon)
        return (words - mean[:, None]) * scale[:, None] + self.bias[:, None]

    def _over_training(self) -> tuple[Tensor, Tensor]:
        return self.running_mean, self.running_var

    def _over_the_batch(self, words: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        n = present.sum().clamp(min=1)
        mean = (words * present).sum((0, 2)) / n
        variance = ((words - mean[:, None]).square() * present).sum((0, 2)) / n
        with torch.no_grad():
            unbiased = variance * n / (n - 1).clamp(min=1)
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(unbiased, self.momentum)
        return mean, variance

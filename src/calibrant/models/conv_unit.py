"""A convolution with batch normalisation and ReLU: the stem of residual networks, and the whole of VGG."""

from typing import final

from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["ConvUnit", "he_init"]


@final
class ConvUnit(nn.Module):
    """A 3 x 3 convolution that keeps the size, batch normalisation, ReLU.

    Args:
        in_channels: Of the input, (n, in_channels, h, w).
        out_channels: Of the output, (n, out_channels, h, w).
        bias: Whether the convolution adds a number to each channel, which the normalisation then subtracts.

    Example:
        >>> import torch
        >>> tuple(ConvUnit(3, 16)(torch.zeros(2, 3, 8, 8)).shape)
        (2, 16, 8, 8)
    """

    def __init__(self, in_channels: int, out_channels: int, *, bias: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=bias)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, maps: Tensor) -> Tensor:
        """Maps of the same size, none below zero."""
        return F.relu(self.norm(self.conv(maps)), inplace=True)


def he_init(network: nn.Module) -> None:
    """Draw the weights of every convolution from a normal distribution of variance 2 / fan-in.

    That variance keeps the size of activations through ReLUs (He et al. 2015, arXiv:1502.01852, eq. 10).
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

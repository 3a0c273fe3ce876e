"""The thin residual networks that He et al. made for CIFAR: ResNet-20, -32, -56, -110."""

from collections.abc import Iterator
from typing import ClassVar, final

from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.checks import check_at_least
from calibrant.errors import InputError
from calibrant.models.conv_unit import ConvUnit, he_init
from calibrant.paper import Paper

__all__ = ["CifarBlock", "CifarResNet"]


@final
class CifarBlock(nn.Module):
    """Two 3 x 3 convolutions, and a shortcut without parameters ("option A").

    Where the size halves, the shortcut takes every second pixel and fills the new channels with zeros.

    Args:
        in_channels: Of the input, (n, in_channels, h, w).
        out_channels: Of the output.
        stride: 1 keeps the size; 2 halves it, rounding up.

    Example:
        >>> import torch
        >>> tuple(CifarBlock(16, 32, 2)(torch.zeros(1, 16, 8, 8)).shape)
        (1, 32, 4, 4)
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)
        before = (out_channels - in_channels) // 2
        self.stride = stride
        self.padding = (0, 0, 0, 0, before, out_channels - in_channels - before)

    def forward(self, maps: Tensor) -> Tensor:
        """The sum of both ways, (n, out_channels, h / stride, w / stride)."""
        out = F.relu(self.norm1(self.conv1(maps)), inplace=True)
        out = self.norm2(self.conv2(out))
        if self.stride > 1 or any(self.padding):
            maps = F.pad(maps[:, :, :: self.stride, :: self.stride], self.padding)
        return F.relu(out + maps, inplace=True)


@final
class CifarResNet(nn.Module):
    """Three stages of n blocks with 16, 32 and 64 channels, depth 6n + 2: 0.27 million parameters at depth 20.

    Small for its accuracy, and a usual test bed of calibration. The deep ones can learn CIFAR-10's training set by
    heart, and are overconfident then.

    Args:
        depth: 6n + 2: 20, 32, 44, 56, 110, ...
        n_classes: How many classes there are.
        in_channels: Of the images, (n, in_channels, h, w), of any size from 4 x 4.

    Raises:
        InputError: If the depth is not 6n + 2.

    Example:
        >>> import torch
        >>> network = CifarResNet(depth=20, n_classes=100)
        >>> tuple(network(torch.zeros(1, 3, 32, 32)).shape)
        (1, 100)
    """

    paper: ClassVar[Paper] = Paper(
        "He et al.", 2016, "Deep Residual Learning for Image Recognition", "arXiv:1512.03385", "section 4.2"
    )

    def __init__(self, *, depth: int, n_classes: int = 10, in_channels: int = 3) -> None:
        super().__init__()
        check_at_least(depth, 8, "depth")
        check_at_least(n_classes, 2, "n_classes")
        check_at_least(in_channels, 1, "in_channels")
        if (depth - 2) % 6:
            raise InputError(f"depth must be 6n + 2; got {depth}. Take 20, 32, 44, 56 or 110.")
        self.stem = ConvUnit(in_channels, 16)
        layers = []
        for before, channels in ((16, 16), (16, 32), (32, 64)):
            layers.append(CifarBlock(before, channels, stride=1 if before == channels else 2))
            layers += [CifarBlock(channels, channels, stride=1) for _ in range((depth - 2) // 6 - 1)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(64, n_classes)
        he_init(self)

    def blocks(self) -> Iterator[nn.Module]:
        yield self.stem
        yield from self.body

    def features(self, images: Tensor) -> Tensor:
        """Activations before the last layer, (n, 64)."""
        maps: Tensor = self.body(self.stem(images))
        return maps.mean((2, 3))

    def forward(self, images: Tensor) -> Tensor:
        """Logits, (n, k)."""
        logits: Tensor = self.head(self.features(images))
        return logits

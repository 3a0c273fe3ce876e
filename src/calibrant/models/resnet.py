"""The residual networks that He et al. made for ImageNet, with a first layer for small images."""

from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar, final

from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.checks import check_at_least
from calibrant.errors import InputError
from calibrant.models.conv_unit import ConvUnit, he_init
from calibrant.paper import Paper

__all__ = ["BasicBlock", "BottleneckBlock", "ResNet"]

# Blocks in each of the four stages (table 1).
_BASIC = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}
_BOTTLENECK = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
_WIDTHS = (64, 128, 256, 512)


@final
class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut.

    Args:
        in_channels: Of the input, (n, in_channels, h, w).
        width: Channels inside, and of the output.
        stride: 1 keeps the size; 2 halves it, rounding up.
    """

    expansion: ClassVar[int] = 1

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, width, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.shortcut = _shortcut(in_channels, width, stride)

    def forward(self, maps: Tensor) -> Tensor:
        """The sum of both ways, (n, width, h / stride, w / stride)."""
        out = F.relu(self.norm1(self.conv1(maps)), inplace=True)
        out = self.norm2(self.conv2(out))
        return F.relu(out + self.shortcut(maps), inplace=True)


@final
class BottleneckBlock(nn.Module):
    """A 1 x 1 convolution to fewer channels, a 3 x 3 one, a 1 x 1 one back to four times as many, and a shortcut.

    Args:
        in_channels: Of the input, (n, in_channels, h, w).
        width: Channels inside; the output has four times as many.
        stride: 1 keeps the size; 2 halves it, rounding up.
    """

    expansion: ClassVar[int] = 4

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        out_channels = self.expansion * width
        self.conv1 = nn.Conv2d(in_channels, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        # Differs from the paper: the 3 x 3 convolution halves the size, not the 1 x 1 one, which would see only a
        # quarter of the pixels. Every current implementation does so.
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out_channels, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(out_channels)
        self.shortcut = _shortcut(in_channels, out_channels, stride)

    def forward(self, maps: Tensor) -> Tensor:
        """The sum of both ways, (n, 4 width, h / stride, w / stride)."""
        out = F.relu(self.norm1(self.conv1(maps)), inplace=True)
        out = F.relu(self.norm2(self.conv2(out)), inplace=True)
        out = self.norm3(self.conv3(out))
        return F.relu(out + self.shortcut(maps), inplace=True)


@final
class ResNet(nn.Module):
    """Four stages of residual blocks, 64 to 512 wide, after one 3 x 3 convolution: 11 million parameters at depth 18.

    Args:
        depth: 18 or 34, of basic blocks; 50, 101 or 152, of bottleneck blocks.
        n_classes: How many classes there are.
        in_channels: Of the images, (n, in_channels, h, w), of any size from 8 x 8.

    Raises:
        InputError: If the depth is none of these.

    Example:
        >>> import torch
        >>> tuple(ResNet(depth=18)(torch.zeros(1, 3, 32, 32)).shape)
        (1, 10)
    """

    paper: ClassVar[Paper] = Paper(
        "He et al.", 2016, "Deep Residual Learning for Image Recognition", "arXiv:1512.03385", "table 1"
    )

    def __init__(self, *, depth: int, n_classes: int = 10, in_channels: int = 3) -> None:
        super().__init__()
        check_at_least(n_classes, 2, "n_classes")
        check_at_least(in_channels, 1, "in_channels")
        lengths = _BASIC | _BOTTLENECK
        if depth not in lengths:
            raise InputError(f"depth must be one of {', '.join(map(str, lengths))}; got {depth!r}.")
        block = BasicBlock if depth in _BASIC else BottleneckBlock
        # Differs from the paper: its stem, a 7 x 7 convolution of stride 2 and a max pool, would leave 8 x 8 of a
        # 32 x 32 image. A 3 x 3 convolution of stride 1 is what papers on CIFAR and Tiny-ImageNet use.
        self.stem = ConvUnit(in_channels, 64)
        layers: list[nn.Module] = []
        outputs = (64, *(block.expansion * width for width in _WIDTHS))
        for (before, after), width, length in zip(pairwise(outputs), _WIDTHS, lengths[depth], strict=True):
            layers.append(block(before, width, stride=1 if width == 64 else 2))
            layers += [block(after, width, stride=1) for _ in range(length - 1)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(outputs[-1], n_classes)
        he_init(self)

    def blocks(self) -> Iterator[nn.Module]:
        yield self.stem
        yield from self.body

    def features(self, images: Tensor) -> Tensor:
        """Activations before the last layer: (n, 512) of basic blocks, (n, 2048) of bottleneck blocks."""
        maps: Tensor = self.body(self.stem(images))
        return maps.mean((2, 3))

    def forward(self, images: Tensor) -> Tensor:
        """Logits, (n, k)."""
        logits: Tensor = self.head(self.features(images))
        return logits


def _shortcut(in_channels: int, out_channels: int, stride: int) -> nn.Module:
    """The input as it is, or a projection where the shapes differ ("option B")."""
    if stride == 1 and in_channels == out_channels:
        return nn.Identity()
    projection = nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False)
    return nn.Sequential(projection, nn.BatchNorm2d(out_channels))

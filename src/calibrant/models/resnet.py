"""Residual networks of He et al. for ImageNet (with a stem for small images) and for CIFAR, and wide ones."""

from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar, final

from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.checks import check_at_least, check_real_number
from calibrant.errors import InputError
from calibrant.models.layers import Classifier, ConvUnit, check_sizes, he_init
from calibrant.paper import Paper

# Blocks in each of the four stages (table 1).
_BASIC = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}
_BOTTLENECK = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
_WIDTHS = (64, 128, 256, 512)


@final
class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut; stride 2 halves the size, rounding up."""

    expansion: ClassVar[int] = 1

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, width, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.shortcut = _shortcut(in_channels, width, stride)

    def forward(self, maps: Tensor) -> Tensor:
        out = F.relu(self.norm1(self.conv1(maps)), inplace=True)
        out = self.norm2(self.conv2(out))
        return F.relu(out + self.shortcut(maps), inplace=True)


@final
class BottleneckBlock(nn.Module):
    """A 1 x 1 convolution to fewer channels, a 3 x 3 one, a 1 x 1 one to four times as many, and a shortcut."""

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
        out = F.relu(self.norm1(self.conv1(maps)), inplace=True)
        out = F.relu(self.norm2(self.conv2(out)), inplace=True)
        out = self.norm3(self.conv3(out))
        return F.relu(out + self.shortcut(maps), inplace=True)


@final
class ResNet(Classifier):
    """Four stages of residual blocks, 64 to 512 wide, after one 3 x 3 convolution: 11 million parameters at depth 18.

    Args:
        depth: 18 or 34, of basic blocks; 50, 101 or 152, of bottleneck blocks.
        in_channels: Channels of the images, of any size from 8 x 8.

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
        check_sizes(n_classes=n_classes, in_channels=in_channels)
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


def _shortcut(in_channels: int, out_channels: int, stride: int) -> nn.Module:
    """Return the identity, or a projection where the shapes differ ("option B")."""
    if stride == 1 and in_channels == out_channels:
        return nn.Identity()
    projection = nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False)
    return nn.Sequential(projection, nn.BatchNorm2d(out_channels))


@final
class CifarBlock(nn.Module):
    """Two 3 x 3 convolutions, and a shortcut without parameters ("option A").

    Where the size halves, the shortcut takes every second pixel and fills the new channels with zeros.
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
        out = F.relu(self.norm1(self.conv1(maps)), inplace=True)
        out = self.norm2(self.conv2(out))
        if self.stride > 1 or any(self.padding):
            maps = F.pad(maps[:, :, :: self.stride, :: self.stride], self.padding)
        return F.relu(out + maps, inplace=True)


@final
class CifarResNet(Classifier):
    """Three stages of n blocks with 16, 32 and 64 channels, depth 6n + 2: 0.27 million parameters at depth 20.

    Small for its accuracy, and a usual test bed of calibration. The deep ones can memorise CIFAR-10's training set, and
    are overconfident then.

    Args:
        depth: 6n + 2: 20, 32, 44, 56, 110, ...
        in_channels: Channels of the images, of any size from 4 x 4.

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
        check_sizes(n_classes=n_classes, in_channels=in_channels)
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


@final
class WideBlock(nn.Module):
    """Normalise, ReLU, 3 x 3 convolution, twice, and a shortcut.

    Where the shape changes, the shortcut is a 1 x 1 convolution of the output of the first ReLU. Dropout, if any, is
    between the convolutions.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.projection: nn.Conv2d | None = None
        if stride > 1 or in_channels != out_channels:
            self.projection = nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        active = F.relu(self.norm1(maps), inplace=True)
        shortcut = maps if self.projection is None else self.projection(active)
        out = F.relu(self.norm2(self.conv1(active)), inplace=True)
        out = self.conv2(self.dropout(out))
        return out + shortcut


@final
class WideResNet(Classifier):
    """Three stages of n blocks, 16, 32 and 64 times the width, depth 6n + 4: 56 million parameters for WRN-40-10.

    Args:
        depth: 6n + 4: 16, 22, 28, 40, ...
        width: Factor of the widths of the thin network.
        in_channels: Channels of the images, of any size from 4 x 4.
        dropout: Share of the activations inside blocks that are dropped in training; the paper tries 0 and 0.3.

    Raises:
        InputError: If the depth is not 6n + 4, or the dropout not a share below 1.

    Example:
        >>> import torch
        >>> tuple(WideResNet(depth=16, width=2)(torch.zeros(1, 3, 32, 32)).shape)
        (1, 10)
    """

    paper: ClassVar[Paper] = Paper(
        "Zagoruyko & Komodakis", 2016, "Wide Residual Networks", "arXiv:1605.07146", "table 1"
    )

    def __init__(
        self, *, depth: int = 40, width: int = 10, n_classes: int = 10, in_channels: int = 3, dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_at_least(depth, 10, "depth")
        check_sizes(n_classes=n_classes, in_channels=in_channels, width=width)
        check_real_number(dropout, "dropout", least=0, most=0.99)
        if (depth - 4) % 6:
            raise InputError(f"depth must be 6n + 4; got {depth}. Take 16, 22, 28 or 40.")
        self.stem = nn.Conv2d(in_channels, 16, 3, padding=1, bias=False)
        layers = []
        before = 16
        for stage in range(3):
            channels = 16 * width * 2**stage
            layers.append(WideBlock(before, channels, stride=2 if stage else 1, dropout=dropout))
            layers += [WideBlock(channels, channels, 1, dropout) for _ in range((depth - 4) // 6 - 1)]
            before = channels
        self.body = nn.Sequential(*layers)
        self.norm = nn.BatchNorm2d(before)
        self.head = nn.Linear(before, n_classes)
        he_init(self)

    def features(self, images: Tensor) -> Tensor:
        """Activations before the last layer, (n, 64 width)."""
        maps = F.relu(self.norm(self.body(self.stem(images))), inplace=True)
        return maps.mean((2, 3))

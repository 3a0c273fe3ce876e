"""Residual networks of He et al. for ImageNet (with a stem for small images) and for CIFAR, and wide ones."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
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
class ProjectedShortcut(nn.Sequential):
    """A normalised 1 x 1 convolution ("option B")."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        projection = nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False)
        super().__init__(projection, nn.BatchNorm2d(out_channels))


@final
class PaddedShortcut(nn.Module):
    """Every second pixel if the stride is 2, and new channels of zeros ("option A"); no parameters."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        before = (out_channels - in_channels) // 2
        self.stride, self.padding = stride, (0, 0, 0, 0, before, out_channels - in_channels - before)

    def forward(self, maps: Tensor) -> Tensor:
        return F.pad(maps[:, :, :: self.stride, :: self.stride], self.padding)


_Shortcut = type[ProjectedShortcut] | type[PaddedShortcut]


@final
class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut; stride 2 halves the size, rounding up."""

    expansion: ClassVar[int] = 1

    def __init__(self, in_channels: int, width: int, stride: int, shortcut: _Shortcut = ProjectedShortcut) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, width, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        is_same = stride == 1 and in_channels == width
        self.shortcut = nn.Identity() if is_same else shortcut(in_channels, width, stride)

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
        is_same = stride == 1 and in_channels == out_channels
        self.shortcut = nn.Identity() if is_same else ProjectedShortcut(in_channels, out_channels, stride)

    def forward(self, maps: Tensor) -> Tensor:
        out = F.relu(self.norm1(self.conv1(maps)), inplace=True)
        out = F.relu(self.norm2(self.conv2(out)), inplace=True)
        out = self.norm3(self.conv3(out))
        return F.relu(out + self.shortcut(maps), inplace=True)


@final
class WideBlock(nn.Module):
    """Normalise, ReLU, 3 x 3 convolution, twice, with dropout, if any, before the second; and a shortcut.

    Where the shape changes, the shortcut is a 1 x 1 convolution of the output of the first ReLU.
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
        return self.conv2(self.dropout(out)) + shortcut


def _stages(
    block: Callable[..., nn.Module], in_channels: int, widths: Sequence[int], lengths: Sequence[int], expansion: int = 1
) -> nn.Sequential:
    """Chain blocks to stages of these widths and lengths; each stage but the first halves the size."""
    blocks = []
    for stage, (width, length) in enumerate(zip(widths, lengths, strict=True)):
        for place in range(length):
            blocks.append(block(in_channels, width, stride=2 if stage and not place else 1))
            in_channels = expansion * width
    return nn.Sequential(*blocks)


@final
class ResNet(Classifier):
    """Four stages of residual blocks, 64 to 512 wide, after one 3 x 3 convolution: 11 million parameters at depth 18.

    Args:
        depth: 18 or 34, of basic blocks; 50, 101 or 152, of bottleneck blocks.
        in_channels: Channels of the images, of any size from 8 x 8.
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
        self.body = _stages(block, 64, _WIDTHS, lengths[depth], block.expansion)
        self.head = nn.Linear(block.expansion * _WIDTHS[-1], n_classes)
        he_init(self)

    def blocks(self) -> Iterator[nn.Module]:
        yield self.stem
        yield from self.body

    def features(self, images: Tensor) -> Tensor:
        return self.body(self.stem(images)).mean((2, 3))


@final
class CifarResNet(Classifier):
    """Three stages of n blocks with 16, 32 and 64 channels, depth 6n + 2: 0.27 million parameters at depth 20.

    Small for its accuracy, and a usual test bed of calibration. The deep ones can memorise CIFAR-10's training set, and
    are overconfident then.

    Args:
        depth: 6n + 2: 20, 32, 44, 56, 110, ...
        in_channels: Channels of the images, of any size from 4 x 4.
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
        self.body = _stages(partial(BasicBlock, shortcut=PaddedShortcut), 16, (16, 32, 64), [(depth - 2) // 6] * 3)
        self.head = nn.Linear(64, n_classes)
        he_init(self)

    def blocks(self) -> Iterator[nn.Module]:
        yield self.stem
        yield from self.body

    def features(self, images: Tensor) -> Tensor:
        return self.body(self.stem(images)).mean((2, 3))


@final
class WideResNet(Classifier):
    """Three stages of n blocks, 16, 32 and 64 times the width, depth 6n + 4: 56 million parameters for WRN-40-10.

    Args:
        depth: 6n + 4: 16, 22, 28, 40, ...
        width: Factor of the widths of the thin network.
        in_channels: Channels of the images, of any size from 4 x 4.
        dropout: Share of the activations inside blocks that are dropped in training; the paper tries 0 and 0.3.
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
        widths = (16 * width, 32 * width, 64 * width)
        self.stem = nn.Conv2d(in_channels, 16, 3, padding=1, bias=False)
        self.body = _stages(partial(WideBlock, dropout=dropout), 16, widths, [(depth - 4) // 6] * 3)
        self.norm = nn.BatchNorm2d(widths[-1])
        self.head = nn.Linear(widths[-1], n_classes)
        he_init(self)

    def features(self, images: Tensor) -> Tensor:
        return F.relu(self.norm(self.body(self.stem(images))), inplace=True).mean((2, 3))

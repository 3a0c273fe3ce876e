"""Convolutional networks: residual ones for ImageNet and for CIFAR, wide ones, VGG, DenseNet, and one for digits."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.checks import check_at_least, check_real_number
from calibrant.errors import InputError
from calibrant.models.layers import Classifier, ConvUnit, ImageNetStem, check_sizes, he_init
from calibrant.paper import HE, Paper

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
        imagenet_stem: Whether the stem is the paper's, a 7 x 7 convolution of stride 2 and a max pool, for images of
            224 x 224; weights of torchvision or timm are for that one (:func:`~calibrant.models.own_names`).
    """

    paper: ClassVar[Paper] = HE.at("table 1")

    def __init__(self, *, depth: int, n_classes: int = 10, in_channels: int = 3, imagenet_stem: bool = False) -> None:
        super().__init__()
        check_sizes(n_classes=n_classes, in_channels=in_channels)
        lengths = _BASIC | _BOTTLENECK
        if depth not in lengths:
            raise InputError(f"depth must be one of {', '.join(map(str, lengths))}; got {depth!r}.")
        block = BasicBlock if depth in _BASIC else BottleneckBlock
        # Differs from the paper, unless asked for: its stem would leave 8 x 8 of a 32 x 32 image. A 3 x 3 convolution
        # of stride 1 is what papers on CIFAR and Tiny-ImageNet use.
        self.stem = ImageNetStem(in_channels, 64) if imagenet_stem else ConvUnit(in_channels, 64)
        self.body = _stages(block, 64, _WIDTHS, lengths[depth], block.expansion)
        self.head = nn.Linear(block.expansion * _WIDTHS[-1], n_classes)
        he_init(self)

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

    paper: ClassVar[Paper] = HE.at("section 4.2")

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


# Widths of the five stages, and convolutions in each (table 1, columns A, B, D, E).
_VGG_WIDTHS = (64, 128, 256, 512, 512)
_VGG_LENGTHS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


@final
class VGGStage(nn.Module):
    """Several 3 x 3 convolutions, each with optional batch normalisation and ReLU, and a max pool."""

    def __init__(self, in_channels: int, out_channels: int, length: int, *, normalised: bool = True) -> None:
        super().__init__()
        # With the biases of the published network, though a normalisation subtracts them.
        inputs = (in_channels, *(out_channels,) * (length - 1))
        self.units = nn.Sequential(*(ConvUnit(size, out_channels, bias=True, normalised=normalised) for size in inputs))

    def forward(self, maps: Tensor) -> Tensor:
        # Rounded up, so that 28 x 28 images keep a pixel to the end; the same as rounding down where sides are even.
        return F.max_pool2d(self.units(maps), 2, ceil_mode=True)


@final
class VGG(Classifier):
    """Five stages of convolutions, 64 to 512 wide, and one linear layer: 15 million parameters at depth 16.

    It can memorise CIFAR's training set, and is overconfident then.

    Args:
        depth: 11, 13, 16 or 19.
        in_channels: Channels of the images, of any size from 16 x 16.
        normalised: Whether every convolution has batch normalisation. Without it, a learning rate of 0.1 is too high.
    """

    paper: ClassVar[Paper] = Paper("Simonyan & Zisserman", 2015,
                                   "Very Deep Convolutional Networks for Large-Scale Image Recognition",
                                   "arXiv:1409.1556", "table 1")  # fmt: skip

    # Differs from the paper: batch normalisation after every convolution, unless it is left out; and one linear layer
    # instead of three, as a 32 x 32 image is reduced to one pixel. The pixels of larger images are averaged.

    def __init__(self, *, depth: int = 16, n_classes: int = 10, in_channels: int = 3, normalised: bool = True) -> None:
        super().__init__()
        check_sizes(n_classes=n_classes, in_channels=in_channels)
        if depth not in _VGG_LENGTHS:
            raise InputError(f"depth must be one of {', '.join(map(str, _VGG_LENGTHS))}; got {depth!r}.")
        stages = zip((in_channels, *_VGG_WIDTHS[:-1]), _VGG_WIDTHS, _VGG_LENGTHS[depth], strict=True)
        self.body = nn.Sequential(*(VGGStage(*sizes, normalised=normalised) for sizes in stages))
        self.head = nn.Linear(512, n_classes)
        he_init(self)

    def features(self, images: Tensor) -> Tensor:
        return self.body(images).mean((2, 3))


# Layers in each of the four blocks (table 1).
_DENSE_LENGTHS = {121: (6, 12, 24, 16), 169: (6, 12, 32, 32), 201: (6, 12, 48, 32)}


@final
class DenseLayer(nn.Module):
    """A 1 x 1 convolution to four times the growth and a 3 x 3 one to the growth, each on normalised maps."""

    def __init__(self, in_channels: int, growth: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        out = self.conv1(F.relu(self.norm1(maps), inplace=True))
        return self.conv2(F.relu(self.norm2(out), inplace=True))


@final
class DenseBlock(nn.Module):
    """Layers that each take all maps before them and append ``growth`` channels."""

    def __init__(self, in_channels: int, growth: int, length: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(in_channels + i * growth, growth) for i in range(length))

    def forward(self, maps: Tensor) -> Tensor:
        for layer in self.layers:
            maps = torch.cat((maps, layer(maps)), dim=1)
        return maps


@final
class Transition(nn.Module):
    """Half the channels by a 1 x 1 convolution on normalised maps, and half the size by averaging."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(in_channels)
        self.conv = nn.Conv2d(in_channels, in_channels // 2, 1, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        return F.avg_pool2d(self.conv(F.relu(self.norm(maps), inplace=True)), 2)


@final
class DenseNet(Classifier):
    """Four dense blocks with transitions between them: 7 million parameters at depth 121.

    Args:
        depth: 121, 169 or 201.
        growth: Channels that each layer adds.
        in_channels: Channels of the images, of any size from 8 x 8.
    """

    paper: ClassVar[Paper] = Paper(
        "Huang et al.", 2017, "Densely Connected Convolutional Networks", "arXiv:1608.06993", "table 1"
    )

    def __init__(self, *, depth: int = 121, growth: int = 32, n_classes: int = 10, in_channels: int = 3) -> None:
        super().__init__()
        check_sizes(n_classes=n_classes, in_channels=in_channels, growth=growth)
        if depth not in _DENSE_LENGTHS:
            raise InputError(f"depth must be one of {', '.join(map(str, _DENSE_LENGTHS))}; got {depth!r}.")
        # Differs from the paper: its stem, a 7 x 7 convolution of stride 2 and a max pool, would leave 8 x 8 of a
        # 32 x 32 image. Papers on CIFAR have one 3 x 3 convolution of stride 1, and normalise in the first layer.
        channels = 2 * growth
        self.stem = nn.Conv2d(in_channels, channels, 3, padding=1, bias=False)
        parts: list[nn.Module] = []
        for i, length in enumerate(_DENSE_LENGTHS[depth]):
            if i:
                parts.append(Transition(channels))
                channels //= 2
            parts.append(DenseBlock(channels, growth, length))
            channels += length * growth
        # Compiled in whole blocks: no two of the 58 layers have the same shape, so as parts they would share nothing.
        self.body = nn.Sequential(*parts)
        self.norm = nn.BatchNorm2d(channels)
        self.head = nn.Linear(channels, n_classes)
        he_init(self)

    def features(self, images: Tensor) -> Tensor:
        return F.relu(self.norm(self.body(self.stem(images))), inplace=True).mean((2, 3))


@final
class DigitsCNN(Classifier):
    """Two convolutions and a hidden layer: 20,100 parameters, trained in seconds on a CPU.

    Args:
        image_size: Side of the images; the hidden layer grows with its square.
    """

    def __init__(self, *, n_classes: int = 10, in_channels: int = 1, image_size: int = 8) -> None:
        super().__init__()
        check_sizes(n_classes=n_classes, in_channels=in_channels)
        check_at_least(image_size, 4, "image_size")
        self.body = nn.Sequential(
            nn.Conv2d(in_channels, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * (image_size // 4) ** 2, 110),
            nn.ReLU(),
        )
        self.head = nn.Linear(110, n_classes)

    def blocks(self) -> Iterator[nn.Module]:
        yield from ()

    def features(self, images: Tensor) -> Tensor:
        return self.body(images)

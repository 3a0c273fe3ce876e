"""VGG-16 with batch normalisation, DenseNet, and a small network for 8 x 8 digits."""

from collections.abc import Iterator
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.checks import check_at_least
from calibrant.errors import InputError
from calibrant.models.layers import Classifier, ConvUnit, check_sizes, he_init
from calibrant.paper import Paper

_WIDTHS = (64, 128, 256, 512, 512)
# Convolutions in each of the five stages (table 1, columns A, B, D, E).
_LENGTHS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


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

    paper: ClassVar[Paper] = Paper(
        "Simonyan & Zisserman",
        2015,
        "Very Deep Convolutional Networks for Large-Scale Image Recognition",
        "arXiv:1409.1556",
        "table 1",
    )

    # Differs from the paper: batch normalisation after every convolution, unless it is left out; and one linear layer
    # instead of three, as a 32 x 32 image is reduced to one pixel. The pixels of larger images are averaged.

    def __init__(self, *, depth: int = 16, n_classes: int = 10, in_channels: int = 3, normalised: bool = True) -> None:
        super().__init__()
        check_sizes(n_classes=n_classes, in_channels=in_channels)
        if depth not in _LENGTHS:
            raise InputError(f"depth must be one of {', '.join(map(str, _LENGTHS))}; got {depth!r}.")
        stages = zip((in_channels, *_WIDTHS[:-1]), _WIDTHS, _LENGTHS[depth], strict=True)
        self.body = nn.Sequential(*(VGGStage(*sizes, normalised=normalised) for sizes in stages))
        self.head = nn.Linear(512, n_classes)
        he_init(self)

    def features(self, images: Tensor) -> Tensor:
        return self.body(images).mean((2, 3))


# Layers in each of the four blocks (table 1).
_BLOCK_LENGTHS = {121: (6, 12, 24, 16), 169: (6, 12, 32, 32), 201: (6, 12, 48, 32)}


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
        if depth not in _BLOCK_LENGTHS:
            raise InputError(f"depth must be one of {', '.join(map(str, _BLOCK_LENGTHS))}; got {depth!r}.")
        # Differs from the paper: its stem, a 7 x 7 convolution of stride 2 and a max pool, would leave 8 x 8 of a
        # 32 x 32 image. Papers on CIFAR have one 3 x 3 convolution of stride 1, and normalise in the first layer.
        channels = 2 * growth
        self.stem = nn.Conv2d(in_channels, channels, 3, padding=1, bias=False)
        parts: list[nn.Module] = []
        for i, length in enumerate(_BLOCK_LENGTHS[depth]):
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

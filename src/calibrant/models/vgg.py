"""VGG-16 with batch normalisation: thirteen convolutions in a row, without shortcuts."""

from collections.abc import Iterator
from typing import ClassVar, final

from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.checks import check_at_least
from calibrant.errors import InputError
from calibrant.models.conv_unit import ConvUnit, he_init
from calibrant.paper import Paper

__all__ = ["VGG", "VGGStage"]

_WIDTHS = (64, 128, 256, 512, 512)
# Convolutions in each of the five stages (table 1, columns A, B, D, E).
_LENGTHS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


@final
class VGGStage(nn.Module):
    """Some 3 x 3 convolutions, each with batch normalisation and ReLU, and a max pool.

    Args:
        in_channels: Of the input, (n, in_channels, h, w).
        out_channels: Of the output.
        length: How many convolutions.
    """

    def __init__(self, in_channels: int, out_channels: int, length: int) -> None:
        super().__init__()
        # With the biases of the published network, though the normalisation subtracts them.
        later = (ConvUnit(out_channels, out_channels, bias=True) for _ in range(length - 1))
        self.units = nn.Sequential(ConvUnit(in_channels, out_channels, bias=True), *later)

    def forward(self, maps: Tensor) -> Tensor:
        """Maps of half the size, (n, out_channels, h / 2, w / 2)."""
        # Rounded up, so that 28 x 28 images keep a pixel to the end; the same as rounding down where sides are even.
        return F.max_pool2d(self.units(maps), 2, ceil_mode=True)


@final
class VGG(nn.Module):
    """Five stages of convolutions, 64 to 512 wide, and one linear layer: 15 million parameters at depth 16.

    It can learn CIFAR's training set by heart, and is overconfident then.

    Args:
        depth: 11, 13, 16 or 19.
        n_classes: How many classes there are.
        in_channels: Of the images, (n, in_channels, h, w), of any size from 16 x 16.

    Raises:
        InputError: If the depth is none of these.

    Example:
        >>> import torch
        >>> tuple(VGG(depth=11)(torch.zeros(1, 3, 32, 32)).shape)
        (1, 10)
    """

    paper: ClassVar[Paper] = Paper(
        "Simonyan & Zisserman",
        2015,
        "Very Deep Convolutional Networks for Large-Scale Image Recognition",
        "arXiv:1409.1556",
        "table 1",
    )

    # Differs from the paper: batch normalisation after every convolution; and one linear layer instead of three, as one
    # pixel is left of a 32 x 32 image. Of larger images the pixels left are averaged.

    def __init__(self, *, depth: int = 16, n_classes: int = 10, in_channels: int = 3) -> None:
        super().__init__()
        check_at_least(n_classes, 2, "n_classes")
        check_at_least(in_channels, 1, "in_channels")
        if depth not in _LENGTHS:
            raise InputError(f"depth must be one of {', '.join(map(str, _LENGTHS))}; got {depth!r}.")
        inputs = (in_channels, *_WIDTHS)
        stages = zip(inputs[:-1], _WIDTHS, _LENGTHS[depth], strict=True)
        self.body = nn.Sequential(*(VGGStage(before, after, length) for before, after, length in stages))
        self.head = nn.Linear(512, n_classes)
        he_init(self)

    def blocks(self) -> Iterator[nn.Module]:
        yield from self.body

    def features(self, images: Tensor) -> Tensor:
        """Activations before the last layer, (n, 512)."""
        maps: Tensor = self.body(images)
        return maps.mean((2, 3))

    def forward(self, images: Tensor) -> Tensor:
        """Logits, (n, k)."""
        logits: Tensor = self.head(self.features(images))
        return logits

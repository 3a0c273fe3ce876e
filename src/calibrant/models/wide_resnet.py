"""Wide residual networks: fewer, wider blocks that normalise before they convolve."""

from collections.abc import Iterator
from typing import ClassVar, final

from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.checks import check_at_least, check_real_number
from calibrant.errors import InputError
from calibrant.models.conv_unit import he_init
from calibrant.paper import Paper

__all__ = ["WideBlock", "WideResNet"]


@final
class WideBlock(nn.Module):
    """Normalise, ReLU, 3 x 3 convolution, twice, and a shortcut.

    Where the shape changes, the shortcut is a 1 x 1 convolution of what the first ReLU lets through.

    Args:
        in_channels: Of the input, (n, in_channels, h, w).
        out_channels: Of the output.
        stride: 1 keeps the size; 2 halves it, rounding up.
        dropout: Share of the activations between the convolutions that are dropped in training.
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
        """The sum of both ways, (n, out_channels, h / stride, w / stride), which may be below zero."""
        active = F.relu(self.norm1(maps), inplace=True)
        shortcut = maps if self.projection is None else self.projection(active)
        out = F.relu(self.norm2(self.conv1(active)), inplace=True)
        out = self.conv2(self.dropout(out))
        return out + shortcut


@final
class WideResNet(nn.Module):
    """Three stages of n blocks, 16, 32 and 64 times the width, depth 6n + 4: 56 million parameters for WRN-40-10.

    Args:
        depth: 6n + 4: 16, 22, 28, 40, ...
        width: How many times wider than the thin network.
        n_classes: How many classes there are.
        in_channels: Of the images, (n, in_channels, h, w), of any size from 4 x 4.
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
        check_at_least(width, 1, "width")
        check_at_least(n_classes, 2, "n_classes")
        check_at_least(in_channels, 1, "in_channels")
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

    def blocks(self) -> Iterator[nn.Module]:
        yield from self.body

    def features(self, images: Tensor) -> Tensor:
        """Activations before the last layer, (n, 64 width)."""
        maps = F.relu(self.norm(self.body(self.stem(images))), inplace=True)
        return maps.mean((2, 3))

    def forward(self, images: Tensor) -> Tensor:
        """Logits, (n, k)."""
        logits: Tensor = self.head(self.features(images))
        return logits

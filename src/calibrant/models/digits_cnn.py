"""A small convolutional network for the 8 x 8 digits."""

from collections.abc import Iterator
from typing import final

from torch import Tensor, nn

from calibrant.checks import check_at_least

__all__ = ["DigitsCNN"]


@final
class DigitsCNN(nn.Module):
    """Two convolutions and a hidden layer: 20,100 parameters, trained in seconds on a CPU.

    Args:
        n_classes: How many classes there are.
        in_channels: Of the images, (n, in_channels, image_size, image_size).
        image_size: The side of the images; the hidden layer grows with its square.

    Example:
        >>> import torch
        >>> tuple(DigitsCNN()(torch.zeros(2, 1, 8, 8)).shape)
        (2, 10)
    """

    def __init__(self, *, n_classes: int = 10, in_channels: int = 1, image_size: int = 8) -> None:
        super().__init__()
        check_at_least(n_classes, 2, "n_classes")
        check_at_least(in_channels, 1, "in_channels")
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
        """Activations before the last layer, (n, 110)."""
        activations: Tensor = self.body(images)
        return activations

    def forward(self, images: Tensor) -> Tensor:
        """Logits, (n, k)."""
        logits: Tensor = self.head(self.features(images))
        return logits

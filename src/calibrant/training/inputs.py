"""Training inputs where the network is: stored once as they came, cropped, mirrored and scaled there in each step."""

from typing import Protocol, final

import torch
from torch import Tensor, nn

from calibrant.datasets.dataset import Augmentation, PixelScale
from calibrant.training.plan import PADDING

__all__ = ["ImageStore", "InputStore", "PlainStore", "Standardise", "store_of"]


@final
class Standardise(nn.Module):
    """Stored pixels as network inputs: ``(pixel / peak - mean) / std`` for each channel, in float32."""

    factor: Tensor
    offset: Tensor

    def __init__(self, scale: PixelScale) -> None:
        super().__init__()
        std = torch.tensor(scale.std, dtype=torch.float64)
        self.register_buffer("factor", (1 / (scale.peak * std)).float()[:, None, None])
        self.register_buffer("offset", (-torch.tensor(scale.mean, dtype=torch.float64) / std).float()[:, None, None])

    def forward(self, pixels: Tensor) -> Tensor:
        return torch.addcmul(self.offset, pixels.float(), self.factor)


class InputStore(Protocol):
    """Gives a batch of network inputs by the rows' numbers."""

    def augmented(self, rows: Tensor, shifts: Tensor, mirrored: Tensor) -> Tensor: ...

    def plain(self, rows: Tensor) -> Tensor: ...


@final
class PlainStore:
    """Inputs that are used as they are: texts, or numbers that are scaled already."""

    def __init__(self, inputs: Tensor) -> None:
        self._inputs = inputs

    def augmented(self, rows: Tensor, shifts: Tensor, mirrored: Tensor) -> Tensor:  # noqa: ARG002  # nothing to move
        return self._inputs.index_select(0, rows)

    def plain(self, rows: Tensor) -> Tensor:
        return self._inputs.index_select(0, rows)


@final
class ImageStore:
    """Images with a black border, as the papers' code has it, pixel by pixel with the channels last.

    A crop is one gather of whole pixels, and what it gives is already laid out as fast convolutions want it.
    """

    def __init__(self, images: Tensor, standardise: Standardise, augmentation: Augmentation) -> None:
        self._standardise = standardise
        self._moves, self._mirrors = augmentation != "none", augmentation == "crop-flip"
        self._border = PADDING if self._moves else 0
        n, channels, self._height, self._width = images.shape
        border = self._border
        self._wide = self._width + 2 * border
        self._area = (self._height + 2 * border) * self._wide
        pixels = images.new_zeros(n, self._height + 2 * border, self._wide, channels)
        pixels[:, border : border + self._height, border : border + self._width] = images.permute(0, 2, 3, 1)
        self._pixels = pixels.view(-1, channels)
        self._down = torch.arange(self._height, device=images.device)
        self._right = torch.arange(self._width, device=images.device)

    def augmented(self, rows: Tensor, shifts: Tensor, mirrored: Tensor) -> Tensor:
        if not self._moves:
            return self.plain(rows)
        right = self._right
        if self._mirrors:
            right = torch.where(mirrored[:, None], self._width - 1 - right, right)
        return self._gather(rows, self._down + shifts[:, :1], right + shifts[:, 1:])

    def plain(self, rows: Tensor) -> Tensor:
        return self._gather(rows, (self._down + self._border)[None], (self._right + self._border)[None])

    def _gather(self, rows: Tensor, down: Tensor, right: Tensor) -> Tensor:
        """Pixels at the given places of the given images, standardised, (n, c, h, w)."""
        places = (rows * self._area)[:, None, None] + (down * self._wide)[:, :, None] + right[:, None, :]
        shape = (len(rows), self._height, self._width, -1)
        pixels = self._pixels.index_select(0, places.view(-1)).view(shape).permute(0, 3, 1, 2)
        return self._standardise(pixels)


def store_of(inputs: Tensor, scale: PixelScale | None, augmentation: Augmentation, device: torch.device) -> InputStore:
    """The store that suits the inputs: images are those with a pixel scale."""
    inputs = inputs.to(device)
    return PlainStore(inputs) if scale is None else ImageStore(inputs, Standardise(scale).to(device), augmentation)

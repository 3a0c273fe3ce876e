"""An image cut into square patches, each turned into a vector: the first layer of transformers and mixers."""

from typing import final

from torch import Tensor, nn

from calibrant.checks import check_at_least
from calibrant.errors import InputError

__all__ = ["PatchEmbedding"]


@final
class PatchEmbedding(nn.Module):
    """One linear map, the same for every patch.

    Args:
        in_channels: Of the images, (n, in_channels, image_size, image_size).
        image_size: The side of the images.
        patch_size: The side of a patch; the patches must cover the image exactly.
        width: Length of a patch's vector.

    Raises:
        InputError: If the image is not a whole number of patches wide.

    Example:
        >>> import torch
        >>> tuple(PatchEmbedding(3, 32, 4, 16)(torch.zeros(2, 3, 32, 32)).shape)
        (2, 64, 16)
    """

    def __init__(self, in_channels: int, image_size: int, patch_size: int, width: int) -> None:
        super().__init__()
        check_at_least(in_channels, 1, "in_channels")
        check_at_least(patch_size, 1, "patch_size")
        check_at_least(image_size, patch_size, "image_size")
        if image_size % patch_size:
            raise InputError(
                f"image_size must be a multiple of patch_size; got {image_size} and {patch_size}. "
                "Take another patch size, or resize the images."
            )
        self.n_patches = (image_size // patch_size) ** 2
        self.image_size = image_size
        self.project = nn.Conv2d(in_channels, width, patch_size, stride=patch_size)

    def forward(self, images: Tensor) -> Tensor:
        """The patches' vectors, row by row, (n, patches, width)."""
        if images.shape[2:] != (self.image_size, self.image_size):
            raise InputError(
                f"images must be {self.image_size} x {self.image_size}, as the network was built; "
                f"got {tuple(images.shape[2:])}. Build it with that image_size."
            )
        patches: Tensor = self.project(images)
        return patches.flatten(2).transpose(1, 2)

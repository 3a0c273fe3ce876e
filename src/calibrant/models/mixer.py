"""MLP-Mixer: linear layers alone, by turns across the patches of an image and across their channels."""

from collections.abc import Iterator
from typing import ClassVar, final

from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.checks import check_at_least
from calibrant.models.patches import PatchEmbedding
from calibrant.paper import Paper

__all__ = ["MLPMixer", "MixerBlock"]

# Of the authors' code; torch's own default is 1e-5.
_EPSILON = 1e-6


@final
class MixerBlock(nn.Module):
    """Two linear layers across the patches, then two across the channels, each pair added to its input.

    Args:
        n_patches: How many patches an image has.
        width: Length of a patch's vector.
        token_hidden: Width between the layers across the patches.
        channel_hidden: Width between the layers across the channels.
    """

    def __init__(self, n_patches: int, width: int, token_hidden: int, channel_hidden: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=_EPSILON)
        self.token_expand = nn.Linear(n_patches, token_hidden)
        self.token_contract = nn.Linear(token_hidden, n_patches)
        self.norm2 = nn.LayerNorm(width, eps=_EPSILON)
        self.channel_expand = nn.Linear(width, channel_hidden)
        self.channel_contract = nn.Linear(channel_hidden, width)

    def forward(self, patches: Tensor) -> Tensor:
        """Patches that know of each other, (n, patches, width)."""
        columns = self.norm1(patches).transpose(1, 2)
        patches = patches + self.token_contract(F.gelu(self.token_expand(columns))).transpose(1, 2)
        hidden: Tensor = self.channel_contract(F.gelu(self.channel_expand(self.norm2(patches))))
        return patches + hidden


@final
class MLPMixer(nn.Module):
    """Patches through mixer blocks; their average is what is classified.

    The default is the paper's Mixer-S with patches of 4 x 4 for 32 x 32 images: 17 million parameters, many for a
    small data set, which it overfits without strong augmentation. ``image_size=224, patch_size=16, width=768, depth=12,
    token_hidden=384, channel_hidden=3072`` is Mixer-B/16.

    Args:
        n_classes: How many classes there are.
        in_channels: Of the images, (n, in_channels, image_size, image_size).
        image_size: The side of the images, a multiple of the patches'.
        patch_size: The side of a patch.
        width: Length of a patch's vector.
        depth: How many blocks.
        token_hidden: Width between the layers across the patches.
        channel_hidden: Width between the layers across the channels.

    Raises:
        InputError: If the patches do not cover the image.

    Example:
        >>> import torch
        >>> tuple(MLPMixer(depth=1)(torch.zeros(1, 3, 32, 32)).shape)
        (1, 10)
    """

    paper: ClassVar[Paper] = Paper(
        "Tolstikhin et al.",
        2021,
        "MLP-Mixer: An all-MLP Architecture for Vision",
        "arXiv:2105.01601",
        "eq. 1, table 1",
    )

    def __init__(
        self,
        *,
        n_classes: int = 10,
        in_channels: int = 3,
        image_size: int = 32,
        patch_size: int = 4,
        width: int = 512,
        depth: int = 8,
        token_hidden: int = 256,
        channel_hidden: int = 2048,
    ) -> None:
        super().__init__()
        sizes = {"width": width, "depth": depth, "token_hidden": token_hidden, "channel_hidden": channel_hidden}
        for name, size in sizes.items():
            check_at_least(size, 1, name)
        check_at_least(n_classes, 2, "n_classes")
        self.patches = PatchEmbedding(in_channels, image_size, patch_size, width)
        parts = (MixerBlock(self.patches.n_patches, width, token_hidden, channel_hidden) for _ in range(depth))
        self.body = nn.Sequential(*parts)
        self.norm = nn.LayerNorm(width, eps=_EPSILON)
        self.head = nn.Linear(width, n_classes)
        for module in self.body.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def blocks(self) -> Iterator[nn.Module]:
        yield from self.body

    def features(self, images: Tensor) -> Tensor:
        """Activations before the last layer, (n, width): the average of the normalised patches."""
        patches: Tensor = self.norm(self.body(self.patches(images)))
        return patches.mean(1)

    def forward(self, images: Tensor) -> Tensor:
        """Logits, (n, k)."""
        logits: Tensor = self.head(self.features(images))
        return logits

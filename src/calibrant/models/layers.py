"""Parts that the networks share: their interface, convolution units, normalisation and patches."""

from collections.abc import Iterator
from typing import ClassVar, Protocol, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.checks import check_at_least
from calibrant.errors import InputError

__all__ = ["ConvUnit", "MaskedBatchNorm", "Network", "PatchEmbedding", "he_init"]


class Network(Protocol):
    """A classifier whose logits are a linear layer on features: ``forward(x) = head(features(x))``.

    Calibrators and losses that look at features need only this, so a network of your own fits as soon as it has these
    members; it need not derive from anything here.

    Not for isinstance: from Python 3.12 on, that does not see the layers of a module.
    """

    head: nn.Linear

    def features(self, inputs: Tensor, /) -> Tensor:
        """Activations before the last layer, (n, d)."""
        ...

    def forward(self, inputs: Tensor, /) -> Tensor:
        """Logits, (n, k): the head's answer to the features."""
        ...

    def blocks(self) -> Iterator[nn.Module]:
        """The repeated parts in the order in which they run, for compiling them one at a time.

        Compiling ten small parts takes seconds where a whole network takes minutes, and equal parts share one result.
        None contains another. What is left outside is cheap. There may be none: compile such a network as a whole.
        """
        ...


@final
class ConvUnit(nn.Module):
    """A 3 x 3 convolution that keeps the size, batch normalisation unless it is left out, ReLU.

    Args:
        in_channels: Channels of the input, (n, in_channels, h, w).
        out_channels: Channels of the output, (n, out_channels, h, w).
        bias: Whether the convolution adds a number to each channel, which the normalisation then subtracts.
        normalised: Whether there is batch normalisation.

    Example:
        >>> import torch
        >>> tuple(ConvUnit(3, 16)(torch.zeros(2, 3, 8, 8)).shape)
        (2, 16, 8, 8)
    """

    def __init__(self, in_channels: int, out_channels: int, *, bias: bool = False, normalised: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=bias)
        self.norm = nn.BatchNorm2d(out_channels) if normalised else nn.Identity()

    def forward(self, maps: Tensor) -> Tensor:
        """Maps of the same size, none below zero."""
        return F.relu(self.norm(self.conv(maps)), inplace=True)


def he_init(network: nn.Module) -> None:
    """Draw the weights of every convolution from a normal distribution of variance 2 / fan-in.

    That variance keeps the size of activations through ReLUs (He et al. 2015, arXiv:1502.01852, eq. 10).
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")


@final
class MaskedBatchNorm(nn.Module):
    """Each channel with mean 0 and deviation 1 over the words of the batch, then a learned scale and shift.

    Without padding it is ``nn.BatchNorm1d``. With padding that one would count zeros, and the shorter the texts the
    less would be left of its mean and deviation. It is not synchronised when several processes share a batch.

    Args:
        channels: Channels of the input, (n, channels, length).

    Example:
        >>> words = torch.tensor([[[1.0, 3.0, 0.0]]])
        >>> MaskedBatchNorm(1)(words, torch.tensor([[[1.0, 1.0, 0.0]]]))[0, 0, :2].detach().round().tolist()
        [-1.0, 1.0]
    """

    # Torch's own defaults: the share that a batch has in the running figures, and what keeps the division finite.
    momentum: ClassVar[float] = 0.1
    epsilon: ClassVar[float] = 1e-5

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, words: Tensor, present: Tensor) -> Tensor:
        """Normalised words, and anything at all where there is none.

        Args:
            words: Shape (n, channels, length).
            present: One where there is a word, else zero, (n, 1, length).
        """
        words = words.to(self.weight.dtype)  # sums over a batch are too long for half precision
        present = present.to(words.dtype)
        mean, variance = self._over_the_batch(words, present) if self.training else self._over_training()
        scale = self.weight * torch.rsqrt(variance + self.epsilon)
        return (words - mean[:, None]) * scale[:, None] + self.bias[:, None]

    def _over_training(self) -> tuple[Tensor, Tensor]:
        return self.running_mean, self.running_var

    def _over_the_batch(self, words: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        n = present.sum().clamp(min=1)
        mean = (words * present).sum((0, 2)) / n
        variance = ((words - mean[:, None]).square() * present).sum((0, 2)) / n
        with torch.no_grad():
            unbiased = variance * n / (n - 1).clamp(min=1)
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(unbiased, self.momentum)
        return mean, variance


@final
class PatchEmbedding(nn.Module):
    """One linear map, the same for every patch.

    Args:
        in_channels: Channels of the images, (n, in_channels, image_size, image_size).
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

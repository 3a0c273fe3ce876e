"""The interface and base class of the networks, and the parts that they share."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Protocol, final

from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.checks import check_at_least


class Network(Protocol):
    """A classifier whose logits are a linear layer on features: ``forward(x) = head(features(x))``.

    Calibrators and losses that use features need only this, so a network of your own fits as soon as it has these
    members; it need not derive from anything here. Not for isinstance: from Python 3.12 on, that does not see the
    layers of a module.
    """

    head: nn.Linear

    def features(self, inputs: Tensor, /) -> Tensor:
        """Return the activations before the last layer, (n, d)."""
        ...

    def forward(self, inputs: Tensor, /) -> Tensor:
        """Return the logits, (n, k): the head applied to the features."""
        ...

    def blocks(self) -> Iterator[nn.Module]:
        """Yield the repeated parts in the order in which they run, for compiling them one at a time.

        Compiling ten small parts takes seconds where a whole network takes minutes, and equal parts share the result.
        None contains another; what is left outside is cheap. There may be none: compile such a network as a whole.
        """
        ...


class Classifier(nn.Module, ABC):
    """Base class of the networks here: a :class:`Network` with a ``body`` of blocks and a linear ``head``.

    Args:
        n_classes: Number of classes.
        in_channels: Channels of the images, (n, in_channels, h, w).
    """

    head: nn.Linear

    @abstractmethod
    def features(self, inputs: Tensor) -> Tensor:
        """Return the activations before the last layer, (n, d)."""

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.features(inputs))

    def blocks(self) -> Iterator[nn.Module]:
        if isinstance(getattr(self, "stem", None), ConvUnit | ImageNetStem):
            yield self.get_submodule("stem")
        yield from self.get_submodule("body").children()


def check_sizes(*, n_classes: int, in_channels: int = 1, **sizes: int) -> None:
    """Check the sizes of a network: at least two classes, and one of everything else."""
    check_at_least(n_classes, 2, "n_classes")
    for name, size in {"in_channels": in_channels, **sizes}.items():
        check_at_least(size, 1, name)


@final
class ConvUnit(nn.Module):
    """A 3 x 3 convolution that keeps the size, optional batch normalisation, and ReLU."""

    def __init__(self, in_channels: int, out_channels: int, *, bias: bool = False, normalised: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=bias)
        self.norm = nn.BatchNorm2d(out_channels) if normalised else nn.Identity()

    def forward(self, maps: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(maps)), inplace=True)


@final
class ImageNetStem(nn.Module):
    """A 7 x 7 convolution of stride 2, batch normalisation, ReLU and a max pool of stride 2: a quarter of the size."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 7, stride=2, padding=3, bias=False)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, images: Tensor) -> Tensor:
        maps = F.relu(self.norm(self.conv(images)), inplace=True)
        return F.max_pool2d(maps, 3, stride=2, padding=1)


def he_init(network: nn.Module) -> None:
    """Draw the weights of every convolution from a normal distribution of variance 2 / fan-in.

    That variance keeps the size of activations through ReLUs (He et al. 2015, arXiv:1502.01852, eq. 10).
    """
    for module in network.modules():
        if isinstance(module, nn.Conv1d | nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

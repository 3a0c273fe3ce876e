"""What a network of this library shows: its features, its last layer, and the parts worth compiling."""

from collections.abc import Iterator
from typing import Protocol

from torch import Tensor, nn

__all__ = ["Network"]


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

"""What a loss may ask of a training loop beyond being called."""

from typing import Protocol, runtime_checkable

from torch import Tensor

__all__ = ["ChangesWithEpoch", "NeedsSamples"]


@runtime_checkable
class NeedsSamples(Protocol):
    """A loss that keeps something for each training sample, and so must know which ones a batch holds."""

    def remember(self, n_samples: int) -> None:
        """Make room for the samples 0..n_samples-1; called once, before the first batch and before loading a state."""

    def look_at(self, samples: Tensor) -> None:
        """Say which samples the next batches hold, (n,), int64.

        The tensor itself is kept, so that a loop that replays a captured graph can fill it anew for each batch.
        """


@runtime_checkable
class ChangesWithEpoch(Protocol):
    """A loss that is not the same in every epoch."""

    def begin_epoch(self, epoch: int) -> None:
        """Say that an epoch begins, counted from 0; what changes is a buffer, so that a captured graph sees it."""

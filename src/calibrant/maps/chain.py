"""Maps one after the other."""

from collections.abc import Sequence
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from calibrant.maps.base import Map
from calibrant.maps.learned import require

__all__ = ["ChainMap"]


@final
class ChainMap(Map):
    """Each map on what the one before it gave.

    Args:
        maps: At least one, all for the same classes.
        n_classes: Length of a row of logits.
    """

    kind: ClassVar[str] = "chain"

    def __init__(self, maps: Sequence[Map], *, n_classes: int) -> None:
        told = [part.gives_log_probs for part in maps if part.gives_log_probs is not None]
        super().__init__(
            n_classes,
            gives_log_probs=told[-1] if told else None,
            keeps_predicted=all(part.keeps_predicted for part in maps),
        )
        self.maps = nn.ModuleList(maps)

    def check_numbers(self) -> None:
        require(len(self.maps) > 0, "a chain must have at least one map", torch.tensor(len(self.maps)))

    def calibrated(self, logits: Tensor) -> Tensor:
        for part in self.maps:
            logits = part(logits)
        return logits

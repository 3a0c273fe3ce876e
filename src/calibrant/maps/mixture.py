"""A weighted mean of the probabilities that several maps give."""

from collections.abc import Sequence
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from calibrant.maps.base import Map

__all__ = ["Mixture"]


@final
class Mixture(Map):
    """Mean of probabilities, as log-probabilities.

    Args:
        weights: One a map, not negative, summing to one, (m,).
        maps: The maps, all for the same classes.
        n_classes: Length of a row of logits.
    """

    kind: ClassVar[str] = "mixture"
    weights: Tensor

    def __init__(self, weights: Tensor, maps: Sequence[Map], *, n_classes: int) -> None:
        super().__init__(n_classes, gives_log_probs=True)
        self.maps = nn.ModuleList(maps)
        self.keep(weights=weights)

    def calibrated(self, logits: Tensor) -> Tensor:
        parts = [part(logits).log_softmax(dim=-1) for part in self.maps]
        log_weights = self.weights.log().to(logits)
        return torch.stack([part + weight for part, weight in zip(parts, log_weights, strict=True)]).logsumexp(dim=0)

"""In what numbers a network multiplies while it trains."""

from contextlib import AbstractContextManager
from typing import final

import torch

from calibrant.training.recipe import Recipe

__all__ = ["Multiplying"]


@final
class Multiplying:
    """A context for a network's forward runs, entered anew for each.

    Args:
        recipe: Says the precision.
        device_type: Where the network is.
    """

    def __init__(self, recipe: Recipe, device_type: str) -> None:
        self.is_low = recipe.multiplies_in(device_type) == "bfloat16"
        self._device_type = device_type

    def __call__(self) -> AbstractContextManager[object]:
        # bfloat16 copies of the weights are not kept: a captured graph would never renew them.
        return torch.autocast(self._device_type, torch.bfloat16, enabled=self.is_low, cache_enabled=False)

"""Where a network lives."""

import torch
from torch import nn

from calibrant.errors import InputError

__all__ = ["device_of"]


def device_of(model: nn.Module) -> torch.device:
    """Where a network is.

    Raises:
        InputError: If it is in several places.
    """
    places = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    if len(places) > 1:
        raise InputError(f"the network must be on one device; it is on {', '.join(sorted(map(str, places)))}.")
    return next(iter(places), torch.device("cpu"))

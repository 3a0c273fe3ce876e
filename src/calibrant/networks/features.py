"""A network that shows what its last layer sees."""

from typing import cast

from torch import nn

from calibrant.errors import InputError
from calibrant.models.network import Network

__all__ = ["HOW_TO_WRAP", "with_features"]

HOW_TO_WRAP = (
    "Wrap it: an nn.Module whose method features(x) gives the activations before the last layer, (n, d), and whose "
    "head is that layer, so that forward(x) is head(features(x))."
)


def with_features(model: object) -> Network:
    """The network as one that shows its features and its last layer.

    Raises:
        InputError: If it does not; the message says how to wrap it.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"model must be a torch.nn.Module; got {type(model).__name__}.")
    features, head = getattr(model, "features", None), getattr(model, "head", None)
    # A layer of this name, as torchvision's networks have it, gives what comes long before the last layer.
    lacking = [
        *(["a method features"] if not callable(features) or isinstance(features, nn.Module) else []),
        *(["a layer head"] if not isinstance(head, nn.Module) else []),
    ]
    if lacking:
        raise InputError(
            f"model must show its features and its last layer; {type(model).__name__} has not {' and '.join(lacking)}. "
            f"{HOW_TO_WRAP}"
        )
    return cast("Network", model)

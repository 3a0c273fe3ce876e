"""A network that is only asked: what it must show, and its features and logits while nothing of it changes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from calibrant.datasets.integrity import content_digest
from calibrant.errors import InputError
from calibrant.models.network import Network
from calibrant.numerics.neighbours import as_features

__all__ = ["asked", "check_network", "device_of", "features_of", "network_digest", "with_features"]

_WRAPPING = (
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
            f"{_WRAPPING}"
        )
    return cast("Network", model)


def features_of(model: nn.Module, inputs: Tensor) -> Tensor:
    """Activations before the last layer, (n, d), as the network gives them.

    Raises:
        InputError: If they are something else.
    """
    features: object = with_features(model).features(inputs)
    if not isinstance(features, Tensor) or features.ndim != 2 or not features.is_floating_point():
        got = f"shape {tuple(features.shape)}" if isinstance(features, Tensor) else type(features).__name__
        raise InputError(f"features must be real numbers of shape (n, d), a row an input; got {got}. {_WRAPPING}")
    if len(features) != len(inputs):
        raise InputError(f"features must have a row for each of {len(inputs)} inputs; got {len(features)}. {_WRAPPING}")
    return features


def check_network(model: nn.Module, inputs: Tensor) -> None:
    """Its logits are its head's answer to its features, as tried on some inputs.

    Raises:
        InputError: If they are not, or the features are not finite.
    """
    features = as_features(features_of(model, inputs))
    through, whole = with_features(model).head(features), model(inputs)
    if not isinstance(whole, Tensor) or whole.ndim != 2 or whole.shape[1] < 2:
        got = f"shape {tuple(whole.shape)}" if isinstance(whole, Tensor) else type(whole).__name__
        raise InputError(f"a network must return logits of shape (n, k), at least two classes; got {got}.")
    near = torch.finfo(whole.dtype).eps ** 0.5 * (1 + float(whole.abs().max()))
    if through.shape != whole.shape or not (through - whole).abs().max() <= near:
        raise InputError(f"the logits must be head(features(x)); {type(model).__name__} gives others. {_WRAPPING}")


@contextmanager
def asked(model: nn.Module) -> Iterator[None]:
    """Within the block: evaluation mode and no gradients. Afterwards every part is in the mode it was in.

    Not by ``eval()``, after which parts that were in different modes would all be in one.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.Dropout())
        >>> with asked(model):
        ...     print(model[1].training)
        False
        >>> model[1].training
        True
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in modes:
            module.training = False
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def device_of(model: nn.Module) -> torch.device:
    """Where a network is: at its first parameter."""
    first = next((each for each in (*model.parameters(), *model.buffers())), None)
    return torch.device("cpu") if first is None else first.device


def network_digest(model: nn.Module) -> str:
    """A fingerprint of a network's parameters and buffers: their names, types, shapes and every bit.

    Example:
        >>> layer = nn.Linear(1, 2)
        >>> before = network_digest(layer)
        >>> _ = layer.weight.data.add_(1)
        >>> network_digest(layer) == before
        False
    """
    # What torch.compile made has the same tensors under longer names.
    named = {name.replace("_orig_mod.", ""): values for name, values in model.state_dict().items()}
    state = {name: values for name, values in named.items() if isinstance(values, Tensor)}
    parts: list[np.ndarray] = []
    for name in sorted(state):
        values = state[name].detach().cpu().contiguous()
        text = f"{name} {values.dtype} {tuple(values.shape)} ".encode()
        parts += [np.frombuffer(text, dtype=np.uint8), values.reshape(-1).view(torch.uint8).numpy()]
    return content_digest(*parts)

"""A network's weights: which they are, a fingerprint of them, and how others are put in their place."""

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from calibrant.errors import InputError

__all__ = ["network_digest", "network_state", "put_weights", "state_digest"]

_FEW = 3  # names in a message


def network_state(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a network's ``state_dict`` in the order of their names, a compiled one's as they were before.

    What else a state may hold is left out.
    """
    state = model.state_dict()
    named = {_plain_name(name): values for name, values in state.items() if isinstance(values, Tensor)}
    return {name: named[name] for name in sorted(named)}


def network_digest(model: nn.Module) -> str:
    """A fingerprint of a network's parameters and buffers: names, types, shapes and every bit.

    Where they lie plays no part, be it the device, the order in memory, or inside what :func:`torch.compile` made.

    Example:
        >>> layer = nn.Linear(1, 2)
        >>> with torch.no_grad():
        ...     _ = layer.weight.fill_(1), layer.bias.zero_()
        >>> network_digest(layer)[:20]
        'sha256:e3343ed185572'
    """
    return state_digest(network_state(model))


def state_digest(state: Mapping[str, Tensor]) -> str:
    """The fingerprint of a network whose tensors these are, by their names."""
    taken = hashlib.sha256()
    for name in sorted(state):
        values = state[name].detach()
        taken.update(f"{name} {values.dtype} {tuple(values.shape)} ".encode())
        memory: Any = values.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        taken.update(memory)
    return f"sha256:{taken.hexdigest()}"


def put_weights(model: nn.Module, weights: Mapping[str, Tensor], *, casts: bool) -> None:
    """Give a network other weights.

    Args:
        model: Takes all of them, and no others; of those that share memory one is enough.
        weights: By their names.
        casts: Whether those of another type are made the network's own.

    Raises:
        InputError: If they are not this network's, which then is as it was.

    Example:
        >>> layer = nn.Linear(1, 2)
        >>> put_weights(layer, {"weight": torch.ones(2, 1)}, casts=False)
        Traceback (most recent call last):
        calibrant.errors.InputError: weights must be those of this very network; 1 missing (bias).
    """
    own, given = network_state(model), {_plain_name(name): values for name, values in weights.items()}
    both = own.keys() & given.keys()
    held = {own[name].data_ptr() for name in both}
    odd = {
        "missing": [name for name in own if name not in given and own[name].data_ptr() not in held],
        "not of it": [name for name in given if name not in own],
        "of another shape": [name for name in sorted(both) if own[name].shape != given[name].shape],
        "of another type": [name for name in sorted(both) if own[name].dtype != given[name].dtype and not casts],
    }
    told = [f"{len(names)} {what} ({_few(names)})" for what, names in odd.items() if names]
    if told:
        raise InputError(f"weights must be those of this very network; {', '.join(told)}.")
    named = {_plain_name(name): name for name in model.state_dict()}
    # Not strict, because the names were compared, and what else a state may hold is not among them.
    model.load_state_dict({named[name]: values for name, values in given.items()}, strict=False)


def _few(names: list[str]) -> str:
    return ", ".join(names[:_FEW]) + ", …" * (len(names) > _FEW)


def _plain_name(name: str) -> str:
    """Without what torch.compile puts before the names of a module's tensors."""
    return name.replace("_orig_mod.", "")

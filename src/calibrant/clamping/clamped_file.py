"""``save_clamped`` and ``load_clamped``: δ, the head and the summary of the fit in one safetensors file.

The tensors are ``delta``, those of the head's ``state_dict`` after ``head.``, and optionally those of the network's
after ``network.``. The metadata has one JSON document under the key ``calibrant``: the format's version, the structure
of the head, the range of the inputs, the summary of the fit, and a fingerprint of the network it was fitted for. A
digest of all of it is checked on reading. Nothing in a file is executed.
"""

import os
from math import isfinite
from typing import Any, Never, final

import torch
from torch import Tensor, nn

from calibrant.checks import check_bool
from calibrant.clamping.inputs import InputSpace
from calibrant.clamping.model import ClampedModel, ClampingSummary
from calibrant.errors import InputError, reading
from calibrant.files.map_file import Container, check_map, describe, describe_fit, read_fit, rebuild
from calibrant.files.source import existing_file
from calibrant.inference import network_digest, network_state, put_weights, state_digest
from calibrant.maps import Map

__all__ = ["load_clamped", "save_clamped"]

_CONTAINER = Container("calibrant.clamped", 3, "a clamped model", "Make one with save_clamped.")
_SHOWN = 19  # characters of a fingerprint


def save_clamped(clamped: ClampedModel, path: str | os.PathLike[str], *, with_weights: bool = False) -> None:
    """Write a clamped model to a ``.safetensors`` file that :func:`load_clamped` reads; whole or not at all.

    Args:
        clamped: A fitted clamped model.
        path: Path of the file; the folder must exist, and a file there is replaced.
        with_weights: Whether to store the network's own weights, too. Without them the file is as small as an input,
            and fits only a network with exactly these weights.

    Raises:
        FileError: If the path does not end in ``.safetensors``, or cannot be written.
        InputError: If the head is no map of ours, the network is missing, or its state is more than tensors.

    Example:
        >>> import tempfile
        >>> from calibrant.maps import Scale
        >>> network = nn.Linear(2, 3)
        >>> clamped = ClampedModel(network, torch.ones(2), Scale(torch.tensor(1.5), n_classes=3))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_clamped(clamped, f"{folder}/clamped.safetensors")
        ...     loaded = load_clamped(f"{folder}/clamped.safetensors", network)
        >>> torch.equal(loaded(torch.zeros(1, 2)), clamped(torch.zeros(1, 2)))
        True
    """
    _CONTAINER.check_path(path)
    if not isinstance(clamped, ClampedModel):
        raise InputError(f"only a ClampedModel can be saved; got {type(clamped).__name__}. Call fit first.")
    if isinstance(clamped.model, _Absent):
        raise InputError("a clamped model must have its network to be saved; this one was loaded without.")
    described = describe(clamped.head)
    check_map(clamped.head)
    document = {
        "head": described,
        "head_fit": describe_fit(clamped.head.summary),
        "space": None if clamped.space is None else clamped.space.settings(),
        "summary": None if clamped.summary is None else clamped.summary.as_dict(),
        "network": network_digest(clamped.model),
        "with_weights": with_weights,
    }
    tensors = {"delta": clamped.delta} | {f"head.{name}": values for name, values in clamped.head.state_dict().items()}
    if with_weights:
        others = [name for name, values in clamped.model.state_dict().items() if not isinstance(values, Tensor)]
        if others:
            raise InputError(
                f"a network whose weights are saved must have only tensors in its state_dict; {others[0]!r} is "
                "something else. Save it yourself, and the clamped model without weights."
            )
        tensors |= {f"network.{name}": values for name, values in network_state(clamped.model).items()}
    _CONTAINER.write(path, _to_json(document), tensors)


def load_clamped(path: str | os.PathLike[str], model: nn.Module | None = None) -> ClampedModel:
    """Load a clamped model around the network it was fitted for, on its device and in evaluation mode.

    Args:
        path: A file of :func:`save_clamped`.
        model: The network, which is not copied. If the file has its weights, they are loaded into it. Without one, the
            result has δ, the head and the summary, and refuses inputs.

    Raises:
        FileError: If the file is cut short or was altered, holds something else, or was written by a newer version.
        InputError: If the network is not the one it was fitted for; it is then unchanged.
    """
    file = existing_file(path, holding="a clamped model")
    with reading(file, "clamped model saved by calibrant"):
        document, tensors = _CONTAINER.read(file)
        document = _from_json(document)
        clamped, weights = _rebuilt(document, tensors)
        fitted_for = str(document["network"])
    if model is None:
        return clamped.eval()
    if not isinstance(model, nn.Module):
        raise InputError(f"model must be a torch.nn.Module; got {type(model).__name__}.")
    given = network_digest(model)
    if given != fitted_for and weights is None:
        raise InputError(
            f"{file} was fitted for another network: the weights are not those of the model given "
            f"({fitted_for[:_SHOWN]}… against {given[:_SHOWN]}…). Load its weights into the model first; cast it to "
            "another type, if at all, after this."
        )
    if given != fitted_for and weights is not None:
        try:
            put_weights(model, weights, casts=False)
        except InputError as error:
            raise InputError(
                f"{file} was fitted for another network: {error} Give a model built as that one was."
            ) from error
    device = next((values.device for values in network_state(model).values()), torch.device("cpu"))
    clamped.to(device).model = model
    return clamped.eval()


@final
class _Absent(nn.Module):
    """Placeholder of the network."""

    def forward(self, _inputs: Tensor) -> Never:
        raise InputError("this clamped model was loaded without its network; give it: load_clamped(path, model).")


def _rebuilt(document: dict[str, Any], tensors: dict[str, Tensor]) -> tuple[ClampedModel, dict[str, Tensor] | None]:
    """Return the clamped model without its network, and the network's weights if the file has them."""
    weights = {name.removeprefix("network."): t for name, t in tensors.items() if name.startswith("network.")}
    numbers = {name.removeprefix("head."): t for name, t in tensors.items() if name.startswith("head.")}
    check_bool(document["with_weights"], "with_weights")
    if document["with_weights"] and state_digest(weights) != document["network"]:
        raise InputError("the weights in it must be those that were saved; they are others.")
    if len(weights) + len(numbers) + 1 != len(tensors):
        raise InputError("the numbers must be those of delta, head and network; got others.")
    head = rebuild(document["head"], numbers)
    if not isinstance(head, Map):
        raise InputError("the head must be a map of logits alone; it needs features.")
    head.summary = read_fit(document["head_fit"])
    space = None if document["space"] is None else InputSpace.from_settings(document["space"])
    summary = None if document["summary"] is None else ClampingSummary.from_dict(document["summary"])
    clamped = ClampedModel(_Absent(), tensors["delta"], head, space=space, summary=summary)
    return clamped, weights if document["with_weights"] else None


def _to_json(value: Any) -> Any:
    """Replace numbers that JSON cannot represent, such as infinity."""
    if isinstance(value, dict):
        return {name: _to_json(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_to_json(item) for item in value]
    return {"float": str(value)} if isinstance(value, float) and not isfinite(value) else value


def _from_json(value: Any) -> Any:
    """Undo :func:`_to_json`."""
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    is_number = len(value) == 1 and value.get("float") in ("inf", "-inf", "nan")
    return float(value["float"]) if is_number else {name: _from_json(item) for name, item in value.items()}

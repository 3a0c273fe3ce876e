"""``save_clamped`` and ``load_clamped``: δ and the head in one safetensors file, with how they came about.

The numbers are tensors: ``delta``, those of the head's ``state_dict`` after ``head.``, and, if asked for, those of the
network's after ``network.``. The metadata has one JSON document under the key ``calibrant``: the format's version, what
the head is made of, what the inputs are, the summary of the fit, and a fingerprint of the network that all this was
fitted for. A digest of all of it is checked on reading. Nothing in a file is executed.
"""

import os
from math import isfinite
from typing import Any, Never, final

import torch
from torch import Tensor, nn

from calibrant.checks import check_bool
from calibrant.clamping.clamped.clamped_model import ClampedModel
from calibrant.clamping.clamped.summary import ClampingSummary
from calibrant.clamping.network.input_space import InputSpace
from calibrant.errors import InputError, reading
from calibrant.files.container import Container
from calibrant.files.map_file import check_map, describe, describe_fit, read_fit, rebuild
from calibrant.files.source import existing_file
from calibrant.inference import network_digest, network_state, put_weights, state_digest
from calibrant.maps import Map

__all__ = ["load_clamped", "save_clamped"]

_CONTAINER = Container("calibrant.clamped", 3, "a clamped model", "Make one with save_clamped.")
_SHOWN = 19  # characters of a fingerprint


def save_clamped(clamped: ClampedModel, path: str | os.PathLike[str], *, with_weights: bool = False) -> None:
    """Write a clamped model to a ``.safetensors`` file that :func:`load_clamped` reads back; whole or not at all.

    Args:
        clamped: What a fit gave.
        path: Where to; the folder must exist, and a file there is replaced.
        with_weights: Whether the network's own weights go into the file, too. Without them it is as small as an
            input, and fits only the network whose weights are these to the bit.

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
        raise InputError(f"what is saved must be a ClampedModel; got {type(clamped).__name__}. Call fit first.")
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
        tensors |= {f"network.{name}": values for name, values in _whole_state(clamped.model).items()}
    _CONTAINER.write(path, _told(document), tensors)


def load_clamped(path: str | os.PathLike[str], model: nn.Module | None = None) -> ClampedModel:
    """The clamped model in a file, around the network it was fitted for, on its device and in evaluation mode.

    Args:
        path: Left by :func:`save_clamped`.
        model: The network, which is not copied. If the file has its weights, they are loaded into it. Without one, what
            comes back shows δ, the head and the summary, and refuses inputs.

    Raises:
        FileError: If the file is cut short or was altered, holds something else, or was written by a newer version.
        InputError: If the network is not the one it was fitted for; it is then left as it was.
    """
    file = existing_file(path, holding="a clamped model")
    with reading(file, "clamped model saved by calibrant"):
        document, tensors = _CONTAINER.read(file)
        document = _heard(document)
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
    """Stands where the network would."""

    def forward(self, _inputs: Tensor) -> Never:
        raise InputError("this clamped model was loaded without its network; give it: load_clamped(path, model).")


def _whole_state(model: nn.Module) -> dict[str, Tensor]:
    others = [name for name, values in model.state_dict().items() if not isinstance(values, Tensor)]
    if others:
        raise InputError(
            f"a network whose weights are saved must have only tensors in its state_dict; {others[0]!r} is something "
            "else. Save it yourself, and the clamped model without weights."
        )
    return network_state(model)


def _rebuilt(document: dict[str, Any], tensors: dict[str, Tensor]) -> tuple[ClampedModel, dict[str, Tensor] | None]:
    """All but the network, and its weights if they are there."""
    weights = {name.removeprefix("network."): t for name, t in tensors.items() if name.startswith("network.")}
    numbers = {name.removeprefix("head."): t for name, t in tensors.items() if name.startswith("head.")}
    check_bool(document["with_weights"], "with_weights")
    if document["with_weights"] and state_digest(weights) != document["network"]:
        raise InputError("the weights in it must be those that it says were saved; they are others.")
    if len(weights) + len(numbers) + 1 != len(tensors):
        raise InputError("the numbers must be those of delta, head and network; got others.")
    head = rebuild(document["head"], numbers)
    if not isinstance(head, Map):
        raise InputError("the head must be a map of logits alone; it looks at features.")
    head.summary = read_fit(document["head_fit"])
    space = None if document["space"] is None else InputSpace.from_settings(document["space"])
    summary = None if document["summary"] is None else ClampingSummary.from_dict(document["summary"])
    clamped = ClampedModel(_Absent(), tensors["delta"], head, space=space, summary=summary)
    return clamped, weights if document["with_weights"] else None


def _told(value: Any) -> Any:
    """For JSON, which knows no infinity."""
    if isinstance(value, dict):
        return {name: _told(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [_told(each) for each in value]
    return {"float": str(value)} if isinstance(value, float) and not isfinite(value) else value


def _heard(value: Any) -> Any:
    """The reverse."""
    if isinstance(value, list):
        return [_heard(each) for each in value]
    if not isinstance(value, dict):
        return value
    is_number = len(value) == 1 and value.get("float") in ("inf", "-inf", "nan")
    return float(value["float"]) if is_number else {name: _heard(each) for name, each in value.items()}

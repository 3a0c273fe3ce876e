"""``save_clamped`` and ``load_clamped``: δ and the head in one safetensors file, with how they came about.

The numbers are tensors: ``delta``, those of the head's ``state_dict`` after ``head.``, and, if asked for, those of the
network's after ``network.``. The metadata has one JSON document under the key ``calibrant``: the format's version, what
the head is made of, what the inputs are, the summary of the fit, and a fingerprint of the network that all this was
fitted for. Nothing in a file is executed.
"""

import hashlib
import json
import os
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any, Never, final

import torch
from safetensors import safe_open
from torch import Tensor, nn

from calibrant.bad_file import reading
from calibrant.clamping.clamped.clamped_model import ClampedModel
from calibrant.clamping.clamped.summary import ClampingSummary
from calibrant.clamping.network.input_space import InputSpace
from calibrant.errors import FileError, InputError
from calibrant.maps import Map
from calibrant.sources.atomic import atomic_path
from calibrant.sources.formats import existing_file
from calibrant.sources.map_tree import describe, describe_fit, read_fit, rebuild
from calibrant.sources.tensors import save_tensors

__all__ = ["load_clamped", "network_digest", "save_clamped"]

_KEY = "calibrant"
_NAME, _VERSION = "calibrant.clamped", 1
_ADVICE = "Make one with save_clamped."
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
    if not Path(path).name.lower().endswith(".safetensors"):
        raise FileError(f"the name of a clamped model's file must end in .safetensors; got {os.fspath(path)}.")
    if not isinstance(clamped, ClampedModel):
        raise InputError(f"what is saved must be a ClampedModel; got {type(clamped).__name__}. Call fit first.")
    if isinstance(clamped.model, _Absent):
        raise InputError("a clamped model must have its network to be saved; this one was loaded without.")
    document = {
        "format": f"{_NAME}/{_VERSION}",
        "calibrant": version("calibrant"),
        "head": describe(clamped.head),
        "head_fit": describe_fit(clamped.head.summary),
        "space": None if clamped.space is None else clamped.space.settings(),
        "summary": None if clamped.summary is None else clamped.summary.as_dict(),
        "network": network_digest(clamped.model),
        "with_weights": with_weights,
    }
    tensors = {"delta": clamped.delta} | {f"head.{name}": values for name, values in clamped.head.state_dict().items()}
    if with_weights:
        tensors |= {f"network.{name}": values for name, values in _state(clamped.model, whole=True).items()}
    # Copies, because the file format refuses tensors that share memory, as tied weights do.
    copied = {name: values.detach().cpu().contiguous().clone() for name, values in tensors.items()}
    text = json.dumps(_told(document), ensure_ascii=False, allow_nan=False)
    with atomic_path(path) as file:
        save_tensors(copied, file, {_KEY: text})


def load_clamped(path: str | os.PathLike[str], model: nn.Module | None = None) -> ClampedModel:
    """The clamped model in a file, around the network it was fitted for, on its device and in evaluation mode.

    Args:
        path: Left by :func:`save_clamped`.
        model: The network, which is not copied. If the file has its weights, they are loaded into it. Without one, what
            comes back shows δ, the head and the summary, and refuses inputs.

    Raises:
        FileError: If the file is cut short, holds something else, or was written by a newer version.
        InputError: If the network is not the one it was fitted for; it is then left as it was.
    """
    file = existing_file(path, holding="a clamped model")
    with reading(file, "clamped model saved by calibrant"):
        document, tensors = _contents(file)
        clamped, weights = _rebuilt(document, tensors)
        fitted_for = str(document["network"])
    if model is None:
        return clamped
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
        _load_weights(model, weights, file)
    device = next((values.device for values in _state(model).values()), torch.device("cpu"))
    clamped.to(device).model = model
    return clamped.eval()


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
    return _digest(_state(model))


@final
class _Absent(nn.Module):
    """Stands where the network would."""

    def forward(self, _inputs: Tensor) -> Never:
        raise InputError("this clamped model was loaded without its network; give it: load_clamped(path, model).")


def _state(model: nn.Module, *, whole: bool = False) -> dict[str, Tensor]:
    """The tensors of a network's ``state_dict`` in the order of their names, a compiled one's as they were before."""
    state = {_plain_name(name): values for name, values in model.state_dict().items()}
    others = [name for name, values in state.items() if not isinstance(values, Tensor)]
    if others and whole:
        raise InputError(
            f"a network whose weights are saved must have only tensors in its state_dict; {others[0]!r} is something "
            "else. Save it yourself, and the clamped model without weights."
        )
    return {name: state[name] for name in sorted(state) if name not in others}


def _digest(state: dict[str, Tensor]) -> str:
    taken = hashlib.sha256()
    for name in sorted(state):
        values = state[name].detach()
        taken.update(f"{name} {values.dtype} {tuple(values.shape)} ".encode())
        memory: Any = values.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        taken.update(memory)
    return f"sha256:{taken.hexdigest()}"


def _contents(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    with path.open("rb") as opened:
        if opened.read(9)[8:] != b"{":  # eight bytes of length, then JSON
            raise FileError(f"{path} must be a clamped model; it is no safetensors file. {_ADVICE}")
    with safe_open(str(path), framework="pt") as file:
        held = list(file.keys())
        text = (file.metadata() or {}).get(_KEY)
        if text is None:
            shown = ", ".join(map(repr, held[:5])) or "nothing"
            raise FileError(
                f"{path} must be a clamped model; it is a safetensors file of something else (found {shown}). {_ADVICE}"
            )
        document = json.loads(text, object_hook=_heard)
        _check_format(document, path)
        return document, {name: file.get_tensor(name).clone() for name in held}


def _check_format(document: dict[str, Any], path: Path) -> None:
    form, _, number = str(document["format"]).partition("/")
    if form != _NAME or not number.isdecimal():
        raise FileError(f"{path} must be a clamped model ({_NAME}); it says it is {document['format']!r}. {_ADVICE}")
    if int(number) > _VERSION:
        raise FileError(
            f"{path} was written by a newer calibrant ({document.get('calibrant')}): its format is {_NAME}/{number}, "
            f"and {version('calibrant')} reads up to {_NAME}/{_VERSION}. Update calibrant."
        )


def _rebuilt(document: dict[str, Any], tensors: dict[str, Tensor]) -> tuple[ClampedModel, dict[str, Tensor] | None]:
    """All but the network, and its weights if they are there."""
    weights = {name.removeprefix("network."): t for name, t in tensors.items() if name.startswith("network.")}
    numbers = {name.removeprefix("head."): t for name, t in tensors.items() if name.startswith("head.")}
    if document["with_weights"] and _digest(weights) != document["network"]:
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


def _load_weights(model: nn.Module, weights: dict[str, Tensor], path: Path) -> None:
    own, stored = ({(name, t.dtype, t.shape) for name, t in state.items()} for state in (_state(model), weights))
    if own != stored:
        odd = min(name for name, *_ in own ^ stored)
        raise InputError(
            f"{path} was fitted for another network: {odd!r} is not in both, or is of another type or shape. Give a "
            "model built as that one was."
        )
    named = {_plain_name(name): name for name in model.state_dict()}
    # Not strict, because the names were compared, and what else a state may hold is not in the file.
    model.load_state_dict({named[name]: values for name, values in weights.items()}, strict=False)


def _plain_name(name: str) -> str:
    """Without what torch.compile puts before the names of a module's tensors."""
    return name.replace("_orig_mod.", "")


def _told(value: Any) -> Any:
    """For JSON, which knows no infinity."""
    if isinstance(value, dict):
        return {name: _told(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [_told(each) for each in value]
    return {"float": str(value)} if isinstance(value, float) and not isfinite(value) else value


def _heard(value: dict[str, Any]) -> Any:
    """The reverse, of every JSON object."""
    return float(value["float"]) if len(value) == 1 and value.get("float") in ("inf", "-inf", "nan") else value

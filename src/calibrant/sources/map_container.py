"""The file around a map: safetensors, whose metadata has one JSON document under the key ``calibrant``."""

import json
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calibrant.errors import FileError, InputError
from calibrant.sources.atomic import atomic_path
from calibrant.sources.tensors import save_tensors

__all__ = ["FORMAT", "check_map_path", "read_container", "write_container"]

_KEY = "calibrant"
_NAME, _VERSION = "calibrant.map", 1
FORMAT = f"{_NAME}/{_VERSION}"

_TYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_ADVICE = "Make one with calibrant fit, or with save_map."


def write_container(path: str | os.PathLike[str], document: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write both into one file, whole or not at all."""
    with atomic_path(path) as file:
        save_tensors(tensors, file, {_KEY: json.dumps(document, ensure_ascii=False)})


def check_map_path(path: str | os.PathLike[str]) -> None:
    """A name that says what the file will be.

    Raises:
        FileError: If it does not end in ``.safetensors``.
    """
    if not Path(path).name.lower().endswith(".safetensors"):
        raise FileError(f"the name of a map's file must end in .safetensors; got {os.fspath(path)}.")


def read_container(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The document and the numbers.

    Raises:
        FileError: If the file is none of ours, or of a newer version.
        InputError: If a number is of another type, or is none.
    """
    from safetensors import safe_open

    with path.open("rb") as opened:
        if opened.read(9)[8:] != b"{":  # eight bytes of length, then JSON
            raise FileError(f"{path} must be a map saved by calibrant; it is no safetensors file. {_ADVICE}")
    with safe_open(str(path), framework="pt") as file:
        held = list(file.keys())
        text = (file.metadata() or {}).get(_KEY)
        if text is None:
            shown = ", ".join(map(repr, held[:5])) or "nothing"
            raise FileError(
                f"{path} must be a map saved by calibrant; it is a safetensors file of something else (found {shown}). "
                f"{_ADVICE}"
            )
        document = json.loads(text)
        _check_format(document, path)
        tensors = {name: file.get_tensor(name).clone() for name in held}
    for name, tensor in tensors.items():
        if tensor.dtype not in _TYPES or tensor.isnan().any():
            raise InputError(f"the numbers {name!r} must be real and not NaN; got {tensor.dtype}, or NaN among them.")
    return document, tensors


def _check_format(document: dict[str, Any], path: Path) -> None:
    form, _, number = str(document["format"]).partition("/")
    if form != _NAME or not number.isdecimal():
        raise FileError(f"{path} must be a map ({_NAME}/{_VERSION}); it says it is {document['format']!r}. {_ADVICE}")
    if int(number) > _VERSION:
        raise FileError(
            f"{path} was written by a newer calibrant ({document.get('calibrant')}): its format is {_NAME}/{number}, "
            f"and {version('calibrant')} reads up to {_NAME}/{_VERSION}. Update calibrant."
        )

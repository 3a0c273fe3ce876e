"""Reading archives, files of named arrays: NumPy's ``.npz``, ``.safetensors``, and torch's ``.pt`` without its pickle.

Nothing here can run code from a file. Only the arrays that are needed are read, each of them once.
"""

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from pickle import UnpicklingError  # the error only: nothing is unpickled here
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calibrant.bad_file import reading
from calibrant.errors import FileError, InputError
from calibrant.sources.content import Column, Content, as_class_names, as_column

__all__ = ["open_mapping", "open_npz", "open_safetensors", "open_torch"]

_CLASS_NAMES = "class_names"


def open_mapping(arrays: Mapping[str, Any], *, where: Path | None = None) -> Content:
    """A mapping of names to arrays or tensors; what is under ``class_names`` names the classes."""

    def read(wanted: Sequence[str], words: str | None) -> dict[str, Column]:
        del words  # text is text here, whoever asks
        return {name: as_column(arrays[name], name) for name in wanted}

    def shape(name: str) -> tuple[int | None, ...]:
        return tuple(getattr(arrays[name], "shape", (None,)))

    names = tuple(name for name in arrays if isinstance(name, str) and name != _CLASS_NAMES)
    return Content(where, "array", names, as_class_names(arrays.get(_CLASS_NAMES)), read, shape)


def open_npz(path: Path) -> Content:
    """NumPy's archive. Arrays of Python objects are refused: reading one would run code from the file."""
    form = "NumPy archive (.npz)"

    def read(wanted: Sequence[str], words: str | None) -> dict[str, Column]:
        del words
        with reading(path, form), path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: as_column(_member(archive, path, name), name) for name in wanted}

    def shape(name: str) -> tuple[int | None, ...]:
        try:
            column = read((name,), None)[name]
        except InputError:  # asked for a message about something else
            return (None,)
        return tuple(column.shape) if isinstance(column, Tensor) else (len(column.codes),)

    with reading(path, form), path.open("rb") as file:
        # NumPy takes anything that does not start like a zip for a pickle, and says so; it is simply no archive.
        if file.read(2) != b"PK":
            raise FileError(f"{path} must be a {form}; it is something else. Make one with numpy.savez.")
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            names = tuple(name for name in archive.files if name != _CLASS_NAMES)
            listed = _member(archive, path, _CLASS_NAMES) if _CLASS_NAMES in archive.files else None
        class_names = as_class_names(listed)
    return Content(path, "array", names, class_names, read, shape)


def _member(archive: Any, path: Path, name: str) -> Any:
    try:
        return archive[name]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise FileError(
            f"{path}: {name!r} must be an array of numbers or text; it holds Python objects (a pickle), which could "
            "run code when read. Save it again with a plain dtype, for example numpy.asarray(values, dtype='float32')."
        ) from error


def open_safetensors(path: Path) -> Content:
    """Safetensors; class names are a JSON list under ``class_names`` of its metadata."""
    from safetensors import safe_open

    form = "safetensors file"

    def read(wanted: Sequence[str], words: str | None) -> dict[str, Column]:
        del words
        with reading(path, form), safe_open(str(path), framework="pt") as file:
            # What it gives is the file's own memory, which changes if somebody writes to the file.
            return {name: file.get_tensor(name).clone() for name in wanted}

    with reading(path, form), safe_open(str(path), framework="pt") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118  # no mapping
        listed = (file.metadata() or {}).get(_CLASS_NAMES)
        class_names = as_class_names(None if listed is None else json.loads(listed))
    return Content(path, "array", tuple(shapes), class_names, read, lambda name: shapes[name])


def open_torch(path: Path) -> Content:
    """A dict of tensors saved by ``torch.save``; anything else in the pickle is refused before it can run."""
    with reading(path, "file of tensors (.pt)"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about how the file was pickled: it is read or refused
        try:
            held = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            # Torch's own advice is to read the file without this protection; an odd operand is merely a broken file.
            if not isinstance(error, UnpicklingError) or "operand" in str(error):
                raise
            raise FileError(
                f"{path} must hold tensors only; it holds other Python objects, which could run code when read. "
                f"{_TORCH_ADVICE}"
            ) from error
        if not isinstance(held, dict):
            raise FileError(f"{path} must hold a dict of tensors; it holds a {type(held).__name__}. {_TORCH_ADVICE}")
        kept = {name: value for name, value in held.items() if isinstance(value, Tensor) or name == _CLASS_NAMES}
        return open_mapping(kept, where=path)


_TORCH_ADVICE = "Save it with torch.save({'logits': logits, 'labels': labels}, path)."

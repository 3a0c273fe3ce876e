"""``save_map`` and ``load_map``: a fitted map in one safetensors file, with how it came about.

The numbers are tensors under the names of the map's ``state_dict``. The metadata has one JSON document under the key
``calibrant``: the format's version, what the map is made of, the method and its options, the rows it saw, whether
they were logits or probabilities (``inputs``; earlier files lack it), their fingerprint,
the certificate of its optimum, the classes' names, and the numbers on those rows before and after. A digest of all of
it is checked on reading, as is the range of every number. Nothing in a file is executed.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from calibrant.bad_file import reading
from calibrant.errors import FileError, InputError
from calibrant.files.container import Container
from calibrant.files.content import as_class_names
from calibrant.files.fitting_data import about_rows
from calibrant.files.formats import existing_file
from calibrant.files.map_tree import AnyMap, check_map, describe, describe_fit, read_fit, rebuild
from calibrant.maps import Map, ProximityMap
from calibrant.predictions import Predictions

__all__ = ["MAP_CONTAINER", "MapFile", "load_feature_map", "load_map", "read_map_file", "save_map"]

MAP_CONTAINER = Container("calibrant.map", 2, "a map", "Make one with calibrant fit, or with save_map.")


@final
@dataclass(frozen=True, eq=False)
class MapFile:
    """All that a file of a map holds.

    Args:
        map: The map, on the CPU.
        class_names: The names of the classes it was fitted for, if they were known.
        document: How it came about; see the module's text.
    """

    map: AnyMap
    class_names: tuple[str, ...] | None
    document: dict[str, Any]


def save_map(
    fitted: AnyMap,
    path: str | os.PathLike[str],
    *,
    fitted_on: Predictions | None = None,
    features: object = None,
    class_names: Sequence[str] | None = None,
) -> None:
    """Write a map to a ``.safetensors`` file that :func:`load_map` reads back; whole or not at all.

    Args:
        fitted: One of the maps of :mod:`calibrant.maps`.
        path: Where to; the folder must exist, and a file there is replaced.
        fitted_on: The rows it was fitted on. Their fingerprint goes into the file, and whether they were logits or
            probabilities, and their log-loss, Brier score, calibration error and accuracy before and after: on rows
            that the map has seen, so they flatter it.
        features: Those of these rows, for a map that looks at features.
        class_names: One name a class; those of ``fitted_on`` if not given.

    Raises:
        FileError: If the path does not end in ``.safetensors``, or cannot be written.
        InputError: If the rows, features or names are not the map's, or not those that it was fitted on.

    Example:
        >>> import tempfile
        >>> import torch
        >>> from calibrant.maps import Scale
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_map(Scale(torch.tensor(2.0), n_classes=3), f"{folder}/map.safetensors")
        ...     load_map(f"{folder}/map.safetensors")
        Scale(classes=3, temperature=2)
    """
    MAP_CONTAINER.check_path(path)
    if not isinstance(fitted, Map | ProximityMap):
        raise InputError(f"what is saved must be a fitted map; got {type(fitted).__name__}. Call fit first.")
    names = class_names if class_names is not None or fitted_on is None else fitted_on.class_names
    if names is not None and (isinstance(names, str) or len(names) != fitted.n_classes):
        raise InputError(f"class_names must name all {fitted.n_classes} classes; got {names!r}.")
    document = {
        "map": _checked(fitted),
        **describe_fit(fitted.summary),
        "class_names": None if names is None else [str(name) for name in names],
        **about_rows(fitted, fitted_on, features),
    }
    MAP_CONTAINER.write(path, document, fitted.state_dict())


def _checked(fitted: AnyMap) -> dict[str, Any]:
    """What a map is, if it can be read back."""
    described = describe(fitted)
    check_map(fitted)
    return described


def load_map(path: str | os.PathLike[str]) -> Map:
    """The map in a file, on the CPU, with the summary of its fit.

    Give it what it was fitted on: some maps (``vector``, ``matrix``, ``ms_odir``) answer logits otherwise than the
    logarithms of the same probabilities. :func:`read_map_file` tells which it was, ``document.get("inputs")``.

    Raises:
        FileError: If the file is cut short or was altered, is no map of ours, was written by a newer version, or holds
            a map that looks at features (:func:`load_feature_map`); the message says which.
    """
    found = read_map_file(path).map
    if isinstance(found, ProximityMap):
        raise FileError(f"{os.fspath(path)} holds a map that looks at features; read it with load_feature_map.")
    return found


def load_feature_map(path: str | os.PathLike[str]) -> ProximityMap:
    """The map that looks at features in a file, as :func:`load_map`.

    Raises:
        FileError: As :func:`load_map`, and if the map in the file does not look at features.
    """
    found = read_map_file(path).map
    if isinstance(found, Map):
        raise FileError(f"{os.fspath(path)} holds a map that looks at logits only; read it with load_map.")
    return found


def read_map_file(path: str | os.PathLike[str]) -> MapFile:
    """The map in a file, the names of its classes, and the document about it.

    Raises:
        FileError: If the file is cut short or was altered, is no map of ours, or was written by a newer version.
    """
    file = existing_file(path, holding="a map")
    with reading(file, "map saved by calibrant"):
        document, tensors = MAP_CONTAINER.read(file)
        made = rebuild(document["map"], tensors)
        made.summary = read_fit(document)
        names = as_class_names(document["class_names"])
        if names is not None and len(names) != made.n_classes:
            raise InputError(f"class_names must name all {made.n_classes} classes; got {len(names)} names.")
        return MapFile(made, names, document)

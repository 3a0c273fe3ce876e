"""``load_features``: the features behind predictions, from an archive."""

import os
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from calibrant.errors import FileError, InputError, UnknownNameError
from calibrant.files.archive import open_npz, open_safetensors
from calibrant.files.content import Content
from calibrant.files.formats import existing_file
from calibrant.files.missing import shown
from calibrant.numerics.neighbours import as_features

__all__ = ["load_features"]

_OPENERS: dict[str, Callable[[Path], Content]] = {".npz": open_npz, ".safetensors": open_safetensors}


def load_features(path: str | os.PathLike[str], *, name: str = "features", rows: int | None = None) -> Tensor:
    """Read the features that predictions were made from, one row a prediction.

    They can lie in the archive of the predictions themselves, or in one of their own. Nothing in the file is run.

    Args:
        path: A ``.npz`` or ``.safetensors`` file.
        name: Of the array in it.
        rows: How many there must be, ``len(predictions)``; not looked at unless given.

    Returns:
        Shape (n, d), in the type they were saved in.

    Raises:
        FileError: If the file cannot be read, or the array is not a matrix of finite numbers with so many rows.
        UnknownNameError: If there is no array of that name.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(f"{folder}/test.npz", features=np.ones((3, 2), dtype=np.float32))
        ...     load_features(f"{folder}/test.npz", rows=3).shape
        torch.Size([3, 2])
    """
    file = existing_file(path, holding="features")
    suffix = file.suffix.lower()
    if suffix not in _OPENERS:
        raise FileError(
            f"a file of features must end in {' or '.join(_OPENERS)}; {file} ends in {suffix!r}. "
            f"Save it with numpy.savez(path, {name}=array)."
        )
    content = _OPENERS[suffix](file)
    if name not in content.names:
        raise UnknownNameError(
            f"{file} must have an array {name!r}; found {shown(content)}. Say which one is meant: name=NAME."
        )
    column = content.read((name,), None)[name]
    if not isinstance(column, Tensor):
        raise FileError(f"{file}: {name!r} must hold numbers; it holds text.")
    try:
        return as_features(column, rows=rows, name=repr(name))
    except InputError as error:
        raise FileError(f"{file}: {error}") from error

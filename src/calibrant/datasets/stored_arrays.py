"""Arrays from NumPy's files, ``.npy`` and ``.npz``, by readers that cannot run code from them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from calibrant.bad_file import reading
from calibrant.errors import FileError

__all__ = ["read_npy", "read_npz"]


def read_npy(path: Path) -> np.ndarray:
    """The array of a ``.npy`` file.

    Raises:
        FileError: If there is no such file, or it is something else, damaged, or holds Python objects.
    """
    form = "NumPy array (.npy)"
    with reading(path, form), _opened(path, b"\x93NUMPY", form, "numpy.save") as file, _without_objects(str(path)):
        return np.load(file, allow_pickle=False)


def read_npz(path: Path, choose: Callable[[Sequence[str]], Sequence[str]]) -> list[np.ndarray]:
    """Some arrays of a ``.npz`` file; the others are not looked at.

    Args:
        path: The file.
        choose: Takes the names of all that it holds, and gives those that are wanted.

    Raises:
        FileError: If there is no such file, or it is something else, damaged, or holds Python objects there.
    """
    form = "NumPy archive (.npz)"
    with (
        reading(path, form),
        _opened(path, b"PK", form, "numpy.savez") as file,
        np.load(file, allow_pickle=False) as archive,
    ):
        held = []
        for name in choose(archive.files):
            with _without_objects(f"{path}: {name!r}"):
                held.append(archive[name])
        return held


def _opened(path: Path, start: bytes, form: str, maker: str) -> BinaryIO:
    """The file at its beginning; NumPy takes one that starts like nothing it knows for a pickle, and says so."""
    if not path.is_file():
        what = "it is a folder" if path.is_dir() else f"there is none. Seen from the folder {Path.cwd()}"
        raise FileError(f"{path} must be an existing file; {what}.")
    file = path.open("rb")
    if file.read(len(start)) != start:
        file.close()
        raise FileError(f"{path} must be a {form}; it is something else. Make one with {maker}.")
    file.seek(0)
    return file


@contextmanager
def _without_objects(where: str) -> Iterator[None]:
    """Say what is wrong with an array of Python objects, which NumPy refuses here with advice to allow it."""
    try:
        yield
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise FileError(
            f"{where} must be an array of numbers; it holds Python objects (a pickle), which could run code when read. "
            "Save it again with a plain dtype, for example numpy.asarray(values, dtype='uint8')."
        ) from error

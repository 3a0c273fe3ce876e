"""Read NumPy's files, ``.npy`` and ``.npz``, without running code in them."""

import math
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, final

import numpy as np

from calibrant.errors import FileError, check_expansion, reading


@final
class NumpyArchive:
    """An open ``.npz`` file. No code in it is run, and no array larger than the stored data is allocated."""

    def __init__(self, path: Path, archive: Any) -> None:
        self.names: tuple[str, ...] = tuple(archive.files)
        self._path, self._archive = path, archive

    def shape(self, name: str) -> tuple[int | None, ...]:
        """Return the shape of an array from its header alone; ``(None,)`` if it is not plain numbers or text."""
        with self._archive.zip.open(self._stored(name)) as member:
            shape, kind = _npy_header(member)
        return (None,) if kind is None else shape

    def read(self, names: Iterable[str]) -> list[Any]:
        """Return some arrays; their sizes are checked before the first is unpacked."""
        wanted = list(names)
        check_expansion(self._path, sum(self._stored(name).file_size for name in wanted))
        arrays = []
        for name in wanted:
            stored = self._stored(name)
            with self._archive.zip.open(stored) as member:
                arrays.append(_plain_array(member, f"{self._path}: {name!r}", stored.file_size))
        return arrays

    def open(self, name: str) -> IO[bytes]:
        """Open an array to read it in parts; its size is checked."""
        check_expansion(self._path, self._stored(name).file_size, held=False)
        members: zipfile.ZipFile = self._archive.zip
        return members.open(self._stored(name))

    def _stored(self, name: str) -> zipfile.ZipInfo:
        """Return the directory entry of an array; more than its stated size is never unpacked."""
        members: zipfile.ZipFile = self._archive.zip
        return members.getinfo(name if name in members.NameToInfo else f"{name}.npy")


@contextmanager
def numpy_archive(path: Path) -> Iterator[NumpyArchive]:
    """Open a ``.npz`` file; any error in the block becomes a FileError that names it."""
    with (
        _numpy_file(path, b"PK", "NumPy archive (.npz)", "numpy.savez") as file,
        np.load(file, allow_pickle=False) as archive,
    ):
        yield NumpyArchive(path, archive)


def read_npy(path: Path) -> Any:
    """Return the array of a ``.npy`` file; a FileError if it is something else, damaged, or holds Python objects."""
    with _numpy_file(path, b"\x93NUMPY", "NumPy array (.npy)", "numpy.save") as file:
        return _plain_array(file, str(path), path.stat().st_size)


def npy_shape(path: Path) -> tuple[int | None, ...]:
    """Return the shape of the array of a ``.npy`` file from its header alone."""
    with _numpy_file(path, b"\x93NUMPY", "NumPy array (.npy)", "numpy.save") as file:
        return _npy_header(file)[0]


def npy_rows(file: IO[bytes], rows: int) -> Iterator[Any] | None:
    """Return the array in an open file some rows at a time; None if they are Python objects, or stored by columns."""
    if np.lib.format.read_magic(file) != (1, 0):
        return None
    shape, by_column, kind = np.lib.format.read_array_header_1_0(file)
    if kind.hasobject or not shape or (by_column and len(shape) > 1):
        return None

    def parts() -> Iterator[Any]:
        for left in range(shape[0], 0, -rows):
            part = (min(rows, left), *shape[1:])
            wanted = math.prod(part) * kind.itemsize
            held = bytearray(file.read(wanted))
            if len(held) < wanted or (left <= rows and file.read(1)):  # at the end, the checksum is verified
                raise ValueError("an array has another length than its header says")
            yield np.frombuffer(held, kind).reshape(part)

    return parts()


@contextmanager
def _numpy_file(path: Path, start: bytes, form: str, maker: str) -> Iterator[IO[bytes]]:
    with reading(path, form), path.open("rb") as file:
        # NumPy assumes that a file of unknown type is a pickle, and its message says so.
        if file.read(len(start)) != start:
            raise FileError(f"{path} must be a {form}; it is something else. Make one with {maker}.")
        file.seek(0)
        yield file


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any] | None]:
    """Return the shape and type of an array; no type if it holds Python objects or is of a newer version."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, _, kind = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, _, kind = np.lib.format.read_array_header_2_0(file)
    else:
        return (), None
    return tuple(map(int, shape)), None if kind.hasobject else kind


def _plain_array(file: IO[bytes], where: str, stored: int) -> Any:
    shape, kind = _npy_header(file)
    # An array as large as its header says is allocated before it is read.
    if kind is not None and math.prod(shape) * kind.itemsize > stored:
        raise FileError(f"{where} must be a whole NumPy array; it is smaller than its header says, {kind} {shape}.")
    file.seek(0)
    try:
        return np.lib.format.read_array(file, allow_pickle=False)
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise FileError(
            f"{where} must be an array of numbers or text; it holds Python objects (a pickle), which could run code "
            "when read. Save it again with a plain dtype, for example numpy.asarray(values, dtype='float32')."
        ) from error

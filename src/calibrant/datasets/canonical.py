"""Finding a data set's files: in the folder, in its usual sub-folder, compressed beside it, or inside the archive.

Publishers give out an archive; people unpack it or not, and put the files one folder higher or not. All of these are
found here, so that a reader only says which files it needs and gets them as open streams.
"""

import bz2
import gzip
import io
import lzma
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast, final

import numpy as np

from calibrant.bad_file import reading
from calibrant.datasets.reader import DatasetReader
from calibrant.errors import FileError

__all__ = ["Layout", "Member", "Place", "find_file", "find_files", "missing_files", "open_file", "read_to_end"]

_ARCHIVE_ENDINGS = (".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar")
_COMPRESSED: Mapping[str, tuple[str, Callable[..., Any]]] = {
    ".gz": ("gzip file", gzip.open),
    ".tgz": ("gzip file", gzip.open),
    ".xz": ("xz file", lzma.open),
    ".bz2": ("bzip2 file", bz2.open),
}
_BLOCK = 1 << 20


@final
@dataclass(frozen=True)
class Layout:
    """One way in which a data set's files may lie.

    Args:
        files: The names that are needed, all of them.
        folders: Sub-folders that may hold them, beside the folder itself.
        archive: The tar archive that may hold them, without its ending.
    """

    files: tuple[str, ...]
    folders: tuple[str, ...] = ()
    archive: str = ""

    def __str__(self) -> str:
        listed = " and ".join(filter(None, [", ".join(self.files[:-1]), self.files[-1]]))
        return listed + (f" (or {self.archive}.tar.gz)" if self.archive else "")


@final
@dataclass(frozen=True)
class Member:
    """A file of a layout, open for reading."""

    name: str  # as the layout calls it
    where: str  # for messages
    size: int  # bytes, uncompressed
    stream: BinaryIO

    def read(self, size: int = -1) -> bytes:
        """The next bytes, or all that are left.

        Raises:
            FileError: If the file is damaged.
        """
        with reading(self.where, "file"):
            return self.stream.read(size)

    def fill(self, array: np.ndarray) -> None:
        """Read the next bytes into an array of bytes.

        Raises:
            FileError: If the file is damaged, or ends before the array is full.
        """
        target = array.data.cast("B")
        filled = 0
        with reading(self.where, "file"):
            while filled < len(target):
                got = self.stream.readinto(target[filled:])  # type: ignore[attr-defined]  # all of these streams can
                if not got:
                    raise FileError(
                        f"{self.where} must go on for {len(target) - filled:,} more bytes; it ends there: it was cut "
                        "short. Download it again."
                    )
                filled += got


@final
@dataclass(frozen=True)
class Place:
    """Where the files of a layout were found: each by itself, or all in one archive."""

    layout: Layout
    paths: Mapping[str, Path]
    archive: Path | None = None

    def members(self) -> Iterator[Member]:
        """Every file once, open, in the order in which they are stored; use each before taking the next.

        Raises:
            FileError: If a file is damaged, or the archive lacks one.
        """
        return self._separate() if self.archive is None else self._archived(self.archive)

    def _separate(self) -> Iterator[Member]:
        for name, path in self.paths.items():
            with open_file(path) as stream:
                size = stream.seek(0, io.SEEK_END)
                stream.seek(0)
                yield Member(name, str(path), size, stream)

    def _archived(self, archive: Path) -> Iterator[Member]:
        wanted = {
            str(PurePosixPath(folder, name)): name for folder in ("", *self.layout.folders) for name in self.paths
        }
        left = dict.fromkeys(self.paths)
        # Read once from front to back: an archive is compressed as a whole. To its end, where the checksum is; and
        # uncompressed outside tarfile, which asks for no checksum and takes damage for the end.
        with open_file(archive) as unpacked, tarfile.open(fileobj=unpacked, mode="r|") as tar:
            for entry in tar:
                name = wanted.get(str(PurePosixPath(entry.name)))
                stream = tar.extractfile(entry) if name in left and entry.isfile() else None
                if name is not None and stream is not None:
                    del left[name]
                    yield Member(name, f"{archive}:{entry.name}", entry.size, cast("BinaryIO", stream))
            read_to_end(unpacked)
        if not left:
            return
        raise FileError(
            f"{archive} must hold {self.layout}; missing: {', '.join(left)}. Download it again: it may be another "
            "archive under this name."
        )


@contextmanager
def open_file(path: Path) -> Iterator[BinaryIO]:
    """A file's bytes, uncompressed where its ending says so; what goes wrong becomes a FileError that names it."""
    form, opener = _COMPRESSED.get(path.suffix, ("file", open))
    with reading(path, form), opener(path, "rb") as stream:
        yield cast("BinaryIO", stream)


def read_to_end(stream: BinaryIO) -> None:
    """Read what is left and throw it away: only at its end does a compressed file know that it is whole."""
    while stream.read(_BLOCK):
        pass


def find_files(reader: DatasetReader, folder: Path, layouts: Sequence[Layout]) -> Place:
    """The first of some layouts that is there: its files, or else its archive.

    Args:
        reader: Of the data set, for messages.
        folder: Where to look; or an archive, or one of the files.
        layouts: In order of preference.

    Raises:
        FileError: If none is complete; it says what is missing and where to get it.
    """
    folder = Path(folder)
    found = [_separately(folder.parent if folder.is_file() else folder, layout) for layout in layouts]
    for layout, paths in zip(layouts, found, strict=True):
        if len(paths) == len(layout.files) and (folder.is_dir() or folder in paths.values()):
            return Place(layout, paths)
    for layout in layouts:
        for ending in _ARCHIVE_ENDINGS if layout.archive else ():
            path = folder / f"{layout.archive}{ending}" if folder.is_dir() else folder
            if path.is_file() and path.name == f"{layout.archive}{ending}":
                return Place(layout, dict.fromkeys(layout.files, path), path)
    # Speak of the layout that the person has begun to put there.
    fullest = max(range(len(layouts)), key=lambda place: len(found[place]))
    lacking = [name for name in layouts[fullest].files if name not in found[fullest]]
    raise missing_files(reader, folder, " or ".join(map(str, layouts)), lacking)


def find_file(reader: DatasetReader, folder: Path, name: str, *, folders: Sequence[str] = ()) -> Path:
    """One file in a folder or in one of its sub-folders, as it is or with ``.gz`` after its name.

    Raises:
        FileError: If it is not there; it says where to get it.
    """
    place = find_files(reader, folder, [Layout((name,), tuple(folders))])
    return place.paths[name]


def missing_files(reader: DatasetReader, folder: Path, needed: str, lacking: Sequence[str]) -> FileError:
    """The error for files that are not there."""
    where = f"in {folder}" if folder.is_dir() else f"but {folder} is {_what(folder)}"
    missing = f"; missing: {', '.join(lacking)}" if folder.is_dir() and lacking else ""
    fetch = ", or let calibrant fetch them: calibrant.datasets.download(...) (--download)" if reader.remote else ""
    return FileError(f"{reader.name} needs {needed} {where}{missing}. Get them from {reader.homepage}{fetch}.")


def _what(path: Path) -> str:
    return "another file" if path.exists() else "not there"


def _separately(folder: Path, layout: Layout) -> dict[str, Path]:
    """The files of a layout that lie in the folder or, all of them, in one of its sub-folders."""
    fullest: dict[str, Path] = {}
    for place in (folder, *(folder / sub for sub in layout.folders)):
        candidates = {name: [place / name, place / f"{name}.gz"] for name in layout.files}
        paths = {name: next(filter(Path.is_file, both), None) for name, both in candidates.items()}
        here = {name: path for name, path in paths.items() if path is not None}
        fullest = max(fullest, here, key=len)
    return fullest

"""Unpacking an archive into a folder, and nowhere else.

An archive can name files outside the folder (``../``, ``/etc``) or links that lead there. Any such name is refused
before anything is written, and what is unpacked appears only when all of it is there.
"""

import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from calibrant.bad_file import reading
from calibrant.datasets.canonical import open_file, read_to_end
from calibrant.errors import FileError
from calibrant.temporary_folder import temporary_folder

__all__ = ["unpack"]


def unpack(archive: Path, folder: Path) -> list[Path]:
    """Unpack a ``.zip`` or a ``.tar`` (with any compression) into a folder.

    Args:
        archive: The file.
        folder: Where its content goes; it must exist.

    Returns:
        What now lies at the top of the folder.

    Raises:
        FileError: If the archive is damaged, a name leads out of the folder, it holds links or devices, or something
            of the same name is already there.
    """
    with reading(archive, "archive"), _opened(archive) as stored:
        entries = [entry for entry in stored if PurePosixPath(entry.name).parts]  # "./" is the folder itself
        tops = sorted({_inside(entry.name, archive).parts[0] for entry in entries})
        if present := [top for top in tops if (folder / top).exists()]:
            raise FileError(
                f"{folder} must not hold {present[0]} already, or unpacking {archive} would overwrite it. Remove "
                "it first, or use it as it is."
            )
        with temporary_folder(folder) as unfinished:
            for entry in entries:
                _write(entry, unfinished / _inside(entry.name, archive))
            return [(unfinished / top).rename(folder / top) for top in tops]


@dataclass(frozen=True)
class _Entry:
    """A file or a folder in an archive."""

    name: str
    content: Callable[[], IO[bytes] | None] | None  # None for a folder


@contextmanager
def _opened(archive: Path) -> Iterator[list[_Entry]]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as bundle:
            yield [_zipped(info, bundle, archive) for info in bundle.infolist()]
    else:
        # Uncompressed outside tarfile, which takes damage for the end.
        with open_file(archive) as unpacked, tarfile.open(fileobj=unpacked, mode="r:") as tar:
            entries = [_tarred(member, tar, archive) for member in tar]
            read_to_end(unpacked)
            yield entries


def _zipped(info: zipfile.ZipInfo, bundle: zipfile.ZipFile, archive: Path) -> _Entry:
    # The upper half of this field is the file's mode, where it was packed on Unix.
    if stat.S_ISLNK(info.external_attr >> 16):
        raise _refused(archive, info.filename, "is a link")
    return _Entry(info.filename, None if info.is_dir() else partial(bundle.open, info))


def _tarred(member: tarfile.TarInfo, tar: tarfile.TarFile, archive: Path) -> _Entry:
    if not (member.isfile() or member.isdir()):
        raise _refused(archive, member.name, "is a link or a device")
    return _Entry(member.name, None if member.isdir() else partial(tar.extractfile, member))


def _inside(name: str, archive: Path) -> PurePosixPath:
    """The name, if it stays in the folder on any system."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or PureWindowsPath(name).drive:
        raise _refused(archive, name, "leads out of the folder")
    return path


def _refused(archive: Path, name: str, reason: str) -> FileError:
    return FileError(
        f"{archive} must hold files that stay in their folder; {name!r} {reason}. Nothing was unpacked; get it from "
        "its publisher."
    )


def _write(entry: _Entry, target: Path) -> None:
    content = None if entry.content is None else entry.content()
    if content is None:
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with content, target.open("wb") as file:
        shutil.copyfileobj(content, file, 1 << 20)

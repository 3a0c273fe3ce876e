"""The publishers' files of a data set: download, digest, unpack and locate them."""

import bz2
import gzip
import hashlib
import io
import logging
import lzma
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any, BinaryIO, cast, final

import numpy as np

from calibrant.atomic import temporary_folder
from calibrant.datasets.dataset import DatasetReader, RemoteFile
from calibrant.errors import FileError, InputError, reading

__all__ = [
    "Layout",
    "Member",
    "Place",
    "check_digest",
    "check_file",
    "check_size",
    "content_digest",
    "download",
    "file_digest",
    "find_file",
    "find_files",
    "missing_files",
    "open_file",
    "read_to_end",
    "unpack",
]


def check_size(where: str, expected: int, got: int, *, holds: str = "") -> None:
    """A file has the bytes it must have.

    Args:
        where: The file.
        expected: Its bytes.
        got: Those it has.
        holds: What these bytes are, in words.
    """
    if got == expected:
        return
    reason = "it was cut short" if got < expected else "it is another file"
    words = f" ({holds})" if holds else ""
    raise FileError(
        f"{where} must have {expected:,} bytes{words}; got {got:,}: {reason}. Download it again, or, if it is your own "
        "file in the same layout, pass checked=False (--unchecked)."
    )


def check_digest(where: str, expected: str, got: str) -> None:
    """What was hashed is what the publisher gave out."""
    if got != expected:
        raise FileError(
            f"{where} must be the published data, {expected}; got {got}. Download it again, or, if it is your own data "
            "in the same layout, pass checked=False (--unchecked)."
        )


def check_file(path: Path, *, digest: str, size: int | None = None) -> None:
    """A file on disk has the published size and digest, ``sha256:...`` or ``md5:...``; read as a stream."""
    if size is not None:
        check_size(str(path), size, path.stat().st_size)
    check_digest(str(path), digest, file_digest(path, digest.partition(":")[0]))


def file_digest(path: Path, algorithm: str) -> str:
    """The digest of a file, ``algorithm:digits``, without holding it in memory."""
    with reading(path, "file"), path.open("rb") as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return f"{algorithm}:{digest.hexdigest()}"


def content_digest(*arrays: np.ndarray) -> str:
    """One sha256 over the bytes of some arrays: the same from every layout that holds the same numbers.

    Example:
        >>> content_digest(np.zeros(2, dtype=np.uint8)) == "sha256:" + hashlib.sha256(bytes(2)).hexdigest()
        True
    """
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return f"sha256:{digest.hexdigest()}"


def download(reader: DatasetReader, folder: Path) -> list[Path]:
    """Fetch the files of a data set into a folder, check them, and unpack those that must be.

    A file that is there and whole is not fetched again. A new one takes its name only when its digest is right, so a
    broken connection leaves nothing that looks like data. For data that come with the package there is nothing to do.

    Args:
        reader: Reader of the data set.
        folder: Where the files go; it is made if it is not there.

    Returns:
        The files, in the order of ``reader.remote``; none where the data come with the package.

    Raises:
        InputError: If the package that fetches (pooch) is not installed, or the data set has no stable address, or is a
            collection of which no part was chosen.
        FileError: If a file cannot be fetched, or what came is not what was published.

    Example:
        >>> from calibrant.datasets import DigitsReader
        >>> download(DigitsReader(), Path("data"))
        []
    """
    folder = Path(folder)
    if reader.is_embedded:
        return []
    if not reader.remote:
        raise InputError(
            f"{reader.name} cannot be fetched: {reader.why_no_remote}. By hand, its files are to be had from "
            f"{reader.homepage}; put them into {folder}."
        )
    pooch = _pooch()
    folder.mkdir(parents=True, exist_ok=True)
    return [_fetch(pooch, file, folder, reader) for file in reader.remote]


def _fetch(pooch: Any, file: RemoteFile, folder: Path, reader: DatasetReader) -> Path:
    path = folder / file.name
    if path.exists():
        # It may be half of a file, or a person's own: it is not for us to overwrite.
        if (got := file_digest(path, file.digest.partition(":")[0])) != file.digest:
            raise FileError(
                f"{path} must be the published file, {file.digest}, or not be there; got {got}. Move it away to fetch "
                "it again, or, if it is your own, do not ask for a download."
            )
    else:
        _retrieve(pooch, file, folder, reader)
    # An archive that must be unpacked makes a folder of its own name.
    if file.unpack and not (folder / path.stem).exists():
        unpack(path, folder)
    return path


def _retrieve(pooch: Any, file: RemoteFile, folder: Path, reader: DatasetReader) -> None:
    try:
        with _quiet(pooch):
            # It writes to a temporary file, and gives it its name once the digest is right.
            pooch.retrieve(file.url, known_hash=file.digest, fname=file.name, path=folder)
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0].rstrip(". ") or type(error).__name__
        raise FileError(
            f"{file.url} could not be fetched: {reason}. Try again later, or get {file.name} from {reader.homepage} by "
            f"hand and put it into {folder}."
        ) from error


def _pooch() -> Any:
    try:
        return import_module("pooch")
    except ImportError as error:
        raise InputError(
            "fetching data sets needs the package pooch, which is not installed. Run: pip install calibrant[download]"
        ) from error


@contextmanager
def _quiet(pooch: Any) -> Iterator[None]:
    """Keep pooch from printing while it works: that belongs to the command line."""
    logger: logging.Logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


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
        reader: Reader of the data set, for messages.
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
    fetch = (
        ", or let calibrant fetch them: calibrant.datasets.publisher_files(...) (--download)" if reader.remote else ""
    )
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

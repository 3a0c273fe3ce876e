"""The publishers' files of a data set: declare, download, locate, verify and read them."""

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
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, ClassVar, TypeAlias, cast, final

import numpy as np
import torch

from calibrant.atomic import temporary_folder
from calibrant.checks import stays_inside
from calibrant.datasets.dataset import Augmentation, Dataset, DatasetReader, PixelScale, RemoteFile, Samples
from calibrant.errors import FileError, InputError, check_expansion, reading
from calibrant.text import joined

# The end of a message about files that are not the published ones.
UNCHECKED = "Download it again, or, if it is your own data in the same layout, pass checked=False (--unchecked)."


def check_size(where: str, expected: int, got: int) -> None:
    """Check the number of bytes of a file."""
    if got != expected:
        reason = "it was cut short" if got < expected else "it is another file"
        raise FileError(f"{where} must have {expected:,} bytes; got {got:,}: {reason}. {UNCHECKED}")


def check_digest(where: str, expected: str, got: str) -> None:
    """Check a digest against the published one."""
    if got != expected:
        raise FileError(f"{where} must be the published data, {expected}; got {got}. {UNCHECKED}")


def check_file(path: Path, *, digest: str, size: int | None = None) -> None:
    """Check the size and the digest, ``sha256:...`` or ``md5:...``, of a file; it is read as a stream."""
    if size is not None:
        check_size(str(path), size, path.stat().st_size)
    check_digest(str(path), digest, file_digest(path, digest.partition(":")[0]))


def file_digest(path: Path, algorithm: str) -> str:
    """Return the digest of a file, ``algorithm:digits``, without holding it in memory."""
    with reading(path, "file"), path.open("rb") as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return f"{algorithm}:{digest.hexdigest()}"


def content_digest(*arrays: np.ndarray) -> str:
    """Return one sha256 over the bytes of some arrays: the same from every layout of the same numbers."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return f"sha256:{digest.hexdigest()}"


def download(reader: DatasetReader, folder: Path) -> list[Path]:
    """Download the files of a data set into a folder, check them, and unpack those that must be.

    A file that is there and whole is not downloaded again. A new one gets its name only when its digest is right, so a
    broken connection leaves nothing that looks like data.

    Returns:
        The files, in the order of ``reader.remote``; none for data shipped with the package.

    Raises:
        InputError: If pooch is not installed, or the data set has no stable address, or no part of it was chosen.
        FileError: If a file cannot be downloaded, or is not the published one.
    """
    folder = Path(folder)
    if reader.is_embedded:
        return []
    if not reader.remote:
        raise InputError(
            f"{reader.name} cannot be fetched: {reader.why_no_remote}. Put the files of {reader.homepage} into "
            f"{folder}."
        )
    try:
        pooch = import_module("pooch")
    except ImportError as error:
        raise InputError("fetching data sets needs the package pooch: pip install calibrant[download]") from error
    folder.mkdir(parents=True, exist_ok=True)
    for file in reader.remote:
        path = folder / file.name
        if not path.exists():
            _retrieve(pooch, file, folder, reader)
        # An existing file may be half of one, or the user's own: it is not overwritten.
        elif (got := file_digest(path, file.digest.partition(":")[0])) != file.digest:
            raise FileError(
                f"{path} must be the published file, {file.digest}, or not be there; got {got}. Move it away to fetch "
                "it again, or, if it is your own, leave the download out."
            )
        # An archive that must be unpacked makes a folder of its own name.
        if file.unpack and not (folder / path.stem).exists():
            unpack(path, folder)
    return [folder / file.name for file in reader.remote]


def _retrieve(pooch: Any, file: RemoteFile, folder: Path, reader: DatasetReader) -> None:
    logger: logging.Logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)  # printing belongs to the command line
    try:
        # It writes to a temporary file, and renames it once the digest is right.
        pooch.retrieve(file.url, known_hash=file.digest, fname=file.name, path=folder)
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0].rstrip(". ") or type(error).__name__
        raise FileError(
            f"{file.url} could not be fetched: {reason}. Try again later, or get {file.name} from {reader.homepage} by "
            f"hand and put it into {folder}."
        ) from error
    finally:
        logger.setLevel(level)


def unpack(archive: Path, folder: Path) -> list[Path]:
    """Unpack a ``.zip`` archive into an existing folder, whole or not at all; return the new entries of the folder.

    Links, names that lead out of the folder, and names that are already there are refused.
    """
    with reading(archive, "archive"), zipfile.ZipFile(archive) as bundle:
        entries = [entry for entry in bundle.infolist() if PurePosixPath(entry.filename).parts]  # "./" is the folder
        for entry in entries:
            # The upper half of this field is the file's mode, if it was packed on Unix.
            is_link = stat.S_ISLNK(entry.external_attr >> 16)
            if is_link or not stays_inside(entry.filename):
                raise FileError(
                    f"{archive} must hold files that stay in their folder; {entry.filename!r} "
                    f"{'is a link' if is_link else 'leads out of the folder'}. Nothing was unpacked; get it from its "
                    "publisher."
                )
        tops = sorted({PurePosixPath(entry.filename).parts[0] for entry in entries})
        if present := [top for top in tops if (folder / top).exists()]:
            raise FileError(
                f"{folder} must not hold {present[0]}, which unpacking {archive} would overwrite. Remove it, or use it."
            )
        with temporary_folder(folder) as unfinished:
            for entry in entries:
                target = unfinished / PurePosixPath(entry.filename)
                (target if entry.is_dir() else target.parent).mkdir(parents=True, exist_ok=True)
                if not entry.is_dir():
                    with bundle.open(entry) as content, target.open("wb") as file:
                        shutil.copyfileobj(content, file, _BLOCK)
            return [(unfinished / top).rename(folder / top) for top in tops]


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
class Member:
    """A file of a layout, open for reading."""

    name: str  # its name in the layout
    where: str  # for messages
    size: int  # bytes, uncompressed
    stream: BinaryIO

    def read(self) -> bytes:
        """Return the remaining bytes."""
        with reading(self.where, "file"):
            return self.stream.read()

    def fill(self, array: np.ndarray) -> None:
        """Read the next bytes into an array of bytes, which must be filled."""
        target = array.data.cast("B")
        filled = 0
        with reading(self.where, "file"):
            while filled < len(target):
                got = self.stream.readinto(target[filled:])  # type: ignore[attr-defined]  # all of these streams can
                if not got:
                    raise FileError(
                        f"{self.where} must have {len(target) - filled:,} more bytes; it ends before: it was cut "
                        "short. Download it again."
                    )
                filled += got


# Content of one file: "images", (n, c, h, w) uint8, and "labels", (n,) of an integer type. Some publishers keep them in
# two files.
ImageArrays: TypeAlias = dict[str, np.ndarray]


@final
@dataclass(frozen=True)
class FileLayout:
    """A layout of a data set's files."""

    files: tuple[str, ...]  # names, all needed
    folders: tuple[str, ...] = ()  # sub-folders that may hold them, beside the folder itself
    archive: str = ""  # name, without its ending, of the tar archive that may hold them
    decode: Callable[[Member], ImageArrays] | None = None  # reads one file, for PublishedImages
    n_test: int = 1  # how many of the files, at the end, are the test part
    sizes: tuple[int, ...] = ()  # published bytes of each file, uncompressed, if they are checked before it is read

    def __str__(self) -> str:
        return joined(self.files) + (f" (or {self.archive}.tar.gz)" if self.archive else "")


@final
@dataclass(frozen=True)
class FoundFiles:
    """The files of a layout as they were found: one by one, or all in one archive."""

    layout: FileLayout
    paths: Mapping[str, Path]
    archive: Path | None = None

    def members(self) -> Iterator[Member]:
        """Yield every file once, open, as they are stored; use each before taking the next."""
        if self.archive is not None:
            yield from self._archived(self.archive)
            return
        for name, path in self.paths.items():
            with open_file(path) as stream:
                size = stream.seek(0, io.SEEK_END)
                stream.seek(0)
                check_expansion(path, size)
                yield Member(name, str(path), size, stream)

    def _archived(self, archive: Path) -> Iterator[Member]:
        folders = ("", *self.layout.folders)
        wanted = {str(PurePosixPath(folder, name)): name for folder in folders for name in self.paths}
        left = dict.fromkeys(self.paths)
        for entry, stream in archived_files(archive):
            name = wanted.get(str(PurePosixPath(entry.name)))
            if name is not None and name in left:
                del left[name]
                check_expansion(archive, entry.size)
                yield Member(name, f"{archive}:{entry.name}", entry.size, stream)
        if left:
            raise FileError(
                f"{archive} must hold {self.layout}; missing: {', '.join(left)}. Download it again: it may be another "
                "archive under this name."
            )


@contextmanager
def open_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading, uncompressed if its ending says so; any error becomes a FileError that names it."""
    form, opener = _COMPRESSED.get(path.suffix, ("file", open))
    with reading(path, form), opener(path, "rb") as stream:
        yield cast("BinaryIO", stream)


def archived_files(archive: Path) -> Iterator[tuple[tarfile.TarInfo, BinaryIO]]:
    """Yield the files of a tar archive, open, in the order in which they are stored; use each before the next."""
    # Read once from front to back, because an archive is compressed as a whole, and to its end, where the checksum is.
    # Uncompressed outside tarfile, which verifies no checksum and takes damage for the end.
    with open_file(archive) as unpacked, tarfile.open(fileobj=unpacked, mode="r|") as tar:
        for entry in tar:
            if entry.isfile():
                yield entry, cast("BinaryIO", tar.extractfile(entry))
        while unpacked.read(_BLOCK):
            pass


def find_files(reader: DatasetReader, folder: Path, layouts: Sequence[FileLayout]) -> FoundFiles:
    """Find the first layout whose files (or else whose archive) are in a folder, or are named by the path itself."""
    folder = Path(folder)
    present = [_loose_files(folder.parent if folder.is_file() else folder, layout) for layout in layouts]
    for layout, paths in zip(layouts, present, strict=True):
        if len(paths) == len(layout.files) and (folder.is_dir() or folder in paths.values()):
            return FoundFiles(layout, paths)
    for layout in [layout for layout in layouts if layout.archive]:
        for ending in _ARCHIVE_ENDINGS:
            path = folder / f"{layout.archive}{ending}" if folder.is_dir() else folder
            if path.is_file() and path.name == f"{layout.archive}{ending}":
                return FoundFiles(layout, dict.fromkeys(layout.files, path), path)
    # Name the missing files of the layout that has most of its files.
    fullest = max(range(len(layouts)), key=lambda i: len(present[i]))
    lacking = [name for name in layouts[fullest].files if name not in present[fullest]]
    raise missing_files(reader, folder, " or ".join(map(str, layouts)), lacking)


def missing_files(reader: DatasetReader, folder: Path, needed: str, lacking: Sequence[str]) -> FileError:
    """Return the error for missing files."""
    where = (
        f"in {folder}" if folder.is_dir() else f"but {folder} is {'another file' if folder.exists() else 'not there'}"
    )
    missing = f"; missing: {', '.join(lacking)}" if folder.is_dir() and lacking else ""
    fetch = ", or let calibrant fetch them: calibrant.datasets.download(...) (--download)" if reader.remote else ""
    return FileError(f"{reader.name} needs {needed} {where}{missing}. Get them from {reader.homepage}{fetch}.")


def _loose_files(folder: Path, layout: FileLayout) -> dict[str, Path]:
    """Return the files of a layout that are in the folder or, all of them, in one of its sub-folders."""
    fullest: dict[str, Path] = {}
    for parent in (folder, *(folder / sub for sub in layout.folders)):
        candidates = {name: [parent / name, parent / f"{name}.gz"] for name in layout.files}
        paths = {name: next(filter(Path.is_file, both), None) for name, both in candidates.items()}
        here = {name: path for name, path in paths.items() if path is not None}
        fullest = max(fullest, here, key=len)
    return fullest


class PublishedImages(DatasetReader):
    """Base class of readers of labelled images: a concrete one declares its classes and its publisher's files."""

    class_names: ClassVar[tuple[str, ...]]
    layouts: ClassVar[tuple[FileLayout, ...]]  # in order of preference
    # Digests of labels and then pixels of the training and the test part; None: those of the files in ``remote``.
    digests: ClassVar[tuple[str, str] | None] = None
    pixel_scale: ClassVar[PixelScale | None] = None  # None: that of the training images
    augmentation: ClassVar[Augmentation]  # the usual one

    def read(self, folder: Path, *, checked: bool = True) -> Dataset:
        files = find_files(self, folder, self.layouts)
        layout, decode = files.layout, files.layout.decode
        assert decode is not None
        if checked and self.digests is None:
            for file in self.remote:
                check_file(files.paths[file.name], digest=file.digest, size=file.size)
        sizes = dict(zip(layout.files, layout.sizes, strict=False)) if checked else {}
        decoded = {}
        with reading(folder, f"data set {self.name}"):
            for member in files.members():
                if member.name in sizes:
                    check_size(member.where, sizes[member.name], member.size)
                decoded[member.name] = self._checked_labels(decode(member), member.where)
            in_order = [decoded.pop(name) for name in layout.files]
            parts = {"training": in_order[: -layout.n_test], "test": in_order[-layout.n_test :]}
            training, test = (
                self._part(arrays, f"the {title} part of {self.name} in {folder}", digest if checked else "")
                for (title, arrays), digest in zip(parts.items(), self.digests or ("", ""), strict=True)
            )
        scale = self.pixel_scale or PixelScale.of(training.tensor)
        return Dataset(self.name, self.class_names, training, test, pixel_scale=scale, augmentation=self.augmentation)

    def _checked_labels(self, arrays: ImageArrays, where: str) -> ImageArrays:
        if "labels" in arrays:
            labels = arrays["labels"]
            outside = (labels < 0) | (labels >= len(self.class_names))
            if outside.any():
                row = int(outside.argmax())
                raise FileError(
                    f"{where} must have labels in 0..{len(self.class_names) - 1}; got {labels[row]} at image {row}. It "
                    "is another data set, or damaged."
                )
            arrays["labels"] = labels.astype(np.uint8, copy=False)
        return arrays

    def _part(self, files: Sequence[ImageArrays], where: str, digest: str) -> Samples:
        held = ([arrays[key] for arrays in files if key in arrays] for key in ("images", "labels"))
        images, labels = (part[0] if len(part) == 1 else np.concatenate(part) for part in held)
        if len(images) != len(labels) or not len(images):
            raise FileError(f"{where} must have as many labels as images; got {len(labels):,} and {len(images):,}.")
        if digest:
            check_digest(where, digest, content_digest(labels, images))
        return Samples(torch.from_numpy(images), torch.from_numpy(labels).long())

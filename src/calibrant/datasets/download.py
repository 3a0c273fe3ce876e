"""Fetching a data set's files from its publisher, when a person asks for it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from calibrant.datasets.integrity import file_digest
from calibrant.datasets.reader import DatasetReader, RemoteFile
from calibrant.datasets.unpacking import unpack
from calibrant.errors import FileError, InputError

__all__ = ["download"]


def download(reader: DatasetReader, folder: Path) -> list[Path]:
    """Fetch the files of a data set into a folder, check them, and unpack those that must be.

    A file that is there and whole is not fetched again. A new one takes its name only when its digest is right, so a
    broken connection leaves nothing that looks like data. For data that come with the package there is nothing to do.

    Args:
        reader: Of the data set.
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

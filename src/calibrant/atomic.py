"""Atomic files and folders: a reader, or a crash, sees the old content or the new one, never half of either."""

import contextlib
import json
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO, final

from torch import Tensor

from calibrant.errors import FileError

_START, _END = ".calibrant-", ".tmp"
_TRIES = 100


@contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """Create a temporary folder inside an existing one, removed when the block ends, as are those of killed writers."""
    _remove_abandoned(parent)
    path, handle = _create_locked(parent)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def is_temporary(path: Path) -> bool:
    """Return whether a name is that of a temporary folder."""
    return path.name.startswith(_START) and path.name.endswith(_END)


def _create_locked(parent: Path) -> tuple[Path, int | None]:
    """Make a folder; return it and the handle that holds its lock, or None where there are no locks."""
    for _ in range(_TRIES):
        path = parent / f"{_START}{secrets.token_hex(8)}{_END}"
        path.mkdir()
        handle = None
        # Until it is locked, another writer may take it for abandoned.
        with contextlib.suppress(FileNotFoundError):
            handle = _lock(path, wait=True)
            if handle is None or os.path.samestat(path.stat(), os.fstat(handle)):
                return path, handle
        if handle is not None:
            os.close(handle)
    raise OSError(f"a folder for unfinished files could not be created in {parent}")


def _remove_abandoned(folder: Path) -> None:
    for path in folder.glob(f"{_START}*{_END}"):
        with contextlib.suppress(OSError):  # also for what is no folder, or another user's
            handle = _lock(path, wait=False)
            if handle is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(handle)


@contextmanager
def held_alone(folder: Path) -> Iterator[None]:
    """Hold a folder within the block; a BlockingIOError if another process does. Without locks nothing is checked."""
    handle = _lock(folder, wait=False)
    if handle is None and sys.platform != "win32":
        raise BlockingIOError(f"another process holds {folder}")
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


if sys.platform == "win32":

    def _lock(_path: Path, *, wait: bool) -> int | None:  # noqa: ARG001  # folders cannot be locked there
        return None

else:
    import fcntl

    def _lock(path: Path, *, wait: bool) -> int | None:
        """Lock a folder and return the handle; None if another process holds the lock, or there are no locks."""
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            os.close(handle)
            return None
        return handle


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the path of an empty file, which replaces ``path`` if the block succeeds and is deleted if it raises.

    For libraries that need a path. It ends in ``.tmp``, so name the format where a library would infer it from the
    ending. A symbolic link is followed, and an existing file keeps its permissions. A FileError if it is no file.
    """
    target = Path(os.path.realpath(path))
    try:
        kept = _mode_of(target)
        with temporary_folder(target.parent) as folder:
            partial = folder / "unfinished.tmp"
            # Not by tempfile, so that a new file gets the permissions of the user's umask.
            os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            mode = stat.S_IMODE(partial.stat().st_mode) if kept is None else kept
            yield partial
            _flush(partial, os.O_RDWR)  # Windows flushes what may be written
            partial.chmod(mode)  # also if a library has replaced the file by its own
            partial.replace(target)
    except OSError as error:
        parent = Path(path).parent
        missing = not parent.is_dir()
        advice = f"Make the folder {parent} first." if missing else "Check the folder's permissions and the space left."
        raise FileError(f"{os.fspath(path)} could not be written: {error.strerror or error}. {advice}") from error
    # The file is in place; some file systems cannot flush folders.
    with contextlib.suppress(OSError):
        _flush(target.parent, os.O_RDONLY)


@contextmanager
def atomic_binary(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yield an open binary file that replaces ``path`` if the block succeeds; see :func:`atomic_path`."""
    with atomic_path(path) as partial, partial.open("wb") as file:
        yield file


@contextmanager
def atomic_text(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """Yield an open text file, UTF-8, that replaces ``path`` if the block succeeds; see :func:`atomic_path`."""
    with atomic_path(path) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        yield file


def _mode_of(target: Path) -> int | None:
    """Return the permissions of the file to replace; None if there is none."""
    if not target.exists():
        return None
    if not target.is_file():
        raise FileError(f"{target} must be an ordinary file to be written; it is a folder or a device. Name a file.")
    if not os.access(target, os.W_OK):
        raise FileError(f"{target} must be writable; it is write-protected. Name another file, or lift the protection.")
    return stat.S_IMODE(target.stat().st_mode)


def _flush(path: Path, access: int) -> None:
    """Force a file or a folder to disk."""
    handle = os.open(path, access)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def save_tensors(tensors: Mapping[str, Tensor], file: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file; an OSError if it cannot be written, also where the library raises another error."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(dict(tensors), file, metadata=None if metadata is None else dict(metadata))
    except SafetensorError as error:
        raise OSError(str(error)) from error


@final
class SettingsFolder:
    """The folder of a run or a fit, new or begun before, with a document of this schema in ``settings.json``.

    Messages name the work, such as ``run``, and the command that does it, such as ``calibrant train``.
    """

    def __init__(self, path: Path, schema: str, *, work: str, command: str) -> None:
        self.path, self.settings = path, path / "settings.json"
        self._schema, self._work, self._command = schema, work, command

    @property
    def is_begun(self) -> bool:
        """Whether the folder has settings."""
        return self.settings.exists()

    def check(self) -> None:
        """Refuse, by a FileError, a folder that is neither new, nor empty, nor of this kind."""
        if self.is_begun:
            self.document()
        elif self.path.exists() and not (self.path.is_dir() and all(map(is_temporary, self.path.iterdir()))):
            raise FileError(
                f"{self.path} must be a new or empty folder, or that of a {self._work} by {self._command}; it holds "
                "something else. Name another."
            )

    def begin(self, document: dict[str, Any]) -> None:
        """Make the folder, and write its settings."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{self.path} could not be made: {error.strerror}.") from error
        with atomic_text(self.settings) as file:
            json.dump({"format": self._schema, **document}, file, indent=2)

    def document(self) -> dict[str, Any]:
        """Return the settings; a FileError if they cannot be read, or are of another kind of folder."""
        wanted = f"{self.settings} must be the settings of a {self._work}"
        try:
            document = json.loads(self.settings.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise FileError(f"{wanted}; it cannot be read ({error}).") from error
        if not isinstance(document, dict) or document.get("format") != self._schema:
            raise FileError(f"{wanted} by {self._command}; it is not. Name another folder.")
        if not isinstance(document.get("settings"), dict):
            raise FileError(f"{wanted}; its settings are missing.")
        return document

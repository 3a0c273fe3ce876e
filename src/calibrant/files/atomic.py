"""Writing a file so that a reader, or a crash, sees the old one or the new one and never half of either.

The bytes go to a temporary folder beside the target, are forced to disk, and take the target's place in one step. What
a killed writer has left is removed by the next one; see :mod:`calibrant.temporary_folder`.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

from calibrant.errors import FileError
from calibrant.temporary_folder import temporary_folder

__all__ = ["atomic_binary", "atomic_path", "atomic_text"]


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Lend an empty file to write into; it becomes ``path`` if the block ends well, and vanishes if it raises.

    For libraries that want a path. The lent one ends in ``.tmp``, so say the format where it would be read off the
    ending. A symbolic link is followed, and an existing file keeps its permissions.

    Args:
        path: The file to make or to replace. Its folder must exist.

    Yields:
        The file to write into, on the same file system.

    Raises:
        FileError: If the target is no ordinary file, or the system refuses to write.
    """
    target = Path(os.path.realpath(path))
    try:
        kept = _mode_of(target)
        with temporary_folder(target.parent) as folder:
            partial = folder / "unfinished.tmp"
            # Made here rather than by tempfile, so that a new file gets the permissions the person's umask gives.
            os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            mode = stat.S_IMODE(partial.stat().st_mode) if kept is None else kept
            yield partial
            partial.chmod(mode)  # also where a library has put a file of its own in the place of the lent one
            _flush(partial)
            partial.replace(target)
    except OSError as error:
        raise _refused(path, error) from error
    # The new name is in place; some file systems cannot promise more than that.
    with contextlib.suppress(OSError):
        _flush(target.parent)


@contextmanager
def atomic_binary(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Lend an open binary file that becomes ``path`` if the block ends well; see :func:`atomic_path`."""
    with atomic_path(path) as partial, partial.open("wb") as file:
        yield file


@contextmanager
def atomic_text(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    r"""Lend an open text file (UTF-8, ``\n``) that becomes ``path`` if the block ends well; see :func:`atomic_path`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with atomic_text(f"{folder}/report.md") as file:
        ...         _ = file.write("# All is well")
        ...     Path(f"{folder}/report.md").read_text()
        '# All is well'
    """
    with atomic_path(path) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        yield file


def _mode_of(target: Path) -> int | None:
    """Permissions of the file to replace, or None if there is none yet."""
    if not target.exists():
        return None
    if not target.is_file():
        raise FileError(f"{target} must be an ordinary file to be written; it is a folder or a device. Name a file.")
    if not os.access(target, os.W_OK):
        raise FileError(f"{target} must be writable; it is write-protected. Name another file, or lift the protection.")
    return stat.S_IMODE(target.stat().st_mode)


def _flush(path: Path) -> None:
    """Force a file or a folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _refused(path: str | os.PathLike[str], error: OSError) -> FileError:
    folder = Path(path).parent
    advice = "Check the folder's permissions and the space left."
    if not folder.is_dir():
        advice = f"Make the folder {folder} first."
    return FileError(f"{os.fspath(path)} could not be written: {error.strerror or error}. {advice}")

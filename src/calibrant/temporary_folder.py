"""A folder for unfinished files beside the finished ones, which the next writer removes if its own was killed.

As long as a writer lives it holds a lock on its folder, which the system takes away when the process ends, however it
ends. So what can be locked is nobody's any more. Where a file system has no such locks, nothing is removed.
"""

import contextlib
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["is_temporary", "temporary_folder"]

_START, _END = ".calibrant-", ".tmp"
_FORGOTTEN = 86_400  # seconds after which a lone file of such a name is nobody's; earlier versions wrote those
_TRIES = 100


@contextmanager
def temporary_folder(beside: Path) -> Iterator[Path]:
    """Lend an empty folder inside another one; it vanishes with all that is left in it when the block ends.

    What writers that were killed have left there is removed first.

    Args:
        beside: The folder to make it in, which must exist.

    Raises:
        OSError: If the system refuses.
    """
    _remove_abandoned(beside)
    path, handle = _held(beside)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def is_temporary(path: Path) -> bool:
    """Whether a name is one of those that are given here."""
    return path.name.startswith(_START) and path.name.endswith(_END)


def _held(beside: Path) -> tuple[Path, int | None]:
    """A new folder, and the handle that holds its lock, or None where there are no locks."""
    for _ in range(_TRIES):
        path = beside / f"{_START}{secrets.token_hex(8)}{_END}"
        path.mkdir()
        handle = None
        # Until it is locked, another writer may take it for abandoned.
        with contextlib.suppress(FileNotFoundError):
            handle = _lock(path, wait=True)
            if handle is None or os.path.samestat(path.stat(), os.fstat(handle)):
                return path, handle
        if handle is not None:
            os.close(handle)
    raise OSError(f"a folder for unfinished files could not be kept in {beside}")


def _remove_abandoned(folder: Path) -> None:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        named = [entry for entry in entries if is_temporary(Path(entry.name))]
        for entry in named:
            with contextlib.suppress(OSError):
                _remove_if_abandoned(entry)


def _remove_if_abandoned(entry: os.DirEntry[str]) -> None:
    if entry.is_file(follow_symlinks=False):
        if time.time() - entry.stat(follow_symlinks=False).st_mtime > _FORGOTTEN:
            Path(entry.path).unlink()
    elif entry.is_dir(follow_symlinks=False) and (handle := _lock(Path(entry.path), wait=False)) is not None:
        shutil.rmtree(entry.path, ignore_errors=True)
        os.close(handle)


if sys.platform == "win32":

    def _lock(_path: Path, *, wait: bool) -> int | None:  # noqa: ARG001  # folders cannot be locked there
        return None

else:
    import fcntl

    def _lock(path: Path, *, wait: bool) -> int | None:
        """A handle that holds the only lock on a folder; None if another holds it, or there are no locks."""
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            os.close(handle)
            return None
        return handle

"""The records of a study: one line of JSON per finished cell, appended and flushed to the disk before the next begins.

A process that is killed can leave at most one torn line, the last. It is dropped when the file is next opened for
writing, and ignored by readers; its cell runs again. A file that is removed or replaced under a running study is
written again, with what it held.
"""

import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias, final

from calibrant.errors import InputError

__all__ = ["Record", "Records", "Writer", "alone"]

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        """Take the lock of a file: a byte beyond its text, which others may then read."""
        os.lseek(descriptor, 1 << 20, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        """Take the lock of a file; an OSError if another process holds it."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


Record: TypeAlias = dict[str, Any]
_SECONDS = 0.5  # between two looks at a lock that another process holds


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Wait for a lock that one process has at a time, and hold it; the end of the process gives it back in any case.

    Args:
        path: Of the lock, without ``.lock``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        while True:
            try:
                _lock(lock)
            except (BlockingIOError, PermissionError):  # the second on Windows
                time.sleep(_SECONDS)
            else:
                break
        yield
    finally:
        os.close(lock)


@final
class Writer:
    """Appends records; made by :meth:`Records.writing`, which holds the lock.

    Args:
        path: Of the file.
        dropped: What is torn at the end of the file, empty as a rule; it is cut off.
    """

    def __init__(self, path: Path, dropped: bytes) -> None:
        self._path, self.dropped = path, dropped
        self._descriptor = _opened(path)
        if dropped:
            os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - len(dropped))
            os.fsync(self._descriptor)

    def append(self, record: Record) -> None:
        """Add one line. It is on the disk when this returns."""
        self._restore()
        self._write(json.dumps(record, ensure_ascii=False, sort_keys=True, allow_nan=False).encode() + b"\n")

    def close(self) -> None:
        """Leave the file, with all that it held."""
        try:
            self._restore()
        finally:
            os.close(self._descriptor)

    def _restore(self) -> None:
        """Take the lines to the file that is now at the path, if it is another one: it was removed, or replaced."""
        with suppress(FileNotFoundError):
            if os.path.samestat(self._path.stat(), os.fstat(self._descriptor)):
                return
        removed, self._descriptor = self._descriptor, _opened(self._path)
        there = set(_lines(self._descriptor))
        self._write(b"".join(line for line in _lines(removed) if line not in there))
        os.close(removed)

    def _write(self, content: bytes) -> None:
        written = 0
        while written < len(content):
            written += os.write(self._descriptor, content[written:])
        os.fsync(self._descriptor)


def _opened(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o644)


def _content(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    return os.read(descriptor, os.fstat(descriptor).st_size)


def _lines(descriptor: int) -> list[bytes]:
    return _content(descriptor).splitlines(keepends=True)


@final
class Records:
    """A study's records on the disk.

    Args:
        path: Of the JSONL file; it need not exist yet. The lock lies beside it, with ``.lock`` added.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[Record]:
        """Return all whole records, in the order in which their cells finished.

        Raises:
            InputError: If a line other than the last is no record.
        """
        return self.parsed()[0]

    @contextmanager
    def writing(self) -> Iterator[Writer]:
        """Hold the lock and give a writer. A torn last line is cut off first; ``Writer.dropped`` has it.

        Raises:
            InputError: If another process holds the lock, or a line other than the last is no record.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._take(lock)
            torn = self.parsed()[1]
            writer = Writer(self.path, torn)
            try:
                yield writer
            finally:
                writer.close()
        finally:
            os.close(lock)  # which gives the lock back, as does the end of the process, however it comes

    def _take(self, lock: int) -> None:
        try:
            _lock(lock)
        except (BlockingIOError, PermissionError):  # the second on Windows
            holder = _content(lock)[:100].decode(errors="replace").strip()
            raise InputError(
                f"only one process may add records to {self.path}; another does so ({holder or 'unknown'}). Wait for "
                "it, or end it: what it has finished is kept."
            ) from None
        os.ftruncate(lock, 0)
        os.lseek(lock, 0, os.SEEK_SET)
        os.write(lock, f"process {os.getpid()} on {platform.node()}".encode())

    def parsed(self) -> tuple[list[Record], bytes]:
        """Return all whole records, and what is torn at the end of the file."""
        content = self.path.read_bytes() if self.path.exists() else b""
        lines = content.splitlines(keepends=True)
        records: list[Record] = []
        for number, line in enumerate(lines, start=1):
            record = _record_in(line)
            if record is None:
                if number < len(lines):
                    raise InputError(
                        f"every line of {self.path} must be a record, but for the last, which a killed process may "
                        f"have torn; line {number} is none. Restore the file, or delete that line to run its cell "
                        "again."
                    )
                return records, line
            records.append(record)
        return records, b""


def _record_in(line: bytes) -> Record | None:
    """Return the record of a whole line, None where it is torn."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and isinstance(record.get("cell"), dict) else None

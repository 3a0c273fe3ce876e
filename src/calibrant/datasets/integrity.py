"""Whether a file is whole, and whether it is the published one."""

import hashlib
from pathlib import Path

import numpy as np

from calibrant.bad_file import reading
from calibrant.errors import FileError

__all__ = ["check_digest", "check_file", "check_size", "content_digest", "file_digest"]


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

"""The one wording for a file that cannot be read, whatever library stumbled over it, and for one that is too large."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from calibrant.errors import FileError, InputError

__all__ = ["check_expansion", "check_memory", "is_out_of_memory", "most_expanded", "reading"]

_SMALL = 1 << 26  # bytes, of which there are always so many left
_ALWAYS_FINE = 1 << 30  # bytes that any file may expand to
_MOST_TIMES = 100  # its size that a larger one may expand to; scores compress to a tenth at best


@contextmanager
def reading(path: Path | str, form: str) -> Iterator[None]:
    """Turn whatever a lower library raises on a bad file into one error that says which file and what to do.

    Args:
        path: Of the file.
        form: What it should be, in words.

    Raises:
        FileError: If anything is raised inside.
    """
    try:
        yield
    except InputError as error:
        raise error if isinstance(error, FileError) else FileError(f"{path}: ", *error.args) from error
    except PermissionError as error:
        raise FileError(f"{path} must be readable; you lack the permission. Ask its owner, or copy it.") from error
    except Exception as error:
        if is_out_of_memory(error):
            raise FileError(
                f"{path} must fit into memory; reading it asks for more than is left. A small file that does so is "
                f"damaged. {_LESS}"
            ) from error
        first_line = (str(error).splitlines() or [""])[0].split(". ")[0].rstrip(". ")
        raise FileError(
            f"{path} must be a whole {form}; reading it failed: {first_line or type(error).__name__}. "
            "It may have been cut short or damaged, or its ending may not fit what it is; write or download it again."
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, of whatever library, says that memory has run out."""
    if isinstance(error, MemoryError):  # of which those of NumPy and Arrow are kinds
        return True
    # On the CPU torch has no type of its own for it; here it is not imported, as not every command needs it.
    on_accelerator = type(error).__name__ == "OutOfMemoryError"
    return isinstance(error, RuntimeError) and (on_accelerator or "not enough memory" in str(error))


def check_expansion(path: Path, n_bytes: int) -> None:
    """What a file says that it expands to is neither absurd nor more than there is memory for; seen before it is read.

    Args:
        path: The file.
        n_bytes: How many bytes what is wanted of it will take.

    Raises:
        FileError: If it is.
    """
    most = most_expanded(path)
    if n_bytes > most:
        raise FileError(
            f"{path} must not expand to more than {most / 1e9:.1f} GB; its {path.stat().st_size:,} bytes say that they "
            f"hold {n_bytes / 1e9:.1f} GB. It is damaged, or made to fill the memory; if it is yours, save it without "
            "compression."
        )
    check_memory(path, n_bytes)


def most_expanded(path: Path) -> int:
    """How many bytes a compressed file may expand to before it is taken for a trap."""
    return max(_ALWAYS_FINE, _MOST_TIMES * path.stat().st_size)


def check_memory(path: Path, n_bytes: int) -> None:
    """There is memory for what a file holds.

    Raises:
        FileError: If there is not, as far as the system says.
    """
    free = _free_memory() if n_bytes > _SMALL else None
    if free is not None and n_bytes > free:
        raise FileError(
            f"{path} must fit into memory; it needs at least {n_bytes / 1e9:.1f} GB, and {free / 1e9:.1f} GB are left. "
            f"{_LESS}"
        )


def _free_memory() -> int | None:
    """Bytes that can still be taken; None where the system does not say."""
    try:
        free = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return None
    return None if free is None else int(free[1]) << 10


_LESS = "Read fewer rows or classes at a time, or use a machine with more memory."

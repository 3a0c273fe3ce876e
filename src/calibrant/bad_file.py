"""The one wording for a file that cannot be read, whatever library stumbled over it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from calibrant.errors import FileError, InputError

__all__ = ["reading"]


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
        raise error if isinstance(error, FileError) else FileError(f"{path}: {error}") from error
    except PermissionError as error:
        raise FileError(f"{path} must be readable; you lack the permission. Ask its owner, or copy it.") from error
    except Exception as error:
        first_line = (str(error).splitlines() or [""])[0].split(". ")[0].rstrip(". ")
        raise FileError(
            f"{path} must be a whole {form}; reading it failed: {first_line or type(error).__name__}. "
            "It may have been cut short or damaged, or its ending may not fit what it is; write or download it again."
        ) from error

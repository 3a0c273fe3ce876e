"""The file endings that are read and written, and what to say of any other path."""

import os
from pathlib import Path

from calibrant.errors import FileError

__all__ = ["SUFFIXES", "existing_file", "suffix_of"]

SUFFIXES = (".arrow", ".csv", ".csv.gz", ".feather", ".npz", ".parquet", ".pt", ".pth", ".safetensors")


def suffix_of(path: str | os.PathLike[str]) -> str:
    """The ending that tells a file's format.

    Raises:
        FileError: If it is none of those known.

    Example:
        >>> suffix_of("runs/Predictions.CSV.gz")
        '.csv.gz'
    """
    name = Path(path).name.lower()
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return suffix
    ending = Path(path).suffix
    raise FileError(
        f"the name of a file of predictions must end in one of {', '.join(SUFFIXES)}; "
        f"{os.fspath(path)} ends in {ending!r}. Convert the file, or load it yourself and pass the arrays."
    )


def existing_file(path: str | os.PathLike[str], *, holding: str = "predictions") -> Path:
    """The path of a file that is there and has something in it.

    Args:
        path: Where it should be.
        holding: What it should hold, for the message.

    Raises:
        FileError: If it is missing, a folder, empty, or may not be looked at.
    """
    file = Path(path)
    try:
        size = file.stat().st_size
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        reason = "there is none" if isinstance(error, FileNotFoundError) else str(error)
        raise FileError(f"{file} must be an existing file; {reason}. Seen from the folder {Path.cwd()}.") from error
    if file.is_dir():
        raise FileError(f"{file} must be a file; it is a folder. Name one file in it.")
    if file.is_file() and size == 0:
        raise FileError(f"{file} must hold {holding}; it is empty. The program that wrote it may have been stopped.")
    return file

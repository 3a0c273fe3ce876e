"""Where a command's answer goes: to a person or a pipe, and into files."""

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from calibrant.errors import FileError

__all__ = ["check_output", "standard_error", "standard_output"]


def standard_output() -> Console:
    """The console, as wide as a page where nobody looks. Square brackets in names are no mark-up."""
    console = Console(markup=False)
    if not console.is_terminal:
        console.width = 120
    return console


def standard_error() -> Console:
    """Where notes and progress go."""
    return Console(stderr=True, markup=False)


def check_output(out: Path, read: Iterable[Path]) -> None:
    """Refuse, before the long work, a file that cannot be written or would replace one that is read.

    Raises:
        FileError: If the folder is not there, or the file is one of those.
    """
    if not out.parent.is_dir():
        raise FileError(f"{out} could not be written: there is no folder {out.parent}. Make it first.")
    for each in read:
        if out.exists() and each.exists() and out.samefile(each):
            raise FileError(f"--out must not be a file that is read; got {each} for both. Name another file.")

"""Where a command's answer goes: to a person or a pipe, and into files."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from calibrant.errors import FileError, InputError
from calibrant.shown_text import terminal_text

__all__ = ["check_drawing", "check_folder", "check_output", "standard_error", "standard_output"]


@final
class _SafeConsole(Console):
    """A console that writes control characters in names out, instead of sending them to the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            safe = segment.control or segment.text.isprintable()
            yield segment if safe else segment._replace(text=terminal_text(segment.text, lines=True))


def standard_output() -> Console:
    """The console, as wide as COLUMNS or else a page where nobody looks. Square brackets in names are no mark-up."""
    console = _SafeConsole(markup=False)
    if not (console.is_terminal or os.environ.get("COLUMNS", "").isdigit()):
        console.width = 120
    return console


def standard_error() -> Console:
    """Where notes and progress go."""
    return _SafeConsole(stderr=True, markup=False)


def check_output(out: Path, read: Iterable[Path]) -> None:
    """Refuse, before the long work, a file that cannot be written or would replace one that is read.

    Raises:
        FileError: If the folder is not there, the file is a folder, or it is one of those.
    """
    if not out.parent.is_dir():
        raise FileError(f"{out} could not be written: there is no folder {out.parent}. Make it first.")
    if out.is_dir():
        raise FileError(f"{out} could not be written: it is a folder. Name a file.")
    for each in read:
        if out.exists() and each.exists() and out.samefile(each):
            raise FileError(f"{out} must not be written to: it is a file that is read. Name another.")


def check_folder(folder: Path | None) -> None:
    """Refuse, before the long work, a folder that is neither there nor can be made.

    Raises:
        FileError: If a file is in the way, or the system lets nobody write there.
    """
    if folder is None:
        return
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise FileError(f"{folder} must be a folder, or become one; {nearest} is a file. Name another folder.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise FileError(f"{folder} must be a folder to write into; {nearest} is write-protected. Name another folder.")


def check_drawing(figure_format: str, theme: str) -> None:
    """Refuse a picture format or a theme that is not known.

    Raises:
        InputError: If one is not; the message lists them.
    """
    if (figure_format, theme) == ("png", "light"):  # the defaults: no need to load matplotlib to know them
        return
    from calibrant.plots import THEMES

    for option, given, known in (
        ("--figure-format", figure_format, ("png", "svg", "pdf")),
        ("--theme", theme, tuple(THEMES)),
    ):
        if given not in known:
            raise InputError(f"{option} must be one of {', '.join(known)}; got {given!r}.")

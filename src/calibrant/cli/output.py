"""Consoles, progress and warnings of the command line."""

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.segment import Segment

from calibrant.errors import CalibrantWarning, terminal_text

__all__ = ["print_warnings", "progress_bar", "spinner", "standard_error", "standard_output"]


@final
class _SafeConsole(Console):
    """A console that writes control characters in names out, instead of sending them to the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            safe = segment.control or segment.text.isprintable()
            yield segment if safe else segment._replace(text=terminal_text(segment.text, lines=True))


def standard_output() -> Console:
    """Return the console of answers: as wide as the terminal or ``COLUMNS``, and 120 columns into a pipe.

    Square brackets in names are no mark-up.
    """
    console = _SafeConsole(markup=False)
    if not (console.is_terminal or os.environ.get("COLUMNS", "").isdigit()):
        console.width = 120
    return console


def standard_error() -> Console:
    """Return the console of notes and progress."""
    return _SafeConsole(stderr=True, markup=False)


@contextmanager
def spinner(console: Console) -> Iterator[Callable[[str], None]]:
    """Show the current stage and the elapsed time while the block runs; nothing where there is no terminal.

    Yields:
        A function to call with the name of the stage that begins.
    """
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda stage: progress.update(task, description=stage)


@contextmanager
def progress_bar(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """Show the current step, how many of how many are done, and the time; nothing where there is no terminal.

    Yields:
        A function to call with the name of the step, how many are done, and how many there are.
    """
    columns = (BarColumn(24), MofNCompleteColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda text, done, total: progress.update(task, description=text, completed=done, total=total)


@contextmanager
def print_warnings(console: Console) -> Iterator[list[str]]:
    """Print every CalibrantWarning once, when it is issued; issue all others again after the block.

    Yields:
        The messages printed so far.
    """
    printed: list[str] = []
    others: list[warnings.WarningMessage] = []

    def show(*given: Any, **options: Any) -> None:
        warning = warnings.WarningMessage(*given, **options)
        if str(warning.message) in printed:
            return
        if issubclass(warning.category, CalibrantWarning):
            printed.append(str(warning.message))
            console.print(f"note: {terminal_text(warning.message)}", style="yellow")
        else:
            others.append(warning)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        yield printed
    for other in others:
        warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)

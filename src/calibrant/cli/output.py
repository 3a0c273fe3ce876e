"""Consoles, progress and warnings of the command line."""

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.segment import Segment

from calibrant.errors import CalibrantWarning, Caveat
from calibrant.text import terminal_text


@final
class _SafeConsole(Console):
    """A console that escapes control characters in names."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            safe = segment.control or segment.text.isprintable()
            yield segment if safe else segment._replace(text=terminal_text(segment.text, lines=True))


def standard_output() -> Console:
    """Return the console of results: as wide as the terminal or ``COLUMNS``, and 120 columns into a pipe."""
    console = _SafeConsole(markup=False)  # square brackets in names are not markup
    if not (console.is_terminal or os.environ.get("COLUMNS", "").isdigit()):
        console.width = 120
    return console


def standard_error() -> Console:
    """Return the console of notes and progress; lines that go into a log are not cut."""
    console = _SafeConsole(stderr=True, markup=False)
    console.soft_wrap = not console.is_terminal
    return console


@contextmanager
def spinner(console: Console) -> Iterator[Callable[[str], None]]:
    """Show the stage and the elapsed time on a terminal; yield a function to call with the stage that begins."""
    with _progress(console, SpinnerColumn()) as update:
        yield lambda stage: update(description=stage)


@contextmanager
def progress_bar(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """Show progress on a terminal; yield a function to call with a step, how many are done, and how many there are."""
    with _progress(console, BarColumn(24), MofNCompleteColumn()) as update:
        yield lambda text, done, total: update(description=text, completed=done, total=total)


@contextmanager
def _progress(console: Console, *columns: Any) -> Iterator[Callable[..., None]]:
    if not console.is_terminal:  # even a disabled Progress of rich 14 ends with an empty line
        yield _Lines(console).update
        return
    shown = (*columns, TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*shown, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda **changes: progress.update(task, **changes)


_SECONDS = 30.0  # between two lines about long work


@final
class _Lines:
    """Progress where there is no terminal: a line now and then about work that takes long."""

    def __init__(self, console: Console) -> None:
        self._console, self._printed = console, time.monotonic()

    def update(self, *, description: str, completed: int = 0, total: int | None = None) -> None:
        if time.monotonic() - self._printed > _SECONDS:
            self._printed = time.monotonic()
            self._console.print(description if total is None else f"{description}: {completed} of {total}")


@contextmanager
def print_warnings(
    console: Console, dropped: list[CalibrantWarning] | None = None, *, except_for: Caveat | None = None
) -> Iterator[list[str]]:
    """Print every CalibrantWarning once, when it is issued; issue others after the block. Yield what was printed.

    Those about rows that were left out are ``dropped`` into a list instead, if there is one, for a page. Those of one
    kind, which do not concern the command, are not printed.
    """
    printed: list[str] = []
    foreign: list[warnings.WarningMessage] = []

    def show(*given: Any, **options: Any) -> None:
        warning = warnings.WarningMessage(*given, **options)
        if str(warning.message) in printed:
            return
        if isinstance(warning.message, CalibrantWarning):
            if dropped is not None and warning.message.caveat is Caveat.rows_dropped:
                if str(warning.message) not in map(str, dropped):
                    dropped.append(warning.message)
                return
            if except_for is not None and warning.message.caveat is except_for:
                return
            printed.append(str(warning.message))
            console.print(f"note: {terminal_text(warning.message)}", style="yellow")
        else:
            foreign.append(warning)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        yield printed
    for warning in foreign:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)

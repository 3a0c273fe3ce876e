"""Consoles, progress, warnings and reports of the command line.

Files are checked before the long work and written at its end.
"""

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.segment import Segment

from calibrant.errors import CalibrantWarning, FileError, InputError, terminal_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

    from calibrant.plots import ThemeName
    from calibrant.report import Figure, Page

_DPI = 110  # resolution of figures in an HTML page


@final
class _SafeConsole(Console):
    """A console that escapes control characters in names."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            safe = segment.control or segment.text.isprintable()
            yield segment if safe else segment._replace(text=terminal_text(segment.text, lines=True))


def standard_output() -> Console:
    """Return the console of results: as wide as the terminal or ``COLUMNS``, and 120 columns into a pipe.

    Square brackets in names are not markup.
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
    """Show the current stage and the elapsed time while the block runs, if the console is a terminal.

    Yields:
        A function to call with the name of the stage that begins.
    """
    with _progress(console, SpinnerColumn()) as update:
        yield lambda stage: update(description=stage)


@contextmanager
def progress_bar(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """Show the current step, how many of how many are done, and the elapsed time, if the console is a terminal.

    Yields:
        A function to call with the name of the step, how many are done, and how many there are.
    """
    with _progress(console, BarColumn(24), MofNCompleteColumn()) as update:
        yield lambda text, done, total: update(description=text, completed=done, total=total)


@contextmanager
def _progress(console: Console, *columns: Any) -> Iterator[Callable[..., None]]:
    shown = (*columns, TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*shown, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda **changes: progress.update(task, **changes)


@contextmanager
def print_warnings(console: Console) -> Iterator[list[str]]:
    """Print every CalibrantWarning once, when it is issued; issue all others again after the block.

    Yields:
        The messages printed so far.
    """
    printed: list[str] = []
    foreign: list[warnings.WarningMessage] = []

    def show(*given: Any, **options: Any) -> None:
        warning = warnings.WarningMessage(*given, **options)
        if str(warning.message) in printed:
            return
        if issubclass(warning.category, CalibrantWarning):
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


def check_output(out: Path, inputs: Iterable[Path]) -> None:
    """Check that a file can be written, and that it is not an input file.

    Raises:
        FileError: If its folder does not exist, it is a folder, or it is an input file.
    """
    if not out.parent.is_dir():
        raise FileError(f"{out} could not be written: there is no folder {out.parent}. Make it first.")
    if out.is_dir():
        raise FileError(f"{out} could not be written: it is a folder. Name a file.")
    for path in inputs:
        if out.exists() and path.exists() and out.samefile(path):
            raise FileError(f"{out} must not be written to: it is an input file. Name another.")


def check_folder(folder: Path) -> None:
    """Check that a folder exists and can be written, or can be made.

    Raises:
        FileError: If a file is in the way, or the nearest existing folder is write-protected.
    """
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise FileError(f"{folder} must be a folder, or become one; {nearest} is a file. Name another folder.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise FileError(f"{folder} must be a folder to write into; {nearest} is write-protected. Name another folder.")


@final
@dataclass(frozen=True)
class Reports:
    """The reports to write, and how figures look: the options of a command under their names.

    Raises:
        InputError: If the format or the theme is unknown.
    """

    json: Path | None = None
    markdown: Path | None = None
    html: Path | None = None
    figures: Path | None = None
    figure_format: str = "png"
    theme: str = "light"

    def __post_init__(self) -> None:
        for option, given, known in (
            ("--figure-format", self.figure_format, ("png", "svg", "pdf")),
            ("--theme", self.theme, ("light", "dark")),
        ):
            if given not in known:
                raise InputError(f"{option} must be one of {', '.join(known)}; got {given!r}.")

    def check(self, inputs: Iterable[Path]) -> None:
        """Check that all reports can be written, and overwrite no input file.

        Raises:
            FileError: If one cannot be written, or is an input file.
        """
        files = list(inputs)
        for target in (self.json, self.markdown, self.html):
            if target is not None:
                check_output(target, files)
        if self.figures is not None:
            check_folder(self.figures)

    def draw(self, draw: "Callable[[ThemeName], Mapping[str, MatplotlibFigure]]") -> "list[Figure]":
        """Draw and write the figures, if there is a folder or an HTML page for them; return them for the page."""
        if self.figures is None and self.html is None:
            return []
        from calibrant.plots import save_figures  # loads matplotlib
        from calibrant.report import Figure

        drawn = draw("dark" if self.theme == "dark" else "light")
        paths: Sequence[Path | None] = [None] * len(drawn)
        if self.figures is not None:
            paths = save_figures(drawn, self.figures, formats=[self.figure_format])
        figures = []
        for (name, figure), path in zip(drawn.items(), paths, strict=True):
            content = BytesIO()
            if self.html is not None:
                figure.savefig(content, format="png", dpi=_DPI, facecolor=figure.get_facecolor())
            figures.append(Figure(name.replace("_", " "), path, content.getvalue()))
        return figures

    def show_and_write(self, page: "Page", figures: "Sequence[Figure]", console: Console, *, full: bool) -> None:
        """Print the page, write it, and print the paths of the files."""
        from calibrant.report.terminal import show

        show(page, full=full, console=console)
        if written := self.write(page, figures):
            console.print("Wrote " + ", ".join(map(str, written)), style="dim")

    def write(self, page: "Page", figures: "Sequence[Figure]") -> list[Path]:
        """Write the page in every form requested, and to the summary of a GitHub job.

        Returns:
            The paths written, figures first.
        """
        written = [Path(figure.path) for figure in figures if figure.path is not None]
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if not (self.json or self.markdown or self.html or summary):
            return written
        from calibrant.report import to_markdown, write

        if self.json is not None:
            written.append(write(page, self.json, form="json"))
        if self.markdown is not None:
            linked = [
                replace(figure, path=Path(os.path.relpath(figure.path, self.markdown.parent)))
                for figure in figures
                if figure.path is not None
            ]
            written.append(write(page.with_figures(linked), self.markdown, form="markdown"))
        if self.html is not None:
            written.append(write(page.with_figures(figures), self.html, form="html"))
        if summary:
            try:
                with Path(summary).open("a", encoding="utf-8") as stream:
                    stream.write(to_markdown(page))
            except OSError as error:  # the requested reports are written
                standard_error().print(
                    f"note: the job's summary, {terminal_text(summary)}, could not be written: {error.strerror}.",
                    style="yellow",
                )
        return written

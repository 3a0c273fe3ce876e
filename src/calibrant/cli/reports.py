"""Files that a command writes: checked before the long work, written at its end."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, final

from calibrant.cli.output import standard_error
from calibrant.errors import FileError, InputError, terminal_text
from calibrant.report import Figure, Page, to_markdown, write

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

    from calibrant.plots import ThemeName

__all__ = ["Reports", "check_folder", "check_output"]

_DPI = 110  # of figures inside an HTML page


def check_output(out: Path, read: Iterable[Path]) -> None:
    """Check that a file can be written, and that it is none of those that are read.

    Raises:
        FileError: If its folder does not exist, it is a folder, or it is read.
    """
    if not out.parent.is_dir():
        raise FileError(f"{out} could not be written: there is no folder {out.parent}. Make it first.")
    if out.is_dir():
        raise FileError(f"{out} could not be written: it is a folder. Name a file.")
    for path in read:
        if out.exists() and path.exists() and out.samefile(path):
            raise FileError(f"{out} must not be written to: it is a file that is read. Name another.")


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
    """The reports to write, and how figures look.

    Args:
        json: Path of the JSON report.
        markdown: Path of the Markdown page.
        figures: Folder of the figures.
        figure_format: png, svg or pdf.
        theme: light or dark.
        html: Path of the HTML page.

    Raises:
        InputError: If the format or the theme is unknown.
    """

    json: Path | None = None
    markdown: Path | None = None
    figures: Path | None = None
    figure_format: str = "png"
    theme: str = "light"
    html: Path | None = None

    def __post_init__(self) -> None:
        if (self.figure_format, self.theme) == ("png", "light"):  # the defaults need no check, and so no matplotlib
            return
        from calibrant.plots import THEMES

        for option, given, known in (
            ("--figure-format", self.figure_format, ("png", "svg", "pdf")),
            ("--theme", self.theme, tuple(THEMES)),
        ):
            if given not in known:
                raise InputError(f"{option} must be one of {', '.join(known)}; got {given!r}.")

    def check(self, read: Iterable[Path]) -> None:
        """Check that all reports can be written.

        Args:
            read: Files that the command reads, which must not be overwritten.

        Raises:
            FileError: If one cannot be written, or is among the files that are read.
        """
        files = list(read)
        for target in (self.json, self.markdown, self.html):
            if target is not None:
                check_output(target, files)
        if self.figures is not None:
            check_folder(self.figures)

    @property
    def need_figures(self) -> bool:
        """Whether figures are drawn: for a folder, or for the HTML page."""
        return self.figures is not None or self.html is not None

    def draw(self, draw: "Callable[[ThemeName], Mapping[str, MatplotlibFigure]]") -> list[Figure]:
        """Draw and write the figures, if they are needed; return them for the page."""
        if not self.need_figures:
            return []
        from calibrant.plots import save_figures  # loads matplotlib

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

    def write(self, page: Page, figures: Sequence[Figure]) -> list[Path]:
        """Write the page in every form that was asked for, and to the summary of a GitHub job.

        Args:
            page: The report.
            figures: Figures that :meth:`draw` returned.

        Returns:
            The paths written, figures first.
        """
        written = [Path(figure.path) for figure in figures if figure.path is not None]
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
        _add_to_summary(lambda: to_markdown(page))
        return written


def _add_to_summary(text: Callable[[], str]) -> None:
    """Append a page to the summary of a GitHub job, if there is one."""
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with Path(summary).open("a", encoding="utf-8") as stream:
                stream.write(text())
        except OSError as error:  # the reports asked for are written
            standard_error().print(
                f"note: the job's summary, {terminal_text(summary)}, could not be written: {error.strerror}.",
                style="yellow",
            )

"""The reports that a command leaves: JSON, a Markdown page, pictures, and the summary of a job that has one."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, final

from calibrant.atomic import atomic_text
from calibrant.cli.output import check_drawing, check_folder, check_output, standard_error
from calibrant.report import Figure, Page, to_markdown, write
from calibrant.shown_text import terminal_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

    from calibrant.plots import ThemeName

__all__ = ["Reports", "write_json", "write_page", "write_reports"]

_DPI = 110  # of figures inside a page


@final
@dataclass(frozen=True)
class Reports:
    """Where a person wants reports, if at all, and how pictures are to look."""

    json: Path | None = None
    markdown: Path | None = None
    figures: Path | None = None
    figure_format: str = "png"
    theme: str = "light"
    html: Path | None = None

    def __post_init__(self) -> None:
        check_drawing(self.figure_format, self.theme)

    def check(self, read: Iterable[Path]) -> None:
        """Refuse, before the long work, places that cannot be written or that are read.

        Raises:
            FileError: If one cannot, or is.
        """
        files = list(read)
        for target in (self.json, self.markdown, self.html):
            if target is not None:
                check_output(target, files)
        check_folder(self.figures)

    def draw(self, draw: "Callable[[ThemeName], Mapping[str, MatplotlibFigure]]") -> list[Figure]:
        """Draw if figures or an HTML page are wanted, and write the figures that are; return them."""
        if self.figures is None and self.html is None:
            return []
        from calibrant.plots import save_figures  # loads matplotlib

        drawn = draw("dark" if self.theme == "dark" else "light")
        saved: Sequence[Path | None] = [None] * len(drawn)
        if self.figures is not None:
            saved = save_figures(drawn, self.figures, formats=[self.figure_format])
        return [
            _shown(name, figure, path, embed=self.html is not None)
            for (name, figure), path in zip(drawn.items(), saved, strict=True)
        ]

    def save_pictures(self, draw: "Callable[[ThemeName], Mapping[str, MatplotlibFigure]]") -> list[Path]:
        """Draw and write what is asked for; the paths written."""
        if self.figures is None:
            return []
        from calibrant.plots import save_figures  # matplotlib is loaded for those who want pictures

        theme: ThemeName = "dark" if self.theme == "dark" else "light"
        return save_figures(draw(theme), self.figures, formats=[self.figure_format])


def _shown(name: str, figure: "MatplotlibFigure", path: Path | None, *, embed: bool) -> Figure:
    """Return a figure for a page; its content, as png, only where a page embeds it."""
    content = BytesIO()
    if embed:
        figure.savefig(content, format="png", dpi=_DPI, facecolor=figure.get_facecolor())
    return Figure(name.replace("_", " "), path, content.getvalue())


def write_json(path: Path | None, document: Callable[[], dict[str, Any]]) -> list[Path]:
    """Write the document if a path is given; the paths written."""
    if path is None:
        return []
    with atomic_text(path) as stream:
        stream.write(json.dumps(document(), indent=2, ensure_ascii=False) + "\n")
    return [path]


def write_reports(page: Page, reports: Reports, figures: Sequence[Figure]) -> list[Path]:
    """Write a page in every form that was asked for, and to the summary of a GitHub job.

    Args:
        page: The report.
        reports: Where to.
        figures: Pictures, such as :meth:`Reports.draw` returns.

    Returns:
        The paths written, figures first.
    """
    written = [Path(figure.path) for figure in figures if figure.path is not None]
    if reports.json is not None:
        written.append(write(page, reports.json, form="json"))
    if reports.markdown is not None:
        folder = reports.markdown.parent
        linked = [replace(figure, path=Path(os.path.relpath(figure.path, folder))) for figure in figures if figure.path]
        written.append(write(page.with_figures(linked), reports.markdown, form="markdown"))
    if reports.html is not None:
        written.append(write(page.with_figures(figures), reports.html, form="html"))
    _add_to_summary(lambda: to_markdown(page))
    return written


def write_page(path: Path | None, pictures: Sequence[Path], page: Callable[[Sequence[PurePath]], str]) -> list[Path]:
    """Write the page, with its pictures, if a path is given, and without them to a job's summary; the paths written."""
    written = []
    if path is not None:
        with atomic_text(path) as stream:
            stream.write(page([Path(os.path.relpath(picture, path.parent)) for picture in pictures]))
        written.append(path)
    _add_to_summary(lambda: page([]))
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

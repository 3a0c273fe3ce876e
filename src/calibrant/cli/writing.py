"""The reports that a command leaves: JSON, a Markdown page, pictures, and the summary of a job that has one."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, final

from calibrant.cli.output import check_drawing, check_folder, check_output, standard_error
from calibrant.shown_text import terminal_text
from calibrant.sources.atomic import atomic_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from calibrant.plots import ThemeName

__all__ = ["Reports", "write_json", "write_page"]


@final
@dataclass(frozen=True)
class Reports:
    """Where a person wants reports, if at all, and how pictures are to look."""

    json: Path | None = None
    markdown: Path | None = None
    figures: Path | None = None
    figure_format: str = "png"
    theme: str = "light"

    def __post_init__(self) -> None:
        check_drawing(self.figure_format, self.theme)

    def check(self, read: Iterable[Path]) -> None:
        """Refuse, before the long work, places that cannot be written or that are read.

        Raises:
            FileError: If one cannot, or is.
        """
        files = list(read)
        for target in (self.json, self.markdown):
            if target is not None:
                check_output(target, files)
        check_folder(self.figures)

    def save_pictures(self, draw: "Callable[[ThemeName], Mapping[str, Figure]]") -> list[Path]:
        """Draw and write what is asked for; the paths written."""
        if self.figures is None:
            return []
        from calibrant.plots import save_figures  # matplotlib is loaded for those who want pictures

        theme: ThemeName = "dark" if self.theme == "dark" else "light"
        return save_figures(draw(theme), self.figures, formats=[self.figure_format])


def write_json(path: Path | None, document: Callable[[], dict[str, Any]]) -> list[Path]:
    """Write the document if a path is given; the paths written."""
    if path is None:
        return []
    with atomic_text(path) as stream:
        stream.write(json.dumps(document(), indent=2, ensure_ascii=False) + "\n")
    return [path]


def write_page(path: Path | None, pictures: Sequence[Path], page: Callable[[Sequence[PurePath]], str]) -> list[Path]:
    """Write the page, with its pictures, if a path is given, and without them to a job's summary; the paths written."""
    written = []
    if path is not None:
        with atomic_text(path) as stream:
            stream.write(page([Path(os.path.relpath(picture, path.parent)) for picture in pictures]))
        written.append(path)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with Path(summary).open("a", encoding="utf-8") as stream:
                stream.write(page([]))
        except OSError as error:  # the answer stands, and the reports asked for are written
            standard_error().print(
                f"note: the job's summary, {terminal_text(summary)}, could not be written: {error.strerror}.",
                style="yellow",
            )
    return written

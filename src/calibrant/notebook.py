"""Base class of records that have a report: shown in a notebook, and converted to Markdown or a data frame.

Records must not depend on ``calibrant.report``, which imports them, so it is imported by name when a page is needed.
"""

from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any

from calibrant.errors import InputError


class HasReport(ABC):
    """Base class of records with a report: see :func:`calibrant.report.page_of`."""

    def to_markdown(self) -> str:
        """Return the full report as Markdown."""
        report = import_module("calibrant.report")
        return str(report.to_markdown(report.page_of(self)))

    def to_latex(self) -> str:
        """Return the tables of the full report as LaTeX, which needs booktabs, amssymb and graphicx."""
        report = import_module("calibrant.report")
        return str(report.to_latex(report.page_of(self)))

    def __repr__(self) -> str:
        """Return the verdict in one line."""
        page = import_module("calibrant.report").page_of(self)
        return f"{type(self).__name__}({page.facts}: {page.verdict.headline})"

    def _repr_html_(self) -> str:
        """Return the report as an HTML fragment for a notebook; its styles apply to the fragment only."""
        report = import_module("calibrant.report")
        return str(report.to_html_fragment(report.page_of(self)))

    def to_frame(self) -> Any:
        """Return the numbers as a pandas DataFrame; an InputError if pandas is not installed."""
        try:
            pandas = import_module("pandas")
        except ImportError as error:
            raise InputError("to_frame() needs pandas, which is not installed. Run `pip install pandas`.") from error
        return pandas.DataFrame(self.frame_rows())

    @abstractmethod
    def frame_rows(self) -> list[dict[str, Any]]:
        """Return the rows of the data frame, each a dictionary by column."""

"""Records that show themselves in a notebook and turn into Markdown or a data frame.

A record belongs to the numbers, its page to the report, which stands above them. The report is therefore loaded by name
when a page is asked for, and the numbers never depend on it.
"""

from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any

from calibrant.errors import InputError


class Shown(ABC):
    """Base class of records that have a page: see :func:`calibrant.report.page_of`."""

    def to_markdown(self) -> str:
        """Return the full report as Markdown."""
        report = import_module("calibrant.report")
        return str(report.to_markdown(report.page_of(self)))

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the report as HTML that changes nothing around it."""
        report = import_module("calibrant.report")
        return str(report.to_html_fragment(report.page_of(self)))

    def to_frame(self) -> Any:
        """Return the numbers as a pandas DataFrame.

        Raises:
            InputError: If pandas is not installed.
        """
        try:
            pandas = import_module("pandas")
        except ImportError as error:
            raise InputError("to_frame() needs pandas, which is not installed. Run `pip install pandas`.") from error
        return pandas.DataFrame(self.frame_rows())

    @abstractmethod
    def frame_rows(self) -> list[dict[str, Any]]:
        """Return the rows of the data frame, each by column."""

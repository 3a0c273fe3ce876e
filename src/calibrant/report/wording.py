"""The verdict under its old name, until every record has a page."""

from calibrant.report.page import Verdict

__all__ = ["Verdict"]

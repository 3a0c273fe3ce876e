"""Number formats under their old names, until every record has a page."""

from calibrant.report.page import INFLATED, interval_text, number_text, p_text

__all__ = ["INFLATED", "interval", "number", "p_text"]

number, interval = number_text, interval_text

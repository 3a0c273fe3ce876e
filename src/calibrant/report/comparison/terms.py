"""The terms of a judgement on held-out rows, whatever is judged: which rows, and how."""

from importlib.metadata import version
from typing import Any, Protocol

__all__ = ["Terms", "rows_words", "settings_words", "terms_to_plain"]


class Terms(Protocol):
    """What every such judgement tells."""

    @property
    def n_calibration(self) -> int: ...
    @property
    def n_test(self) -> int: ...
    @property
    def n_classes(self) -> int: ...
    @property
    def n_bins(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def resamples(self) -> int: ...


def rows_words(terms: Terms) -> str:
    """How many rows there were."""
    return f"{terms.n_calibration:,} rows to fit, {terms.n_test:,} to judge, {terms.n_classes} classes"


def settings_words(terms: Terms) -> str:
    """What decides the numbers, given the rows."""
    return f"{terms.n_bins} bins; {terms.resamples} resamples; seed {terms.seed}"


def terms_to_plain(terms: Terms, *, calibration: str | None, test: str | None) -> dict[str, Any]:
    """The same as plain data.

    Args:
        terms: Of the judgement.
        calibration: Where the rows to fit on came from.
        test: Where the rows to judge by came from.
    """
    return {
        "calibrant": version("calibrant"),
        "calibration": {"source": calibration, "n": terms.n_calibration},
        "test": {"source": test, "n": terms.n_test},
        "classes": terms.n_classes,
        "bins": terms.n_bins,
        "seed": terms.seed,
        "resamples": terms.resamples,
    }

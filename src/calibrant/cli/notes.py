"""What should be known about an answer, said beside it."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from calibrant.errors import CalibrantWarning
from calibrant.shown_text import terminal_text

__all__ = ["warnings_shown"]


@contextmanager
def warnings_shown(err: Console) -> Iterator[list[str]]:
    """Our own warnings as one line each, at once and once; others as Python shows them, in the end.

    Yields:
        What was said so far.
    """
    said: list[str] = []
    others: list[warnings.WarningMessage] = []

    def show(*told: Any, **more: Any) -> None:
        warning = warnings.WarningMessage(*told, **more)
        if str(warning.message) in said:
            return
        if issubclass(warning.category, CalibrantWarning):
            said.append(str(warning.message))
            err.print(f"note: {terminal_text(warning.message)}", style="yellow")
        else:
            others.append(warning)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        yield said
    for other in others:
        warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)

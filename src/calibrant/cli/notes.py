"""What should be known about an answer, said beside it."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from calibrant.errors import CalibrantWarning

__all__ = ["warnings_shown"]


@contextmanager
def warnings_shown(err: Console) -> Iterator[list[str]]:
    """Our own warnings as one line each; others as Python shows them.

    Yields:
        What was said, once the block has ended.
    """
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield said
    for warning in caught:
        if issubclass(warning.category, CalibrantWarning):
            said.append(str(warning.message))
            err.print(f"note: {warning.message}", style="yellow")
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)

"""Doors to the frameworks people use: one module each, imported only when asked for."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needed(package: str, extra: str) -> Iterator[None]:
    """Import what an integration needs; if it is not installed, say how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"this integration needs {package}, which could not be imported ({error}). "
            f"Run: pip install 'calibrant[{extra}]'",
            name=error.name,
        ) from error

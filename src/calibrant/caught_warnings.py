"""Warnings of one thread, collected while others go on.

:class:`warnings.catch_warnings` changes what all threads share, and leaves it changed where two of them overlap. Here
the change is made once, by the first thread that comes, undone by the last that goes, and each gets its own warnings;
those of threads that collect none are treated as they were before.
"""

import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, final

from calibrant.errors import CalibrantWarning

__all__ = ["caught_warnings", "ours_in", "without_our_warnings"]

_collecting: ContextVar[list[warnings.WarningMessage] | None] = ContextVar("_collecting", default=None)


@contextmanager
def caught_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Collect every warning of this thread instead of showing it.

    Example:
        >>> with caught_warnings() as caught:
        ...     warnings.warn("few rows", CalibrantWarning)
        >>> [str(each.message) for each in caught]
        ['few rows']
    """
    caught: list[warnings.WarningMessage] = []
    token = _collecting.set(caught)
    _shared.enter()
    try:
        yield caught
    finally:
        _shared.leave()
        _collecting.reset(token)


@contextmanager
def without_our_warnings() -> Iterator[None]:
    """Drop the library's own warnings of this thread; those of others are passed on in the end."""
    caught: list[warnings.WarningMessage] = []
    try:
        with caught_warnings() as caught:
            yield
    finally:
        ours_in(caught)


def ours_in(caught: Sequence[warnings.WarningMessage]) -> list[str]:
    """What the library's own warnings among those collected say; all others are passed on."""
    ours = [each for each in caught if issubclass(each.category, CalibrantWarning)]
    for other in caught:
        if other not in ours:
            warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
    return [str(each.message) for each in ours]


@final
class _Shared:
    """What all threads share: how many collect, and what held before the first of them came."""

    def __init__(self) -> None:
        self._lock, self._threads = threading.Lock(), 0
        self._outside: Any = None
        self._filters: Sequence[Any] = ()
        self._show: Any = None

    def enter(self) -> None:
        with self._lock:
            self._threads += 1
            if self._threads > 1:
                return
            self._filters, self._show = list(warnings.filters), warnings.showwarning
            self._outside = warnings.catch_warnings()
            self._outside.__enter__()
            warnings.simplefilter("always")
            warnings.showwarning = self._heard

    def leave(self) -> None:
        with self._lock:
            self._threads -= 1
            if not self._threads:
                self._outside.__exit__(None, None, None)

    def _heard(self, *told: Any, **more: Any) -> None:
        warning = warnings.WarningMessage(*told, **more)
        caught = _collecting.get()
        if caught is not None:
            caught.append(warning)
            return
        action = next((each[0] for each in self._filters if _fits(each, warning)), "default")
        if action == "error":
            assert isinstance(warning.message, Warning)
            raise warning.message
        if action != "ignore":
            self._show(*told, **more)


def _fits(wanted: Any, warning: warnings.WarningMessage) -> bool:
    """Whether a filter is for this warning; its module is known by its file only."""
    _, text, category, module, line = wanted
    name = warning.filename.removesuffix(".py")
    return (
        (text is None or bool(text.match(str(warning.message))))
        and issubclass(warning.category, category)
        and (module is None or (module == name if isinstance(module, str) else bool(module.match(name))))
        and line in {0, warning.lineno}
    )


_shared = _Shared()

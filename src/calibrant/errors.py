"""Every exception of the library, so that one ``except CalibrantError`` catches them all.

::

    CalibrantError
    ├── InputError            an input does not meet a requirement (also a ValueError)
    │   ├── FileError         a file that cannot be read or written
    │   └── UnknownNameError  a metric, method or column that does not exist
    └── FitError              a fit that did not converge, or cannot (also a RuntimeError)
        └── SeparableError    one that cannot, because the samples are separable

Messages state what must hold, what was received, and what to do. Code never parses a message: an error has the
``argument`` it is about, as an ``Argument`` of its message or by keyword, and a ``CalibrantWarning`` its ``Caveat``. A
``Row`` of a message is shown as the line of a file of text. The module also collects warnings, turns errors of other
libraries into ours, and checks the memory that files need.
"""

import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, final


class Argument(NamedTuple):
    """An argument in the message of an error: Python shows ``labels='y'``, the command line ``--labels y``."""

    name: str
    value: str | None = None
    is_literal: bool = True  # whether Python quotes the value; not a placeholder such as NAME

    def __str__(self) -> str:
        value = repr(self.value) if self.is_literal else self.value
        return self.name if self.value is None else f"{self.name}={value}"


class Row(NamedTuple):
    """A row in the message of an error, counted from 0; of a file of text, the line that it begins in, from 1."""

    number: int
    line: int | None = None

    def __str__(self) -> str:
        return f"row {self.number} (counting from 0)" if self.line is None else f"line {self.line}"


CHECK_LABELS = (
    "Check first that the labels belong to these samples, that their classes have the order of the scores, and that "
    "the inputs were prepared as in training."
)
# Ends a message about what could be several labels of one sample.
MULTI_LABEL: tuple[str | Argument, ...] = (
    "If a sample can have several labels (multi-label), evaluate one at a time: a file with its probability and 0/1, ",
    *("read with ", Argument("positive", "NAME", is_literal=False), "; for arrays, from_binary_probs."),
)


class CalibrantError(Exception):
    """Base class of all errors that this library raises on purpose.

    Args:
        parts: The message, in one piece or in several with arguments and rows among them.
        argument: Name of the argument that the error is about; by default that of the first in the message.
    """

    def __init__(self, *parts: "str | Argument | Row", argument: str | None = None) -> None:
        super().__init__(*parts)
        named = (part.name for part in parts if isinstance(part, Argument))
        self.argument = argument or next(named, None)

    def __str__(self) -> str:
        return self.message(str)

    def message(self, shown: Callable[[Argument], str]) -> str:
        """Return the message with its arguments as the caller shows them."""
        return "".join(shown(part) if isinstance(part, Argument) else str(part) for part in self.args)


class InputError(CalibrantError, ValueError):
    """An input that does not meet the requirements of the function."""


@final
class FileError(InputError):
    """A file that cannot be read or written."""


@final
class UnknownNameError(InputError):
    """A name that is not in the catalogue, the file or the command line."""


def check_kind(given: object, kind: type | tuple[type, ...], name: str, advice: str) -> None:
    """Check that an argument is of a kind; the advice says how to make one."""
    if not isinstance(given, kind):
        title = " or ".join(one.__name__ for one in (kind if isinstance(kind, tuple) else (kind,)))
        raise InputError(f"{name} must be of type {title}; got {type(given).__name__}. {advice}")


class FitError(CalibrantError, RuntimeError):
    """A fit that did not reach its optimum; its message says why."""


@final
class SeparableError(FitError):
    """Samples that are separable, or almost: larger parameters are always better, and none are best."""


class Caveat(StrEnum):
    """Kinds of warnings that a report must mention."""

    not_at_optimum = "not_at_optimum"  # a fit ended before it converged
    objective_rose = "objective_rose"  # a fit ended above its start
    weakest_strength = "weakest_strength"  # the weakest penalty that was tried is the best
    path_cut_short = "path_cut_short"  # weaker penalties could not be tried
    delta_too_large = "delta_too_large"  # the network hardly sees its inputs any more
    no_better_than_guessing = "no_better_than_guessing"  # predictions as good as chance
    floored_labels = "floored_labels"  # true classes of probability 0, which decide the log-loss
    rows_dropped = "rows_dropped"  # rows of a source without a score or label were left out


@final
class CalibrantWarning(UserWarning):
    """A reservation about a result; ``caveat`` is its kind, if other code acts on it, and ``facts`` its numbers."""

    def __init__(
        self, message: str = "", *, caveat: Caveat | None = None, facts: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.caveat, self.facts = caveat, dict(facts or {})


def warn(message: str, *, caveat: Caveat | None = None, facts: Mapping[str, Any] | None = None) -> None:
    """Emit a :class:`CalibrantWarning` for the line outside this package, and torch, that led to it."""
    frame, level = sys._getframe().f_back, 2
    while frame is not None and frame.f_globals.get("__name__", "").startswith(("calibrant.", "torch.", "contextlib")):
        frame, level = frame.f_back, level + 1
    warnings.warn(CalibrantWarning(message, caveat=caveat, facts=facts), stacklevel=level)


def one_line(error: BaseException) -> str:
    """Return the type and the most informative line of another library's error."""
    lines = str(error).strip().splitlines() or [""]
    # The message of an error in a data loader's worker is a traceback, whose last line has the reason.
    line = lines[-1 if lines[0].startswith("Caught ") else 0].rstrip(".")
    kind = type(error).__name__
    return f"{kind}: {line}" if line and not line.startswith(f"{kind}:") else line or kind


_ALWAYS_FREE = 1 << 26  # bytes for which free memory is not checked
_ALWAYS_ALLOWED = 1 << 30  # bytes that any file may expand to
_MOST_TIMES = 100  # times its size that a larger file may expand to; scores compress to a tenth at best
_LESS = "Read fewer rows or classes at a time, or use a machine with more memory."


@contextmanager
def reading(path: Path | str, form: str) -> Iterator[None]:
    """Turn any error inside into a FileError that names the file and its ``form``, such as "CSV file"."""
    try:
        yield
    except InputError as error:
        raise error if isinstance(error, FileError) else FileError(f"{path}: ", *error.args) from error
    except PermissionError as error:
        raise FileError(f"{path} must be readable; you lack the permission. Ask its owner, or copy it.") from error
    except Exception as error:
        if is_out_of_memory(error):
            raise FileError(
                f"{path} must fit into memory; reading it needs more than is free. A small file that does so is "
                f"damaged. {_LESS}"
            ) from error
        first_line = (str(error).splitlines() or [""])[0].replace(". in row", " in row").split(". ")[0].rstrip(". ")
        cure = "It may be cut short or damaged, or its ending may not match its format; write or download it again."
        if re.search("utf-?8", first_line, re.IGNORECASE):  # Arrow has no class of its own for it
            cure = "Save the text as UTF-8; Excel calls it CSV UTF-8."
        failure = f"reading it failed: {first_line or type(error).__name__}. {cure}"
        raise FileError(f"{path} must be a whole {form}; {failure}") from error


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of any library means that memory has run out."""
    if isinstance(error, MemoryError):  # also the base class of NumPy's and Arrow's
        return True
    # On the CPU torch raises a RuntimeError, worded by its build. It is not imported here: not every command needs it.
    on_accelerator = type(error).__name__ == "OutOfMemoryError"
    return isinstance(error, RuntimeError) and (on_accelerator or "DefaultCPUAllocator" in str(error))


def check_expansion(path: Path, n_bytes: int, *, held: bool = True) -> None:
    """Check that the bytes a file expands to are plausible for its size and, if all are held, fit into memory."""
    most = max(_ALWAYS_ALLOWED, _MOST_TIMES * path.stat().st_size)
    if n_bytes > most:
        raise FileError(
            f"{path} must not expand to more than {most / 1e9:.1f} GB; its {path.stat().st_size:,} bytes claim "
            f"{n_bytes / 1e9:.1f} GB. It is damaged or malicious; if it is yours, save it without compression."
        )
    if held:
        check_memory(path, n_bytes)


def check_memory(path: Path, n_bytes: int) -> None:
    """Check that there is memory for the content of a file, if the system reports how much is free."""
    free = free_memory() if n_bytes > _ALWAYS_FREE else None
    if free is not None and n_bytes > free:
        raise FileError(
            f"{path} must fit into memory; it needs at least {n_bytes / 1e9:.1f} GB, and {free / 1e9:.1f} GB are left. "
            f"{_LESS}"
        )


def free_memory() -> int | None:
    """Return the free memory in bytes; None if unknown."""
    try:
        free = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return None
    return None if free is None else int(free[1]) << 10


_collecting: ContextVar[list[warnings.WarningMessage] | None] = ContextVar("_collecting", default=None)


@contextmanager
def caught_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Collect every warning of this thread instead of showing it."""
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
    """Drop the library's own warnings of this thread; others are emitted at the end."""
    caught: list[warnings.WarningMessage] = []
    try:
        with caught_warnings() as caught:
            yield
    finally:
        ours_in(caught)


def ours_in(caught: Sequence[warnings.WarningMessage]) -> list[str]:
    """Return the messages of the library's own warnings among those collected; emit all others."""
    ours = [warning for warning in caught if issubclass(warning.category, CalibrantWarning)]
    for warning in caught:
        if warning not in ours:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return [str(warning.message) for warning in ours]


@final
class _Shared:
    """State shared by all threads: how many collect warnings, and the settings before the first of them."""

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
            warnings.showwarning = self._on_warning

    def leave(self) -> None:
        with self._lock:
            self._threads -= 1
            if not self._threads:
                self._outside.__exit__(None, None, None)

    def _on_warning(self, *arguments: Any, **options: Any) -> None:
        warning = warnings.WarningMessage(*arguments, **options)
        caught = _collecting.get()
        if caught is not None:
            caught.append(warning)
            return
        action = next((entry[0] for entry in self._filters if _matches(entry, warning)), "default")
        if action == "error":
            assert isinstance(warning.message, Warning)
            raise warning.message
        if action != "ignore":
            self._show(*arguments, **options)


def _matches(wanted: Any, warning: warnings.WarningMessage) -> bool:
    """Return whether a filter matches this warning, whose module is known by its file only."""
    _, text, category, module, line = wanted
    name = warning.filename.removesuffix(".py")
    return (
        (text is None or bool(text.match(str(warning.message))))
        and issubclass(warning.category, category)
        and (module is None or (module == name if isinstance(module, str) else bool(module.match(name))))
        and line in {0, warning.lineno}
    )


_shared = _Shared()

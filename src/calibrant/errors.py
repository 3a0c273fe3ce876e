"""Every exception of the library, so that one ``except CalibrantError`` catches them all.

::

    CalibrantError
    ├── InputError            what was given is not what must hold (also a ValueError)
    │   ├── FileError         a file that cannot be read as predictions
    │   └── UnknownNameError  a metric, method or column that does not exist
    └── FitError              a fit that did not converge, or cannot (also a RuntimeError)
        └── SeparableError    one that cannot, because (almost) all rows are right

    Argument                  an argument in the message of an error
    CalibrantWarning          the answer stands, but something about it should be known
    Caveat                    kinds of warnings that other code acts on

Messages say what must hold, what was received, and what to do; ``in_a_line`` quotes an error of others in them. Code
never reads a message: an error has the ``argument`` it is about, as an ``Argument`` of its message or by keyword, and a
warning its ``caveat``, where other code needs to know.
"""

import re
import threading
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, final

__all__ = [
    "Argument",
    "CalibrantError",
    "CalibrantWarning",
    "Caveat",
    "FileError",
    "FitError",
    "InputError",
    "SeparableError",
    "UnknownNameError",
    "caught_warnings",
    "check_expansion",
    "check_memory",
    "in_a_line",
    "is_out_of_memory",
    "markdown_code",
    "markdown_text",
    "most_expanded",
    "ours_in",
    "reading",
    "terminal_text",
    "without_our_warnings",
]


class Argument(NamedTuple):
    """An argument in the message of an error: Python shows ``labels='y'``, the command line ``--labels y``."""

    name: str
    value: str | None = None
    is_literal: bool = True  # whether Python quotes the value; not a placeholder such as NAME

    def __str__(self) -> str:
        value = repr(self.value) if self.is_literal else self.value
        return self.name if self.value is None else f"{self.name}={value}"


class CalibrantError(Exception):
    """Base of all errors that this library raises on purpose.

    Args:
        parts: The message: what must hold, what was received, what to do. In one piece, or in several with the
            arguments among them.
        argument: Name of the argument that the error is about; by default that of the first in the message.

    Example:
        >>> error = InputError("give ", Argument("labels", "y"), ".")
        >>> str(error), error.argument, error.message(lambda argument: f"--{argument.name} {argument.value}")
        ("give labels='y'.", 'labels', 'give --labels y.')
    """

    def __init__(self, *parts: "str | Argument", argument: str | None = None) -> None:
        super().__init__(*parts)
        named = (part.name for part in parts if isinstance(part, Argument))
        self.argument = argument or next(named, None)

    def __str__(self) -> str:
        return self.message(str)

    def message(self, shown: Callable[[Argument], str]) -> str:
        """Return the message with its arguments as the caller shows them."""
        return "".join(shown(part) if isinstance(part, Argument) else str(part) for part in self.args)


class InputError(CalibrantError, ValueError):
    """What was given does not meet what the function requires."""


@final
class FileError(InputError):
    """A file that cannot be read as predictions, or cannot be written."""


@final
class UnknownNameError(InputError):
    """A name that is not in the catalogue, the file or the command line."""


class FitError(CalibrantError, RuntimeError):
    """A fit that did not reach its optimum; its message says why."""


@final
class SeparableError(FitError):
    """Rows that are (almost) all right, or can be told apart: larger parameters are always better, none are best."""


class Caveat(StrEnum):
    """Warnings that change how a result is to be read, for code that reports on it."""

    not_at_optimum = "not_at_optimum"  # a fit ended before it converged
    objective_rose = "objective_rose"  # a fit ended above its start
    weakest_strength = "weakest_strength"  # the weakest penalty that was tried is the best
    path_cut_short = "path_cut_short"  # weaker penalties could not be tried
    delta_too_large = "delta_too_large"  # the network hardly sees its inputs any more
    no_better_than_guessing = "no_better_than_guessing"  # the predictions, whatever the fit


@final
class CalibrantWarning(UserWarning):
    """The answer stands, but the person should know this about it.

    Args:
        message: What was noticed, and what to do.
        caveat: Kind of the warning, where code needs to tell it from others.
    """

    def __init__(self, message: str = "", *, caveat: Caveat | None = None) -> None:
        super().__init__(message)
        self.caveat = caveat


def in_a_line(error: BaseException) -> str:
    """What someone else's error says, to be quoted: its kind, and the line that tells most.

    Example:
        >>> in_a_line(KeyError("label"))
        "KeyError: 'label'"
    """
    lines = str(error).strip().splitlines() or [""]
    # What comes from a loader's worker is a traceback.
    said = lines[-1 if lines[0].startswith("Caught ") else 0].rstrip(".")
    kind = type(error).__name__
    return f"{kind}: {said}" if said and not said.startswith(f"{kind}:") else said or kind


# Control characters, those that turn the direction of writing, line and paragraph separators, halves of characters.
_HIDDEN = {"Cc", "Cf", "Zl", "Zp", "Cs"}
_JOINERS = "\u200c\u200d"  # inside words of some languages, and inside emoji

# What begins something in Markdown or HTML; the rest of its signs mean something only where a line or a word begins.
_MARKS = re.compile(r"[\\`*\[\]|~]|<(?=[A-Za-z/!?])|(?<!\w)_|_(?!\w)")
_ENTITY = re.compile(r"&(?=#?\w+;)")
_LINE_START = re.compile(r"^(\s*)([#>+=-]|\d+(?=[.)](?:\s|$)))")


def terminal_text(text: object, *, lines: bool = False) -> str:
    r"""Text with what a terminal would act on, or not show, written out.

    Args:
        text: Anything; it is shown as ``str`` gives it.
        lines: Whether line breaks stay, as in text of our own.

    Example:
        >>> print(terminal_text("cat\x1b[31m\nAll is well"))
        cat\x1b[31m\nAll is well
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    kept = _JOINERS + "\n" * lines
    return "".join(
        char if char in kept or unicodedata.category(char) not in _HIDDEN else char.encode("unicode_escape").decode()
        for char in shown
    )


def markdown_text(text: object) -> str:
    r"""Text that a Markdown page shows as it is: no markup, link, picture, heading, table cell or HTML comes of it.

    Example:
        >>> print(markdown_text("<b>cat</b> | [x](http://y)"))
        \<b>cat\</b> \| \[x\](http&#58;//y)
    """
    shown = _ENTITY.sub("&amp;", terminal_text(text))
    shown = _MARKS.sub(lambda mark: f"\\{mark[0]}", shown).replace("://", "&#58;//")
    return _LINE_START.sub(lambda start: f"{start[1]}{_escaped_start(start[2])}", shown)


def markdown_code(text: object) -> str:
    r"""A name as code on a Markdown page, also in a table.

    Example:
        >>> print(markdown_code("focal(gamma=3)"), markdown_code("a`b|c"))
        `focal(gamma=3)` ``a`b\|c``
    """
    shown = terminal_text(text)
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    pad = " " if shown[:1] == "`" or shown[-1:] == "`" else ""
    return f"{ticks}{pad}{shown}{pad}{ticks}".replace("|", "\\|")


def _escaped_start(sign: str) -> str:
    return f"&#{ord(sign[0])};{sign[1:]}" if sign[0].isdigit() else f"\\{sign}"


_SMALL = 1 << 26  # bytes, of which there are always so many left
_ALWAYS_FINE = 1 << 30  # bytes that any file may expand to
_MOST_TIMES = 100  # its size that a larger one may expand to; scores compress to a tenth at best


@contextmanager
def reading(path: Path | str, form: str) -> Iterator[None]:
    """Turn whatever a lower library raises on a bad file into one error that says which file and what to do.

    Args:
        path: Path of the file.
        form: What it should be, in words.

    Raises:
        FileError: If anything is raised inside.
    """
    try:
        yield
    except InputError as error:
        raise error if isinstance(error, FileError) else FileError(f"{path}: ", *error.args) from error
    except PermissionError as error:
        raise FileError(f"{path} must be readable; you lack the permission. Ask its owner, or copy it.") from error
    except Exception as error:
        if is_out_of_memory(error):
            raise FileError(
                f"{path} must fit into memory; reading it asks for more than is left. A small file that does so is "
                f"damaged. {_LESS}"
            ) from error
        first_line = (str(error).splitlines() or [""])[0].split(". ")[0].rstrip(". ")
        raise FileError(
            f"{path} must be a whole {form}; reading it failed: {first_line or type(error).__name__}. "
            "It may have been cut short or damaged, or its ending may not fit what it is; write or download it again."
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, of whatever library, says that memory has run out."""
    if isinstance(error, MemoryError):  # of which those of NumPy and Arrow are kinds
        return True
    # On the CPU torch has no type of its own for it; here it is not imported, as not every command needs it.
    on_accelerator = type(error).__name__ == "OutOfMemoryError"
    return isinstance(error, RuntimeError) and (on_accelerator or "not enough memory" in str(error))


def check_expansion(path: Path, n_bytes: int) -> None:
    """What a file says that it expands to is neither absurd nor more than there is memory for; seen before it is read.

    Args:
        path: The file.
        n_bytes: How many bytes what is wanted of it will take.

    Raises:
        FileError: If it is.
    """
    most = most_expanded(path)
    if n_bytes > most:
        raise FileError(
            f"{path} must not expand to more than {most / 1e9:.1f} GB; its {path.stat().st_size:,} bytes say that they "
            f"hold {n_bytes / 1e9:.1f} GB. It is damaged, or made to fill the memory; if it is yours, save it without "
            "compression."
        )
    check_memory(path, n_bytes)


def most_expanded(path: Path) -> int:
    """How many bytes a compressed file may expand to before it is taken for a trap."""
    return max(_ALWAYS_FINE, _MOST_TIMES * path.stat().st_size)


def check_memory(path: Path, n_bytes: int) -> None:
    """There is memory for what a file holds.

    Raises:
        FileError: If there is not, as far as the system says.
    """
    free = _free_memory() if n_bytes > _SMALL else None
    if free is not None and n_bytes > free:
        raise FileError(
            f"{path} must fit into memory; it needs at least {n_bytes / 1e9:.1f} GB, and {free / 1e9:.1f} GB are left. "
            f"{_LESS}"
        )


def _free_memory() -> int | None:
    """Bytes that can still be taken; None where the system does not say."""
    try:
        free = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return None
    return None if free is None else int(free[1]) << 10


_LESS = "Read fewer rows or classes at a time, or use a machine with more memory."


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

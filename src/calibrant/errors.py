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

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple, final

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
    "in_a_line",
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

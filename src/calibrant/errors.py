"""Every exception of the library, so that one ``except CalibrantError`` catches them all.

::

    CalibrantError
    ├── InputError            what was given is not what must hold (also a ValueError)
    │   ├── FileError         a file that cannot be read as predictions
    │   └── UnknownNameError  a metric, method or column that does not exist
    └── FitError              a fit that did not converge, or cannot (also a RuntimeError)
        └── SeparableError    one that cannot, because (almost) all rows are right

    CalibrantWarning          the answer stands, but something about it should be known

Messages say what must hold, what was got, and what to do; ``in_a_line`` quotes an error of others in them.
"""

from typing import final

__all__ = [
    "CalibrantError",
    "CalibrantWarning",
    "FileError",
    "FitError",
    "InputError",
    "SeparableError",
    "UnknownNameError",
    "in_a_line",
]


class CalibrantError(Exception):
    """Base of all errors that this library raises on purpose."""


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


@final
class CalibrantWarning(UserWarning):
    """The answer stands, but the person should know this about it."""


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

"""Every exception of the library, so that one ``except CalibrantError`` catches them all.

::

    CalibrantError
    ├── InputError            what was given is not what must hold (also a ValueError)
    │   ├── FileError         a file that cannot be read as predictions
    │   └── UnknownNameError  a metric, method or column that does not exist
    └── FitError              a fit that did not converge, or cannot (also a RuntimeError)

    CalibrantWarning          the answer stands, but something about it should be known

Messages say what must hold, what was got, and what to do.
"""

from typing import final

__all__ = ["CalibrantError", "CalibrantWarning", "FileError", "FitError", "InputError", "UnknownNameError"]


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


@final
class FitError(CalibrantError, RuntimeError):
    """A fit that did not reach its optimum; its message says why."""


@final
class CalibrantWarning(UserWarning):
    """The answer stands, but the person should know this about it."""

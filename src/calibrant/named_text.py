"""Things of the catalogue as a person writes them: ``temperature``, or with options ``temperature(criterion=focal)``.

Options are those of the thing's constructor, read by their types; nothing is evaluated.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, get_type_hints

from calibrant.checks import check_known
from calibrant.errors import InputError
from calibrant.option_text import option_in_words, read_option, split_outside_brackets

__all__ = ["NamedKind", "read_named"]

T = TypeVar("T")


class NamedKind(NamedTuple):
    """What messages call such a thing, and how one reads."""

    words: str
    examples: str


def read_named(text: str, known: Mapping[str, T], kind: NamedKind, inside: Callable[[str], Any]) -> T:
    """The thing that a text describes.

    Args:
        text: A name, and options in brackets if any differ from the usual (a list of them in square brackets).
        known: Every thing by name, with its usual options.
        kind: For messages.
        inside: Reads an option that is itself such a thing.

    Raises:
        UnknownNameError: If there is no such thing, or it has no such option; the message names the closest.
        InputError: If the text does not read like that, or a value does not suit its option.
    """
    found = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", text, flags=re.DOTALL)
    if found is None:
        raise InputError(f"{kind.words} must read like {kind.examples}; got {text.strip()!r}.")
    name, options = found.groups()
    check_known(name, known, kind.words)
    made: Any = type(known[name])
    return made(**_options(name, options or "", made, inside))


def _options(name: str, text: str, made: Any, inside: Callable[[str], Any]) -> dict[str, Any]:
    hints, names = get_type_hints(made.__init__), list(inspect.signature(made).parameters)
    options: dict[str, Any] = {}
    for part in split_outside_brackets(text, ",") if text.strip() else []:
        option, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise InputError(f"the options of {name} must read name=value; got {part.strip()!r}.")
        check_known(option, names, f"an option of {name}")
        if option in options:
            raise InputError(f"an option must be given once; got {option} of {name} twice.")
        try:
            options[option] = read_option(value, hints[option], inside)
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            wanted = option_in_words(hints[option])
            raise InputError(f"{option} of {name} must be {wanted}; got {value!r}.") from error
    return options

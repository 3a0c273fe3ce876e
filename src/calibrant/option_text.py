"""Options as a person writes them: a text read as what the option's type says. Nothing is evaluated."""

import math
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from calibrant.errors import InputError

__all__ = ["option_in_words", "read_option", "split_outside_brackets"]


def read_option(text: str, hint: Any, method: Callable[[str], Any]) -> Any:
    """The text as what its option's type says.

    Args:
        text: As the person wrote it.
        hint: The type: a plain one, a Literal, a tuple of one of these, or several to try.
        method: Reads what is of none of these types.

    Raises:
        ValueError: If the text is none of that type.

    Example:
        >>> read_option("none", int | None, str), read_option("[1, 2.5]", tuple[float, ...], str)
        (None, (1.0, 2.5))
    """
    form, parts = get_origin(hint), get_args(hint)
    if form in {Union, UnionType}:
        return _first_that_reads(text, parts, method)
    if form is Literal:
        return _one_of(text, {str(each): each for each in parts})
    if form is tuple:
        inside = text[1:-1] if text.startswith("[") and text.endswith("]") else _refuse(text)
        return tuple(read_option(part.strip(), parts[0], method) for part in split_outside_brackets(inside, ","))
    if hint in _PLAIN:
        return _PLAIN[hint].read(text)
    return method(text)


def _first_that_reads(text: str, hints: tuple[Any, ...], method: Callable[[str], Any]) -> Any:
    # "none" is nothing before it is anything else, and every text is a word, so these are tried first and last.
    for hint in sorted(hints, key=lambda hint: (hint is not type(None), hint is str)):
        try:
            return read_option(text, hint, method)
        except InputError:  # of a method inside, which says what is wrong with it
            raise
        except ValueError:
            continue
    return _refuse(text)


def _one_of(text: str, choices: Mapping[str, Any]) -> Any:
    return choices[text] if text in choices else _refuse(text)


def _number(text: str) -> float:
    return _refuse(text) if math.isnan(float(text)) else float(text)


def _refuse(text: str) -> Any:
    raise ValueError(text)


class _Plain(NamedTuple):
    """How a type of option is read, and what messages call it."""

    read: Callable[[str], Any]
    words: str


_PLAIN: dict[Any, _Plain] = {
    bool: _Plain(lambda text: _one_of(text.lower(), {"true": True, "false": False}), "true or false"),
    int: _Plain(int, "a whole number"),
    float: _Plain(_number, "a number"),
    str: _Plain(lambda text: text or _refuse(text), "a word"),
    type(None): _Plain(lambda text: _one_of(text.lower(), {"none": None}), "none"),
}


def option_in_words(hint: Any) -> str:
    """What an option of this type must be.

    Example:
        >>> option_in_words(int | None)
        'a whole number or none'
    """
    form, parts = get_origin(hint), get_args(hint)
    if form in {Union, UnionType}:
        return " or ".join(option_in_words(each) for each in parts)
    if form is Literal:
        return f"one of {', '.join(map(str, parts))}"
    if form is tuple:
        return f"a list in square brackets, each of it {option_in_words(parts[0])}"
    return _PLAIN[hint].words if hint in _PLAIN else "a method"


def split_outside_brackets(text: str, separator: str) -> list[str]:
    """Pieces between separators that stand outside all brackets.

    Raises:
        InputError: If a bracket is not closed, or was never opened.

    Example:
        >>> split_outside_brackets("none,temperature(criterion=focal,gamma=2)", ",")
        ['none', 'temperature(criterion=focal,gamma=2)']
    """
    pieces, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if depth < 0:
            break
        if letter == separator and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += letter
    if depth:
        raise InputError(f"every bracket must be closed and opened; got {text!r}.")
    return pieces

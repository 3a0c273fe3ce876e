"""Methods as a person writes them: ``temperature``, ``temperature(criterion=focal,gamma=2)``, ``temperature+isotonic``.

Options are the fields of the method's dataclass, read by their types; nothing is evaluated.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, TypeAlias, get_type_hints

from calibrant.calibrators import Calibrator, Chain, FeatureCalibrator
from calibrant.checks import check_known
from calibrant.errors import InputError
from calibrant.option_text import option_in_words, read_option, split_outside_brackets

__all__ = ["AnyCalibrator", "parse_method", "without_features"]

AnyCalibrator: TypeAlias = Calibrator | FeatureCalibrator  # the second is fitted on features beside predictions


def parse_method(text: str, known: Mapping[str, AnyCalibrator]) -> AnyCalibrator:
    """The method that a text describes.

    Args:
        text: A name, options in brackets if any differ from the usual (a list of them in square brackets), and ``+``
            between the steps of a chain.
        known: Every method by name, with its usual options.

    Raises:
        UnknownNameError: If there is no such method, or it has no such option; the message names the closest.
        InputError: If the text does not read like that, a value does not suit its option, or a step of a chain needs
            features.

    Example:
        >>> from calibrant.calibrators import DoNothing
        >>> parse_method("none+none", {"none": DoNothing()})
        Chain(steps=(DoNothing(), DoNothing()))
    """
    parts = split_outside_brackets(text, "+")
    if len(parts) == 1:
        return _single(text, known)
    return Chain(tuple(without_features(_single(part, known)) for part in parts))


def without_features(method: AnyCalibrator) -> Calibrator:
    """The method, if predictions are all it needs.

    Raises:
        InputError: If it needs features too.
    """
    if isinstance(method, FeatureCalibrator):
        raise InputError(
            f"{method.name} needs features beside the predictions, so it cannot stand here: fit it by itself."
        )
    return method


def _single(text: str, known: Mapping[str, AnyCalibrator]) -> AnyCalibrator:
    found = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", text, flags=re.DOTALL)
    if found is None:
        raise InputError(
            "a method must read like temperature, temperature(criterion=focal) or temperature+isotonic; "
            f"got {text.strip()!r}."
        )
    name, options = found.groups()
    check_known(name, known, "a method")
    kind: Any = type(known[name])
    return kind(**_options(name, options or "", kind, known))


def _options(method: str, text: str, kind: Any, known: Mapping[str, AnyCalibrator]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    fields = [field.name for field in dataclasses.fields(kind) if field.init]
    options: dict[str, Any] = {}

    def method_inside(words: str) -> Calibrator:
        return without_features(parse_method(words, known))

    for part in split_outside_brackets(text, ",") if text.strip() else []:
        option, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise InputError(f"the options of {method} must read name=value; got {part.strip()!r}.")
        check_known(option, fields, f"an option of {method}")
        if option in options:
            raise InputError(f"an option must be given once; got {option} of {method} twice.")
        try:
            options[option] = read_option(value, hints[option], method_inside)
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            wanted = option_in_words(hints[option])
            raise InputError(f"{option} of {method} must be {wanted}; got {value!r}.") from error
    return options

"""Methods as a person writes them: ``temperature``, ``temperature(criterion=focal)``, ``temperature+isotonic``."""

from collections.abc import Mapping
from typing import TypeAlias

from calibrant.calibrators import Calibrator, Chain, FeatureCalibrator
from calibrant.errors import InputError
from calibrant.named_text import NamedKind, read_named
from calibrant.option_text import split_outside_brackets

__all__ = ["AnyCalibrator", "parse_method", "without_features"]

AnyCalibrator: TypeAlias = Calibrator | FeatureCalibrator  # the second is fitted on features beside predictions

_KIND = NamedKind("a method", "temperature, temperature(criterion=focal) or temperature+isotonic")


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

    def method_inside(words: str) -> Calibrator:
        return without_features(parse_method(words, known))

    parts = split_outside_brackets(text, "+")
    methods = [read_named(part, known, _KIND, method_inside) for part in parts]
    return methods[0] if len(methods) == 1 else Chain(tuple(map(without_features, methods)))


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

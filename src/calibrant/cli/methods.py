"""The methods that a comparison was asked for."""

from dataclasses import dataclass
from typing import Self, final

from calibrant.calibrators import Calibrator, HistogramBinning, IsotonicRegression, VectorScaling
from calibrant.calibrators.absent import absent_classes
from calibrant.calibrators.choice.defaults import default_candidates
from calibrant.catalogue import all_calibrators, find_calibrator
from calibrant.errors import InputError
from calibrant.option_text import split_outside_brackets
from calibrant.predictions import Predictions

__all__ = ["Methods"]

# A chain whose steps nobody chose is doing nothing, which takes part anyway.
_NOT_BY_ITSELF = {"chain"}


@final
@dataclass(frozen=True)
class Methods:
    """Named ones, or, with none, those that suit the rows."""

    named: tuple[Calibrator, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``default``, ``all``, or descriptions with commas between them.

        Raises:
            UnknownNameError: If there is no such method; the message names the closest.
            InputError: If there is nothing to read.

        Example:
            >>> [method.name for method in Methods.parse("none, temperature(criterion=focal,gamma=2)").named]
            ['none', 'temperature']
        """
        words = [word.strip() for word in split_outside_brackets(text, ",")]
        if words == ["default"]:
            return cls()
        if words == ["all"]:
            return cls(tuple(method for name, method in all_calibrators().items() if name not in _NOT_BY_ITSELF))
        if not all(words):
            raise InputError(f"--methods must be default, all, or names with commas between them; got {text!r}.")
        return cls(tuple(find_calibrator(word) for word in words))

    def for_rows(self, calibration: Predictions) -> tuple[Calibrator, ...]:
        """The methods to try on these rows: those named, or the candidates of ``auto`` and three that many know."""
        well_known = (VectorScaling(), IsotonicRegression(), HistogramBinning())
        absent = len(absent_classes(calibration))
        return self.named or (*default_candidates(len(calibration), calibration.n_classes, absent=absent), *well_known)

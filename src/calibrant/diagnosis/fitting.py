"""The maps that a diagnosis fits after training, and how it fits one."""

from collections.abc import Sequence
from typing import NamedTuple

from calibrant.calibrators import Calibrator, HistogramBinning, StructuredVectorScaling, TemperatureScaling
from calibrant.errors import CalibrantError, InputError, caught_warnings, ours_in
from calibrant.maps import Map
from calibrant.predictions import Predictions

__all__ = ["MAPS", "PAPER_MAPS", "RAW", "TEMPERATURE", "TriedFit", "check_maps", "try_fit"]

RAW = "none"
TEMPERATURE = TemperatureScaling.name
MAPS: tuple[Calibrator, ...] = (TemperatureScaling(), HistogramBinning(), StructuredVectorScaling())
# As in "Rethinking Calibration": the temperature with the lowest ECE of a grid, and bins of equal width.
PAPER_MAPS: tuple[Calibrator, ...] = (
    TemperatureScaling(criterion="ece-overconfidence"), HistogramBinning(bins="equal_width"), StructuredVectorScaling(),
)  # fmt: skip


def check_maps(maps: Sequence[Calibrator], name: str) -> None:
    """Maps that can be told apart, with a temperature, which verdicts go by.

    Raises:
        InputError: If they are not.
    """
    names = [each.name for each in maps]
    if TEMPERATURE not in names or len(set(names)) < len(names) or RAW in names:
        raise InputError(
            f"{name} must be different methods, temperature among them; got {', '.join(names) or 'none'}. "
            "Nothing at all is judged anyway."
        )


class TriedFit(NamedTuple):
    """A map, or why there is none; and what its fit warned of."""

    map: Map | None
    failure: str | None
    notes: tuple[str, ...]


def try_fit(method: Calibrator, calibration: Predictions) -> TriedFit:
    """Fit a map; our own errors and warnings become words, because one map that fails must not end a diagnosis."""
    with caught_warnings() as caught:
        try:
            fitted, failure = method.fit(calibration), None
        except CalibrantError as error:
            fitted, failure = None, str(error)
    ours = ours_in(caught)
    told = () if fitted is None or fitted.summary is None else fitted.summary.notes
    return TriedFit(fitted, failure, tuple(dict.fromkeys([*told, *ours])))

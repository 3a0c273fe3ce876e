"""One method, fitted on some rows and applied to others, whatever comes of it."""

import math
from typing import NamedTuple

from calibrant.calibrators import Calibrator
from calibrant.caught_warnings import caught_warnings, ours_in
from calibrant.errors import CalibrantError
from calibrant.maps import Map
from calibrant.predictions import Predictions

__all__ = ["Trial", "try_method"]


class Trial(NamedTuple):
    """What came of it: a map and the mapped rows, or a failure; and what should be known about either."""

    map: Map | None = None
    mapped: Predictions | None = None
    failure: str | None = None
    notes: tuple[str, ...] = ()
    seconds: float = math.nan  # of the fit


def try_method(method: Calibrator, calibration: Predictions, test: Predictions) -> Trial:
    """Fit on the calibration rows and map the test rows. Our own errors and warnings become words."""
    with caught_warnings() as caught:
        try:
            fitted = method.fit(calibration)
            trial = _succeeded(fitted, fitted.transform(test))
        except CalibrantError as error:
            trial = Trial(failure=str(error))
    ours = ours_in(caught)
    return trial._replace(notes=tuple(dict.fromkeys([*trial.notes, *ours])))


def _succeeded(fitted: Map, mapped: Predictions) -> Trial:
    assert fitted.summary is not None, "every fit leaves a summary"
    return Trial(fitted, mapped, notes=fitted.summary.notes, seconds=fitted.summary.seconds)

"""The optimal ECE: what the best temperature would give that knew the test labels. A bound, and never a method."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

import torch

from calibrant.diagnosis.record import Record
from calibrant.errors import FitError
from calibrant.numerics.coldest import best_coldness
from calibrant.numerics.error_grid import errors_at_temperatures
from calibrant.predictions import Predictions

__all__ = ["Oracle", "oracle_temperature"]

_TEMPERATURES = 101  # as in the records of epochs, so that the two agree


@final
@dataclass(frozen=True)
class Oracle(Record):
    """The lowest ECE of any temperature tried on the test rows themselves, and that temperature."""

    ece: float
    temperature: float


def oracle_temperature(test: Predictions, *, also: Iterable[float] = (), n_bins: int = 15) -> Oracle:
    """Search the temperature with the lowest ECE on the very rows that judge.

    It is what "Rethinking Calibration" calls the optimal ECE: how far a temperature could get, without the luck of the
    calibration rows. It flatters, since it is chosen on the rows it is judged on, the more so the fewer they are.

    Args:
        test: The rows that judge.
        also: Temperatures to try beside those within a factor of two of the one with the lowest log-loss; with those
            that others were fitted, the optimal ECE is a bound on theirs.
        n_bins: Of the ECE.

    Example:
        >>> logits = torch.randn(4000, 5, generator=torch.manual_seed(0))
        >>> labels = logits.softmax(1).multinomial(1, generator=torch.manual_seed(1))[:, 0]
        >>> found = oracle_temperature(Predictions.from_logits(3 * logits, labels))
        >>> 2.5 < found.temperature < 3.5, found.ece < 0.02
        (True, True)
    """
    try:
        middle = 1 / best_coldness(test.logits, test.labels).coldness
    except FitError:  # logits that are all alike, as of a network that has died
        middle = 1.0
    around = middle * torch.logspace(-1, 1, _TEMPERATURES, base=2, dtype=torch.float64)
    known = [temperature for temperature in (1.0, *also) if not math.isnan(temperature)]
    tried = torch.cat([around, torch.tensor(known, dtype=torch.float64)])
    errors = errors_at_temperatures(test.logits, test.labels, tried, n_bins=n_bins)
    best = int(errors.argmin())
    return Oracle(float(errors[best]), float(tried[best]))

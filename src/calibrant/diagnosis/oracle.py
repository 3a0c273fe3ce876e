"""The optimal ECE: what the best temperature would give that knew the test labels. A bound, and never a method."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from calibrant.diagnosis.record import Record
from calibrant.numerics.lowest_error import lowest_error
from calibrant.predictions import Predictions

__all__ = ["Oracle", "oracle_temperature"]


@final
@dataclass(frozen=True)
class Oracle(Record):
    """The lowest ECE of any temperature on the test rows themselves, and that temperature."""

    ece: float
    temperature: float


def oracle_temperature(test: Predictions, *, also: Iterable[float] = (), n_bins: int = 15) -> Oracle:
    """Search the temperature with the lowest ECE on the very rows that judge.

    It is what "Rethinking Calibration" calls the optimal ECE: how far a temperature could get, without the luck of the
    calibration rows. It flatters, since it is chosen on the rows it is judged on, the more so the fewer they are.

    All temperatures are searched, as a rule in steps of 1e-5 of one: see :mod:`calibrant.numerics.lowest_error`. Rows
    that are all right get the coldest there is, and those that are all wrong the hottest.

    Args:
        test: The rows that judge.
        also: Temperatures to try beside the others, such as those that were fitted elsewhere; NaN is passed over.
        n_bins: Of the ECE.

    Example:
        >>> import torch
        >>> logits = torch.randn(4000, 5, generator=torch.manual_seed(0))
        >>> labels = logits.softmax(1).multinomial(1, generator=torch.manual_seed(1))[:, 0]
        >>> found = oracle_temperature(Predictions.from_logits(3 * logits, labels))
        >>> 2.5 < found.temperature < 3.5, found.ece < 0.02
        (True, True)
    """
    known = [temperature for temperature in also if not math.isnan(temperature)]
    return Oracle(*lowest_error(test.logits, test.labels, also=known, n_bins=n_bins))

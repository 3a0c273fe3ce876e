"""netcal: calibration errors and binning from probabilities."""

from collections.abc import Callable
from typing import Any

from netcal.binning import HistogramBinning, IsotonicRegression
from netcal.metrics import ECE

from .rows import Fitted, Rows


def ece_from_probs(rows: Rows) -> float:
    """Fifteen bins of equal width."""
    return ECE(bins=15).measure(rows.probs_array, rows.labels_array)


def ace_from_probs(rows: Rows) -> float:
    """Fifteen bins of equal mass; raises when two quantiles tie."""
    return ECE(bins=15, equal_intervals=False).measure(rows.probs_array, rows.labels_array)


TASKS = {"ece from probs": ece_from_probs, "ace from probs": ace_from_probs}


def _fit(make: Callable[[], Any]) -> Callable[[Rows], Fitted]:
    def fit(rows: Rows) -> Fitted:
        fitted = make().fit(rows.probs_array, rows.labels_array)
        return lambda others: fitted.transform(others.probs_array)

    return fit


FITS = {
    "histogram_classwise from probs": _fit(lambda: HistogramBinning(bins=15)),
    "isotonic_ovr from probs": _fit(IsotonicRegression),
}

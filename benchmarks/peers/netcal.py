"""netcal: calibration errors from probabilities."""

from netcal.metrics import ECE

from .rows import Rows


def ece_from_probs(rows: Rows) -> float:
    """Fifteen bins of equal width."""
    return ECE(bins=15).measure(rows.probs_array, rows.labels_array)


def ace_from_probs(rows: Rows) -> float:
    """Fifteen bins of equal mass; raises when two quantiles tie."""
    return ECE(bins=15, equal_intervals=False).measure(rows.probs_array, rows.labels_array)


TASKS = {"ece from probs": ece_from_probs, "ace from probs": ace_from_probs}

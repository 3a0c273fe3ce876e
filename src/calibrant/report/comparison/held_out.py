"""Two sets that must not be one: rows to fit on, and rows to judge by."""

import warnings

import numpy as np
import torch

from calibrant.errors import CalibrantWarning, InputError
from calibrant.predictions import Predictions

__all__ = ["check_held_out", "rows_in_both"]

# Rows in both sets that are put down to chance, as a share of the test rows.
_BY_CHANCE = 0.01


def check_held_out(calibration: Predictions, test: Predictions) -> None:
    """Refuse sets of different classes; warn where the test rows were also fitted on.

    Raises:
        InputError: If the classes differ in number or in name.
    """
    if calibration.n_classes != test.n_classes:
        raise InputError(
            f"calibration and test rows must have the same classes; got {calibration.n_classes} and {test.n_classes}. "
            "Take both from the same model."
        )
    names, others = calibration.class_names, test.class_names
    if names is not None and others is not None and names != others:
        place = next(i for i, pair in enumerate(zip(names, others, strict=True)) if pair[0] != pair[1])
        raise InputError(
            f"calibration and test rows must name the classes alike, in the same order; class {place} is "
            f"{names[place]!r} in one and {others[place]!r} in the other."
        )
    common = rows_in_both(calibration, test)
    if common > _BY_CHANCE * len(test):
        warnings.warn(
            f"{common:,} of {len(test):,} test rows are also among the calibration rows: methods are judged on what "
            "they were fitted on, which flatters the flexible ones. Use other rows for one of the two.",
            CalibrantWarning,
            stacklevel=3,
        )


def rows_in_both(first: Predictions, second: Predictions) -> int:
    """How many rows of the second, logits and label, are also in the first.

    Rows that occur several times in their own set say nothing: such a model gives few different answers.

    Example:
        >>> rows = Predictions.from_logits([[0.5, 1.5], [2.5, 0.0], [3.5, 1.0]], [0, 1, 0])
        >>> rows_in_both(rows[:2], rows[1:])
        1
    """
    if first.n_classes != second.n_classes:
        return 0
    ours, theirs = (_occurring_once(_fingerprints(rows)) for rows in (first, second))
    return len(np.intersect1d(ours, theirs, assume_unique=True))


def _occurring_once(values: np.ndarray) -> np.ndarray:
    distinct, counts = np.unique(values, return_counts=True)
    return distinct[counts == 1]


def _fingerprints(rows: Predictions) -> np.ndarray:
    """One number a row that no other row has by chance."""
    direction = torch.rand(rows.n_classes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parts = [block.logits.double() @ direction.to(rows.logits.device) for block in rows.blocks()]
    # Rounded, because products of matrices of other shapes differ in their last digits.
    return np.round((torch.cat(parts) + torch.pi * rows.labels).cpu().numpy(), 9)

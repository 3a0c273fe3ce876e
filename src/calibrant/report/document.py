"""Plain data under its old names, until every record has a page."""

import math
from typing import Any

from calibrant.evidence import Estimate

__all__ = ["plain_estimate", "without_nan"]

_ALWAYS = ("value", "low", "high")


def plain_estimate(found: Estimate) -> dict[str, float]:
    """Value and bounds, and for calibration errors floor and p."""
    return {key: number for key, number in vars(found).items() if key in _ALWAYS or number is not None}


def without_nan(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

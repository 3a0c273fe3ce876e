"""Uncertainty of metrics: intervals, noise floors, p-values and paired differences."""

from calibrant.evidence.differences import (
    LEVEL,
    Difference,
    PairedBootstrap,
    Side,
    correct,
    difference,
    holm,
    side_of,
    smallest_effect,
)
from calibrant.evidence.estimates import Estimate, estimate

__all__ = [
    "LEVEL", "Difference", "Estimate", "PairedBootstrap", "Side", "correct", "difference", "estimate", "holm",
    "side_of", "smallest_effect",
]  # fmt: skip

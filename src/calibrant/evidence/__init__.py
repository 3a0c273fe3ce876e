"""Uncertainty of metrics: intervals, noise floors, p-values and paired differences."""

from calibrant.evidence.differences import (
    LEVEL,
    Difference,
    PairedBootstrap,
    Side,
    correct,
    difference,
    holm,
    smallest_effect,
)
from calibrant.evidence.record import Estimate
from calibrant.evidence.single import estimate

__all__ = [
    "LEVEL",
    "Difference",
    "Estimate",
    "PairedBootstrap",
    "Side",
    "correct",
    "difference",
    "estimate",
    "holm",
    "smallest_effect",
]

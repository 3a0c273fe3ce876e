"""Uncertainty of metrics: intervals, noise floors, p-values and paired differences."""

from calibrant.evidence.differences import Difference, PairedBootstrap, correct, difference, holm
from calibrant.evidence.estimates import Estimate, estimate
from calibrant.metrics.base import LEVEL, Side, smallest_effect

__all__ = [
    "LEVEL", "Difference", "Estimate", "PairedBootstrap", "Side", "correct", "difference", "estimate", "holm",
    "smallest_effect",
]  # fmt: skip

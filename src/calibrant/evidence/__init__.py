"""Uncertainty of metrics: intervals, noise floors, p-values and paired differences."""

from calibrant.evidence.differences import Difference, PairedBootstrap, Side, correct, difference, holm, smallest_effect
from calibrant.evidence.estimates import Estimate, estimate
from calibrant.evidence.resampling import LEVEL

__all__ = [
    "LEVEL", "Difference", "Estimate", "PairedBootstrap", "Side", "correct", "difference", "estimate", "holm",
    "smallest_effect",
]  # fmt: skip

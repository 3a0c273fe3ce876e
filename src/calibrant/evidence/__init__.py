"""Uncertainty of metrics: intervals, noise floors, p-values and paired differences."""

from calibrant.evidence.differences import (
    LEVEL,
    Difference,
    PairedBootstrap,
    Side,
    apply_holm,
    difference,
    holm,
    side_of,
    smallest_effect,
)
from calibrant.evidence.estimates import Estimate, estimate

__all__ = [
    "LEVEL", "Difference", "Estimate", "PairedBootstrap", "Side", "apply_holm", "difference", "estimate", "holm",
    "side_of", "smallest_effect",
]  # fmt: skip

"""How sure we are of a number: intervals, noise floor, tests, paired comparison."""

from calibrant.evidence.paired import Difference, compare
from calibrant.evidence.record import Estimate
from calibrant.evidence.single import estimate

__all__ = ["Difference", "Estimate", "compare", "estimate"]

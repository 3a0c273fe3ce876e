"""How sure we are of a number: intervals, noise floor, tests, paired comparison."""

from calibrant.evidence.estimate import estimate
from calibrant.evidence.paired import Difference, compare
from calibrant.evidence.record import Estimate

__all__ = ["Difference", "Estimate", "compare", "estimate"]

"""How sure we are of a number: intervals, noise floor, tests, paired comparison."""

from calibrant.evidence.paired import Contest, Difference, compare
from calibrant.evidence.record import Estimate
from calibrant.evidence.single import estimate

__all__ = ["Contest", "Difference", "Estimate", "compare", "estimate"]

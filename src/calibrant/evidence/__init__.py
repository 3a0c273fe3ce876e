"""Uncertainty of metrics: intervals, noise floors, p-values and paired differences."""

from calibrant.evidence import differences
from calibrant.evidence.corp import Corp, CorpSplit, corp
from calibrant.evidence.differences import *  # noqa: F403
from calibrant.evidence.estimates import Estimate, estimate
from calibrant.evidence.intervals import LEVEL

__all__ = ["LEVEL", "Corp", "CorpSplit", "Estimate", "corp", "estimate"]
__all__ += differences.__all__

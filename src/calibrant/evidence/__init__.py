"""Uncertainty of metrics: intervals, noise floors, p-values and paired differences."""

from calibrant.evidence import differences
from calibrant.evidence.corp import CalibrationLine, Corp, CorpSplit, calibration_line, corp
from calibrant.evidence.differences import *  # noqa: F403
from calibrant.evidence.estimates import Estimate, estimate
from calibrant.evidence.intervals import LEVEL
from calibrant.evidence.thresholds import OperatingPoint, operating_points

__all__ = ["LEVEL", "CalibrationLine", "Corp", "CorpSplit", "Estimate", "OperatingPoint"]
__all__ += ["calibration_line", "corp", "estimate", "operating_points"]
__all__ += differences.__all__

"""Uncertainty of metrics: intervals, noise floors, p-values and paired differences."""

from calibrant.evidence import differences
from calibrant.evidence.corp import Corp, CorpSplit, corp
from calibrant.evidence.decisions import NetBenefit, decision_curve
from calibrant.evidence.differences import *  # noqa: F403
from calibrant.evidence.estimates import Estimate, by_subject, estimate, is_of_risk
from calibrant.evidence.intervals import LEVEL
from calibrant.evidence.logistic import CalibrationLine, calibration_line
from calibrant.evidence.risk import Risk, evaluate_risk
from calibrant.evidence.thresholds import OperatingPoint, operating_points

__all__ = ["LEVEL", "CalibrationLine", "Corp", "CorpSplit", "Estimate", "NetBenefit", "OperatingPoint", "Risk", "corp"]
__all__ += ["by_subject", "calibration_line", "decision_curve", "estimate", "evaluate_risk", "is_of_risk"]
__all__ += ["operating_points"]
__all__ += differences.__all__

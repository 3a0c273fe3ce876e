"""The numbers behind a figure, without a plotting library: small records of CPU tensors and floats."""

from calibrant.diagrams.bins import ReliabilityBins
from calibrant.diagrams.bins_sweep import BinsSweep, bins_sweep
from calibrant.diagrams.classwise import ClassReliability, ClasswiseDiagram, classwise_reliability
from calibrant.diagrams.delta_picture import DeltaPicture, delta_picture
from calibrant.diagrams.density import ConfidenceDensity, confidence_density
from calibrant.diagrams.leaderboard import Dot, LeaderboardDiagram, MethodDots
from calibrant.diagrams.reliability import ReliabilityCurve, ReliabilityDiagram, reliability
from calibrant.diagrams.risk_coverage import RiskCoverage, risk_coverage

__all__ = [
    "BinsSweep",
    "ClassReliability",
    "ClasswiseDiagram",
    "ConfidenceDensity",
    "DeltaPicture",
    "Dot",
    "LeaderboardDiagram",
    "MethodDots",
    "ReliabilityBins",
    "ReliabilityCurve",
    "ReliabilityDiagram",
    "RiskCoverage",
    "bins_sweep",
    "classwise_reliability",
    "confidence_density",
    "delta_picture",
    "reliability",
    "risk_coverage",
]

"""Numbers behind the figures, without a plotting library: small records of CPU tensors and floats."""

from calibrant.diagrams.calibration import (
    BinsSweep,
    ClassReliability,
    ClasswiseDiagram,
    ReliabilityBins,
    ReliabilityCurve,
    ReliabilityDiagram,
    bins_sweep,
    classwise_reliability,
    reliability,
)
from calibrant.diagrams.comparison import ComparisonDiagram, Dot, DotSide, MethodDots, comparison_diagram
from calibrant.diagrams.delta_picture import DeltaPicture, delta_picture
from calibrant.diagrams.separation import ConfidenceDensity, RiskCoverage, confidence_density, risk_coverage

__all__ = [
    "BinsSweep",
    "ClassReliability",
    "ClasswiseDiagram",
    "ComparisonDiagram",
    "ConfidenceDensity",
    "DeltaPicture",
    "Dot",
    "DotSide",
    "MethodDots",
    "ReliabilityBins",
    "ReliabilityCurve",
    "ReliabilityDiagram",
    "RiskCoverage",
    "bins_sweep",
    "classwise_reliability",
    "comparison_diagram",
    "confidence_density",
    "delta_picture",
    "reliability",
    "risk_coverage",
]

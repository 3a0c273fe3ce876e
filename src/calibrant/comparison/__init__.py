"""Calibration methods side by side: fitted on one set of predictions, evaluated on another. Numbers only."""

from calibrant.comparison.held_out import Caution, check_held_out, samples_in_both, z_between
from calibrant.comparison.methods import (
    TEMPERATURE,
    UNCALIBRATED,
    Comparison,
    MethodResult,
    WhyUncalibrated,
    compare,
    comparison_metrics,
    default_methods,
)

__all__ = [
    "TEMPERATURE",
    "UNCALIBRATED",
    "Caution",
    "Comparison",
    "MethodResult",
    "WhyUncalibrated",
    "check_held_out",
    "compare",
    "comparison_metrics",
    "default_methods",
    "samples_in_both",
    "z_between",
]

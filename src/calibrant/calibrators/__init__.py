"""Calibrators: the methods of the literature, each a frozen record of options with the verb ``fit``."""

from calibrant.calibrators.affine import (
    BiasCorrectedTemperature,
    MatrixScaling,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
    Uncalibrated,
    VectorScaling,
)
from calibrant.calibrators.auto import Auto
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.binning import (
    BayesianBinning,
    ClasswiseHistogramBinning,
    HistogramBinning,
    IMax,
    IsotonicOneVsRest,
    IsotonicPooled,
    IsotonicRegression,
)
from calibrant.calibrators.curves import (
    ScalingBinning,
    ScalingBinningMarginal,
    SplineCalibration,
    VennAbers,
    VennAbersInterval,
    venn_abers_interval,
)
from calibrant.calibrators.ensembles import Chain, EnsembleTemperatureScaling
from calibrant.calibrators.features import BinMeanShift, DensityRatioCalibration, FeatureCalibrator
from calibrant.calibrators.logistic import BetaCalibration, PlattScaling, QuadraticScaling
from calibrant.calibrators.odir import DirichletODIR, MatrixScalingODIR
from calibrant.calibrators.order_preserving import DiagonalOrderPreserving, OrderInvariant, OrderPreserving

__all__ = [
    "Auto", "BayesianBinning", "BetaCalibration", "BiasCorrectedTemperature", "BinMeanShift", "Calibrator", "Chain",
    "ClasswiseHistogramBinning", "DensityRatioCalibration", "DiagonalOrderPreserving", "DirichletODIR",
    "EnsembleTemperatureScaling", "FeatureCalibrator", "HistogramBinning", "IMax", "IsotonicOneVsRest",
    "IsotonicPooled", "IsotonicRegression", "MatrixScaling", "MatrixScalingODIR", "OrderInvariant", "OrderPreserving",
    "PlattScaling", "QuadraticScaling", "ScalingBinning", "ScalingBinningMarginal", "SplineCalibration",
    "StructuredMatrixScaling", "StructuredVectorScaling", "TemperatureScaling", "Uncalibrated", "VectorScaling",
    "VennAbers", "VennAbersInterval", "venn_abers_interval",
]  # fmt: skip

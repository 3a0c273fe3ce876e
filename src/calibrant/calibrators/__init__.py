"""Calibrators: the methods of the literature, each a frozen record of options with the verb ``fit``."""

from calibrant.calibrators.auto import Auto
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.binning.bbq import BayesianBinning
from calibrant.calibrators.binning.histogram import ClasswiseHistogramBinning, HistogramBinning, IMax
from calibrant.calibrators.binning.isotonic import IsotonicOneVsRest, IsotonicPooled, IsotonicRegression
from calibrant.calibrators.binning.scaling_binning import ScalingBinning, ScalingBinningMarginal
from calibrant.calibrators.chain import Chain, DoNothing
from calibrant.calibrators.curves import SplineCalibration, VennAbers, VennAbersInterval, venn_abers_interval
from calibrant.calibrators.features import BinMeanShift, DensityRatioCalibration, FeatureCalibrator
from calibrant.calibrators.scaling.affine import BiasCorrectedTemperature, MatrixScaling, VectorScaling
from calibrant.calibrators.scaling.ets import EnsembleTemperatureScaling
from calibrant.calibrators.scaling.logistic import BetaCalibration, PlattScaling, QuadraticScaling
from calibrant.calibrators.scaling.odir import DirichletODIR, MatrixScalingODIR
from calibrant.calibrators.scaling.order_preserving import DiagonalOrderPreserving, OrderInvariant, OrderPreserving
from calibrant.calibrators.scaling.structured import StructuredMatrixScaling, StructuredVectorScaling
from calibrant.calibrators.scaling.temperature import TemperatureScaling

__all__ = [
    "Auto",
    "BayesianBinning",
    "BetaCalibration",
    "BiasCorrectedTemperature",
    "BinMeanShift",
    "Calibrator",
    "Chain",
    "ClasswiseHistogramBinning",
    "DensityRatioCalibration",
    "DiagonalOrderPreserving",
    "DirichletODIR",
    "DoNothing",
    "EnsembleTemperatureScaling",
    "FeatureCalibrator",
    "HistogramBinning",
    "IMax",
    "IsotonicOneVsRest",
    "IsotonicPooled",
    "IsotonicRegression",
    "MatrixScaling",
    "MatrixScalingODIR",
    "OrderInvariant",
    "OrderPreserving",
    "PlattScaling",
    "QuadraticScaling",
    "ScalingBinning",
    "ScalingBinningMarginal",
    "SplineCalibration",
    "StructuredMatrixScaling",
    "StructuredVectorScaling",
    "TemperatureScaling",
    "VectorScaling",
    "VennAbers",
    "VennAbersInterval",
    "venn_abers_interval",
]

"""How to fit a map: one file for each method of the literature."""

from calibrant.calibrators.auto import Auto
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.bbq import BayesianBinning
from calibrant.calibrators.beta import BetaCalibration
from calibrant.calibrators.bias_corrected import BiasCorrectedTemperature
from calibrant.calibrators.bin_mean_shift import BinMeanShift
from calibrant.calibrators.chain import Chain
from calibrant.calibrators.density_ratio import DensityRatioCalibration
from calibrant.calibrators.ets import EnsembleTemperatureScaling
from calibrant.calibrators.histogram import ClasswiseHistogramBinning, HistogramBinning
from calibrant.calibrators.imax import IMax
from calibrant.calibrators.isotonic import IsotonicOneVsRest, IsotonicPooled, IsotonicRegression
from calibrant.calibrators.matrix import MatrixScaling
from calibrant.calibrators.nothing import DoNothing
from calibrant.calibrators.odir import DirichletODIR, MatrixScalingODIR
from calibrant.calibrators.order_preserving import DiagonalOrderPreserving, OrderInvariant, OrderPreserving
from calibrant.calibrators.platt import PlattScaling
from calibrant.calibrators.proximity import FeatureCalibrator
from calibrant.calibrators.quadratic import QuadraticScaling
from calibrant.calibrators.scaling_binning import ScalingBinning, ScalingBinningMarginal
from calibrant.calibrators.sms import StructuredMatrixScaling
from calibrant.calibrators.spline import SplineCalibration
from calibrant.calibrators.svs import StructuredVectorScaling
from calibrant.calibrators.temperature import TemperatureScaling
from calibrant.calibrators.vector import VectorScaling
from calibrant.calibrators.venn_abers import VennAbers, VennAbersInterval, venn_abers_interval

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

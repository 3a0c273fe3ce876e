"""How to fit a map: one file for each method of the literature."""

from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.binning.bbq import BayesianBinning
from calibrant.calibrators.binning.histogram import ClasswiseHistogramBinning, HistogramBinning
from calibrant.calibrators.binning.imax import IMax
from calibrant.calibrators.binning.isotonic import IsotonicOneVsRest, IsotonicPooled, IsotonicRegression
from calibrant.calibrators.binning.scaling_binning import ScalingBinning, ScalingBinningMarginal
from calibrant.calibrators.chain import Chain
from calibrant.calibrators.choice.auto import Auto
from calibrant.calibrators.curves.spline import SplineCalibration
from calibrant.calibrators.curves.venn_abers import VennAbers, VennAbersInterval, venn_abers_interval
from calibrant.calibrators.features.bin_mean_shift import BinMeanShift
from calibrant.calibrators.features.density_ratio import DensityRatioCalibration
from calibrant.calibrators.features.proximity import FeatureCalibrator
from calibrant.calibrators.nothing import DoNothing
from calibrant.calibrators.scaling.beta import BetaCalibration
from calibrant.calibrators.scaling.bias_corrected import BiasCorrectedTemperature
from calibrant.calibrators.scaling.ets import EnsembleTemperatureScaling
from calibrant.calibrators.scaling.matrix import MatrixScaling
from calibrant.calibrators.scaling.odir import DirichletODIR, MatrixScalingODIR
from calibrant.calibrators.scaling.order_preserving import DiagonalOrderPreserving, OrderInvariant, OrderPreserving
from calibrant.calibrators.scaling.platt import PlattScaling
from calibrant.calibrators.scaling.quadratic import QuadraticScaling
from calibrant.calibrators.scaling.sms import StructuredMatrixScaling
from calibrant.calibrators.scaling.svs import StructuredVectorScaling
from calibrant.calibrators.scaling.temperature import TemperatureScaling
from calibrant.calibrators.scaling.vector import VectorScaling

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

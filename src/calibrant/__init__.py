"""How far a classifier's confidence can be trusted, and how to mend it.

The public names, explicit and sorted. Each is loaded when it is first used, so that ``calibrant --help`` loads neither
torch nor numpy; type checkers read the imports below.
"""

from importlib import import_module
from typing import TYPE_CHECKING

# fmt: off
if TYPE_CHECKING:
    from calibrant.calibrators import (
        Auto,
        BayesianBinning,
        BetaCalibration,
        BiasCorrectedTemperature,
        BinMeanShift,
        Calibrator,
        Chain,
        ClasswiseHistogramBinning,
        DensityRatioCalibration,
        DiagonalOrderPreserving,
        DirichletODIR,
        DoNothing,
        EnsembleTemperatureScaling,
        FeatureCalibrator,
        HistogramBinning,
        IMax,
        IsotonicOneVsRest,
        IsotonicPooled,
        IsotonicRegression,
        MatrixScaling,
        MatrixScalingODIR,
        OrderInvariant,
        OrderPreserving,
        PlattScaling,
        QuadraticScaling,
        ScalingBinning,
        ScalingBinningMarginal,
        SplineCalibration,
        StructuredMatrixScaling,
        StructuredVectorScaling,
        TemperatureScaling,
        VectorScaling,
        VennAbers,
        VennAbersInterval,
        venn_abers_interval,
    )
    from calibrant.catalogue import (
        all_calibrators,
        all_feature_calibrators,
        all_metrics,
        find_any_calibrator,
        find_calibrator,
        find_metric,
    )
    from calibrant.errors import CalibrantError, CalibrantWarning, FileError, FitError, InputError, UnknownNameError
    from calibrant.evidence import Difference, Estimate, compare, estimate
    from calibrant.maps import FitSummary, Map
    from calibrant.metrics import (
        Metric,
        Tally,
        accuracy,
        ace,
        augrc,
        aupr_error,
        aupr_success,
        aurc,
        auroc,
        brier,
        calibration_refinement,
        e_aurc,
        ece,
        ece_l1_debiased,
        ece_l2_debiased,
        entropy,
        fpr95,
        kde_ece,
        ks,
        mce,
        mmce,
        murphy,
        nll,
        oe,
        piece,
        refinement_terms,
        sce,
        sece,
        sece_printed,
        skce,
        smece,
        tl_ece,
        top_brier,
    )
    from calibrant.paper import Paper
    from calibrant.predictions import Predictions, TopLabel
    from calibrant.report import Evaluation, Leaderboard, Verdict, evaluate, leaderboard, verdict
    from calibrant.sources import (
        MapFile,
        load,
        load_feature_map,
        load_features,
        load_map,
        read_map_file,
        save,
        save_map,
    )

__all__ = [
    "Auto", "BayesianBinning", "BetaCalibration", "BiasCorrectedTemperature", "BinMeanShift", "CalibrantError",
    "CalibrantWarning", "Calibrator", "Chain", "ClasswiseHistogramBinning", "DensityRatioCalibration",
    "DiagonalOrderPreserving", "Difference", "DirichletODIR", "DoNothing", "EnsembleTemperatureScaling", "Estimate",
    "Evaluation", "FeatureCalibrator", "FileError", "FitError", "FitSummary", "HistogramBinning", "IMax",
    "InputError", "IsotonicOneVsRest", "IsotonicPooled", "IsotonicRegression", "Leaderboard", "Map", "MapFile",
    "MatrixScaling", "MatrixScalingODIR", "Metric", "OrderInvariant", "OrderPreserving", "Paper", "PlattScaling",
    "Predictions", "QuadraticScaling", "ScalingBinning", "ScalingBinningMarginal", "SplineCalibration",
    "StructuredMatrixScaling", "StructuredVectorScaling", "Tally", "TemperatureScaling", "TopLabel",
    "UnknownNameError", "VectorScaling", "VennAbers", "VennAbersInterval", "Verdict", "accuracy", "ace",
    "all_calibrators", "all_feature_calibrators", "all_metrics", "augrc", "aupr_error", "aupr_success", "aurc",
    "auroc", "brier", "calibration_refinement", "compare", "e_aurc", "ece", "ece_l1_debiased", "ece_l2_debiased",
    "entropy", "estimate", "evaluate", "find_any_calibrator", "find_calibrator", "find_metric", "fpr95", "kde_ece",
    "ks", "leaderboard", "load", "load_feature_map", "load_features", "load_map", "mce", "mmce", "murphy", "nll",
    "oe", "piece", "read_map_file", "refinement_terms", "save", "save_map", "sce", "sece", "sece_printed", "skce",
    "smece", "tl_ece", "top_brier", "venn_abers_interval", "verdict",
]

_HOMES = {
    "calibrators": (
        "Auto BayesianBinning BetaCalibration BiasCorrectedTemperature BinMeanShift Calibrator Chain "
        "ClasswiseHistogramBinning DensityRatioCalibration DiagonalOrderPreserving DirichletODIR DoNothing "
        "EnsembleTemperatureScaling FeatureCalibrator HistogramBinning IMax IsotonicOneVsRest IsotonicPooled "
        "IsotonicRegression MatrixScaling MatrixScalingODIR OrderInvariant OrderPreserving PlattScaling "
        "QuadraticScaling ScalingBinning ScalingBinningMarginal SplineCalibration StructuredMatrixScaling "
        "StructuredVectorScaling TemperatureScaling VectorScaling VennAbers VennAbersInterval "
        "venn_abers_interval "
    ),
    "catalogue": (
        "all_calibrators all_feature_calibrators all_metrics find_any_calibrator find_calibrator find_metric "
    ),
    "errors": "CalibrantError CalibrantWarning FileError FitError InputError UnknownNameError",
    "evidence": "Difference Estimate compare estimate",
    "maps": "FitSummary Map",
    "metrics": (
        "Metric Tally accuracy ace augrc aupr_error aupr_success aurc auroc brier calibration_refinement "
        "e_aurc ece ece_l1_debiased ece_l2_debiased entropy fpr95 kde_ece ks mce mmce murphy nll oe piece "
        "refinement_terms sce sece sece_printed skce smece tl_ece top_brier "
    ),
    "paper": "Paper",
    "predictions": "Predictions TopLabel",
    "report": "Evaluation Leaderboard Verdict evaluate leaderboard verdict",
    "sources": "MapFile load load_feature_map load_features load_map read_map_file save save_map",
}
# fmt: on

_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'calibrant' has no attribute {name!r}")
    return getattr(import_module(f"calibrant.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__

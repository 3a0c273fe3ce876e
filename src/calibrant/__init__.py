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
    from calibrant.clamping import (
        ClampedModel,
        ClampingSummary,
        InputSpace,
        NeuralClamping,
        load_clamped,
        save_clamped,
    )
    from calibrant.comparison import Comparison, compare
    from calibrant.confidence import ConfidNet, TrustScore, load_confidence, save_confidence
    from calibrant.datasets import Dataset, Examples, Split, all_splits, split_dataset
    from calibrant.errors import CalibrantError, CalibrantWarning, FileError, FitError, InputError, UnknownNameError
    from calibrant.evaluation import Evaluation, evaluate
    from calibrant.evidence import Difference, Estimate, difference, estimate
    from calibrant.files import (
        MapFile,
        load,
        load_feature_map,
        load_features,
        load_map,
        read_map_file,
        save,
        save_map,
    )
    from calibrant.losses import (
        AvUCLoss,
        BrierLoss,
        CorrectnessRankingLoss,
        CrossEntropyLoss,
        DCALoss,
        DECELoss,
        DualFocalLoss,
        EntropyRegularisedLoss,
        FocalLoss,
        InverseFocalLoss,
        LabelSmoothingLoss,
        LogitNormLoss,
        Loss,
        MarginLoss,
        MDCALoss,
        MMCELoss,
        PairwiseConstraintsLoss,
        PenalisedLoss,
        RowLoss,
        SampleDependentFocalLoss,
        SBECELoss,
        ScheduledFocalLoss,
        SECELoss,
        SoftAvUCLoss,
        differentiable_ece,
        differentiable_sece,
        focal_gamma,
        loss_settings,
    )
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
    from calibrant.models import all_models, build_model
    from calibrant.paper import Paper
    from calibrant.predictions import Predictions, TopLabel
    from calibrant.report import Verdict, verdict
    from calibrant.training import (
        EpochRecord,
        Mixup,
        Recipe,
        Run,
        Session,
        Speed,
        TrainingData,
        load_network,
        train_runs,
        train_together,
    )

__all__ = [
    "Auto", "AvUCLoss", "BayesianBinning", "BetaCalibration", "BiasCorrectedTemperature", "BinMeanShift",
    "BrierLoss", "CalibrantError", "CalibrantWarning", "Calibrator", "Chain", "ClampedModel", "ClampingSummary",
    "ClasswiseHistogramBinning", "Comparison", "ConfidNet", "CorrectnessRankingLoss", "CrossEntropyLoss", "DCALoss",
    "DECELoss",
    "Dataset", "DensityRatioCalibration", "DiagonalOrderPreserving", "Difference", "DirichletODIR", "DoNothing",
    "DualFocalLoss", "EnsembleTemperatureScaling", "EntropyRegularisedLoss", "EpochRecord", "Estimate", "Evaluation",
    "Examples", "FeatureCalibrator", "FileError", "FitError", "FitSummary", "FocalLoss", "HistogramBinning", "IMax",
    "InputError", "InputSpace", "InverseFocalLoss", "IsotonicOneVsRest", "IsotonicPooled", "IsotonicRegression",
    "LabelSmoothingLoss", "LogitNormLoss", "Loss", "MDCALoss", "MMCELoss", "Map", "MapFile",
    "MarginLoss", "MatrixScaling", "MatrixScalingODIR", "Metric", "Mixup", "NeuralClamping", "OrderInvariant",
    "OrderPreserving", "PairwiseConstraintsLoss", "Paper", "PenalisedLoss", "PlattScaling", "Predictions",
    "QuadraticScaling", "Recipe", "RowLoss", "Run", "SBECELoss", "SECELoss", "SampleDependentFocalLoss",
    "ScalingBinning", "ScalingBinningMarginal", "ScheduledFocalLoss", "Session", "SoftAvUCLoss", "Speed",
    "SplineCalibration", "Split", "StructuredMatrixScaling", "StructuredVectorScaling", "Tally", "TemperatureScaling",
    "TopLabel", "TrainingData", "TrustScore", "UnknownNameError", "VectorScaling", "VennAbers", "VennAbersInterval",
    "Verdict", "accuracy", "ace",
    "all_models", "all_splits", "augrc", "aupr_error", "aupr_success", "aurc", "auroc",
    "brier", "build_model", "calibration_refinement", "compare", "difference", "differentiable_ece",
    "differentiable_sece", "e_aurc",
    "ece", "ece_l1_debiased", "ece_l2_debiased", "entropy", "estimate", "evaluate",
    "focal_gamma", "fpr95",
    "kde_ece", "ks", "load", "load_clamped", "load_confidence", "load_feature_map",
    "load_features", "load_map", "load_network", "loss_settings", "mce", "mmce", "murphy", "nll", "oe", "piece",
    "read_map_file", "refinement_terms", "save", "save_clamped", "save_confidence", "save_map", "sce", "sece",
    "sece_printed", "skce", "smece", "split_dataset", "tl_ece", "top_brier", "train_runs",
    "train_together", "venn_abers_interval", "verdict",
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
    "clamping": (
        "ClampedModel ClampingSummary InputSpace NeuralClamping "
        "load_clamped save_clamped "
    ),
    "comparison": "Comparison compare",
    "confidence": "ConfidNet TrustScore load_confidence save_confidence",
    "datasets": "Dataset Examples Split all_splits split_dataset",
    "errors": "CalibrantError CalibrantWarning FileError FitError InputError UnknownNameError",
    "evidence": "Difference Estimate difference estimate",
    "losses": (
        "AvUCLoss BrierLoss CorrectnessRankingLoss CrossEntropyLoss DCALoss DECELoss DualFocalLoss "
        "EntropyRegularisedLoss FocalLoss InverseFocalLoss LabelSmoothingLoss LogitNormLoss Loss MDCALoss "
        "MMCELoss MarginLoss PairwiseConstraintsLoss PenalisedLoss RowLoss SBECELoss SECELoss "
        "SampleDependentFocalLoss ScheduledFocalLoss SoftAvUCLoss differentiable_ece differentiable_sece "
        "focal_gamma loss_settings "
    ),
    "maps": "FitSummary Map",
    "metrics": (
        "Metric Tally accuracy ace augrc aupr_error aupr_success aurc auroc brier calibration_refinement "
        "e_aurc ece ece_l1_debiased ece_l2_debiased entropy fpr95 kde_ece ks mce mmce murphy nll oe piece "
        "refinement_terms sce sece sece_printed skce smece tl_ece top_brier "
    ),
    "models": "all_models build_model",
    "paper": "Paper",
    "predictions": "Predictions TopLabel",
    "evaluation": "Evaluation evaluate",
    "report": "Verdict verdict",
    "files": "MapFile load load_feature_map load_features load_map read_map_file save save_map",
    "training": "EpochRecord Mixup Recipe Run Session Speed TrainingData load_network train_runs train_together",
}
# fmt: on

_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'calibrant' has no attribute {name!r}")
    return getattr(import_module(f"calibrant.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__

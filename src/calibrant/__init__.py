"""How far a classifier's confidence can be trusted.

The public names, explicit and sorted. Each is loaded when it is first used, so that ``calibrant --help`` loads neither
torch nor numpy; type checkers read the imports below.
"""

from importlib import import_module
from typing import TYPE_CHECKING

# fmt: off
if TYPE_CHECKING:
    from calibrant.catalogue import all_metrics, find_metric
    from calibrant.errors import (
        CalibrantError,
        CalibrantWarning,
        FileError,
        FitError,
        InputError,
        UnknownNameError,
    )
    from calibrant.evidence import Difference, Estimate, compare, estimate
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
    from calibrant.report import Evaluation, Verdict, evaluate, verdict
    from calibrant.sources import load, save

__all__ = [
    "CalibrantError", "CalibrantWarning", "Difference", "Estimate", "Evaluation", "FileError", "FitError",
    "InputError", "Metric", "Paper", "Predictions", "Tally", "TopLabel", "UnknownNameError", "Verdict", "accuracy",
    "ace", "all_metrics", "augrc", "aupr_error", "aupr_success", "aurc", "auroc", "brier", "calibration_refinement",
    "compare", "e_aurc", "ece", "ece_l1_debiased", "ece_l2_debiased", "entropy", "estimate", "evaluate",
    "find_metric", "fpr95", "kde_ece", "ks", "load", "mce", "mmce", "murphy", "nll", "oe", "refinement_terms",
    "save", "sce", "sece", "sece_printed", "skce", "smece", "tl_ece", "top_brier", "verdict",
]

_HOMES = {
    "catalogue": "all_metrics find_metric",
    "errors": "CalibrantError CalibrantWarning FileError FitError InputError UnknownNameError",
    "evidence": "Difference Estimate compare estimate",
    "metrics": (
        "Metric Tally accuracy ace augrc aupr_error aupr_success aurc auroc brier calibration_refinement "
        "e_aurc ece ece_l1_debiased ece_l2_debiased entropy fpr95 kde_ece ks mce mmce murphy nll oe "
        "refinement_terms sce sece sece_printed skce smece tl_ece top_brier "
    ),
    "paper": "Paper",
    "predictions": "Predictions TopLabel",
    "report": "Evaluation Verdict evaluate verdict",
    "sources": "load save",
}
# fmt: on

_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'calibrant' has no attribute {name!r}")
    return getattr(import_module(f"calibrant.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__

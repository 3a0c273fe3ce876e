"""Metrics: states that add up, and values read off them."""

from calibrant.metrics.base import Metric
from calibrant.metrics.binned import (
    ECE,
    MCE,
    OE,
    ECEL1Debiased,
    ECEL2Debiased,
    ece,
    ece_l1_debiased,
    ece_l2_debiased,
    mce,
    oe,
)
from calibrant.metrics.classwise import SCE, TLECE, sce, tl_ece
from calibrant.metrics.crossfit import Split, calibration_refinement
from calibrant.metrics.decomposition import Murphy, RefinementTerms, murphy, refinement_terms
from calibrant.metrics.description import Accuracy, Confidence, Entropy, accuracy, confidence, entropy
from calibrant.metrics.detection import AUROC, FPR95, AUPRError, AUPRSuccess, aupr_error, aupr_success, auroc, fpr95
from calibrant.metrics.kernel import SKCE, skce
from calibrant.metrics.proper import NLL, Brier, TopBrier, brier, nll, top_brier
from calibrant.metrics.proximity import piece
from calibrant.metrics.ranked import ACE, KS, MMCE, ace, ks, mmce
from calibrant.metrics.selective import AUGRC, AURC, EAURC, augrc, aurc, e_aurc
from calibrant.metrics.smooth import KDEECE, SECE, SECEPrinted, SmECE, kde_ece, sece, sece_printed, smece
from calibrant.metrics.states import State
from calibrant.metrics.statistics import RankedCells, RankedRows
from calibrant.metrics.tally import Tally

__all__ = [
    "ACE",
    "AUGRC",
    "AURC",
    "AUROC",
    "EAURC",
    "ECE",
    "FPR95",
    "KDEECE",
    "KS",
    "MCE",
    "MMCE",
    "NLL",
    "OE",
    "SCE",
    "SECE",
    "SKCE",
    "TLECE",
    "AUPRError",
    "AUPRSuccess",
    "Accuracy",
    "Brier",
    "Confidence",
    "ECEL1Debiased",
    "ECEL2Debiased",
    "Entropy",
    "Metric",
    "Murphy",
    "RankedCells",
    "RankedRows",
    "RefinementTerms",
    "SECEPrinted",
    "SmECE",
    "Split",
    "State",
    "Tally",
    "TopBrier",
    "accuracy",
    "ace",
    "augrc",
    "aupr_error",
    "aupr_success",
    "aurc",
    "auroc",
    "brier",
    "calibration_refinement",
    "confidence",
    "e_aurc",
    "ece",
    "ece_l1_debiased",
    "ece_l2_debiased",
    "entropy",
    "fpr95",
    "kde_ece",
    "ks",
    "mce",
    "mmce",
    "murphy",
    "nll",
    "oe",
    "piece",
    "refinement_terms",
    "sce",
    "sece",
    "sece_printed",
    "skce",
    "smece",
    "tl_ece",
    "top_brier",
]  # fmt: skip

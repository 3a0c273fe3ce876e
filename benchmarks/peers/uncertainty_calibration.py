"""uncertainty-calibration (Kumar et al.): plug-in and debiased errors from probabilities."""

import calibration

from .rows import Rows


def ece_from_probs(rows: Rows) -> float:
    """Fifteen bins of equal width."""
    return calibration.get_ece(rows.probs_array, rows.labels_array, num_bins=15)


def ace_from_probs(rows: Rows) -> float:
    """Fifteen bins of equal mass."""
    return calibration.get_ece_em(rows.probs_array, rows.labels_array, num_bins=15)


def sce_from_probs(rows: Rows) -> float:
    """Class by class, fifteen bins of equal width. Half a minute and more at 50,000 x 1000."""
    return calibration.get_ece(rows.probs_array, rows.labels_array, num_bins=15, mode="marginal")


def ece_l2_debiased_from_probs(rows: Rows) -> float:
    """Debiased, fifteen bins of equal width."""
    return calibration.lower_bound_scaling_top_ce(
        rows.probs_array, rows.labels_array, p=2, num_bins=15, binning_scheme=calibration.get_equal_prob_bins
    )


TASKS = {
    "ece from probs": ece_from_probs,
    "ace from probs": ace_from_probs,
    "sce from probs": sce_from_probs,
    "ece_l2_debiased from probs": ece_l2_debiased_from_probs,
}

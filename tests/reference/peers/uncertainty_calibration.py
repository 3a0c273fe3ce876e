"""uncertainty-calibration: the code of Kumar et al., plug-in and debiased."""

from collections.abc import Iterator

import calibration
import calibration.utils
import numpy as np
from data import Dataset
from question import EVEN_BINS, Question, Tolerance, WrongAnswer

PEER = "uncertainty-calibration"
DRAWS = 100_000

_SAMPLED = Tolerance(1.5e-4, f"the peer draws its expectation from {DRAWS:,} samples; four standard errors")


def _sampled_l1(data: Dataset) -> float:
    # get_ece(debias=True) raises as soon as one of the fifteen bins is empty, and with ten classes one always is.
    edges = calibration.utils.get_equal_prob_bins(data.confidence, num_bins=15)
    bins = calibration.utils.bin(list(zip(data.confidence, data.correct, strict=True)), edges)
    np.random.seed(0)  # noqa: NPY002  # the peer draws from numpy's global generator
    return calibration.utils.normal_debiased_ce([b for b in bins if len(b)], power=1, resamples=DRAWS)


QUESTIONS = (
    Question(
        "ece",
        "get_ece(probs, labels, num_bins=15)",
        lambda data: calibration.get_ece(data.probs, data.labels, num_bins=15),
        options={"n_bins": 15},
    ),
    Question(
        "ace",
        f"get_ece_em(probs, labels, num_bins={EVEN_BINS})",
        lambda data: calibration.get_ece_em(data.probs, data.labels, num_bins=EVEN_BINS),
        options={"n_bins": EVEN_BINS},
        left_out={"ties": "the peer merges tied edges: bins of unequal mass, another definition"},
    ),
    Question(
        "sce",
        "get_ece(probs, labels, num_bins=15, mode='marginal')",
        lambda data: calibration.get_ece(data.probs, data.labels, num_bins=15, mode="marginal"),
        options={"n_bins": 15},
    ),
    Question(
        "ece_l2_debiased",
        "lower_bound_scaling_top_ce(probs, labels, p=2, debias=True, num_bins=15, binning_scheme=get_equal_prob_bins)",
        lambda data: calibration.lower_bound_scaling_top_ce(
            data.probs, data.labels, p=2, debias=True, num_bins=15, binning_scheme=calibration.get_equal_prob_bins
        ),
        options={"n_bins": 15},
    ),
    Question(
        "ece_l1_debiased",
        f"normal_debiased_ce(the non-empty ones of 15 equal-width bins, power=1, resamples={DRAWS})",
        _sampled_l1,
        tolerance=_SAMPLED,
        options={"n_bins": 15},
    ),
)


def wrong_answers() -> Iterator[WrongAnswer]:
    """None known."""
    return iter(())

"""Refinement: how well confidence tells right answers from wrong ones. Calibration says nothing about it."""

from dataclasses import dataclass
from typing import ClassVar, Unpack, final

import torch
from torch import Tensor

from calibrant.metrics.base import Family
from calibrant.metrics.families import RankMetric
from calibrant.metrics.ranking import Ranked, TopState
from calibrant.paper import Paper
from calibrant.predictions import Arrays, Predictions, TopLabel

__all__ = ["AUROC", "FPR95", "AUPRError", "AUPRSuccess", "aupr_error", "aupr_success", "auroc", "fpr95"]

_SINGH = Paper("Singh et al.", 2021, "On the Dark Side of Calibration for Modern Neural Networks", "arXiv:2106.09385",
               "eq. 4")  # fmt: skip
_CORBIERE = Paper("Corbière et al.", 2019, "Addressing Failure Prediction by Learning Model Confidence",
                  "arXiv:1910.04851")  # fmt: skip


@final
@dataclass(frozen=True)
class AUROC(RankMetric):
    """Probability that a right answer is more confident than a wrong one (ties count half).

    0.5 is guessing, 1 perfect separation. Undefined (NaN) when all answers are right, or all wrong.

    Formula: P(c_right > c_wrong) + ½ P(c_right = c_wrong)
    Estimator: exact, mid-ranks, on log-odds, so that confidences which round to 1.0 still count. (The rank formula
        printed in the paper exceeds 1; Hand and Till's correction is subtracted.)
    Bias: none.
    Cost: O(n log n); exact state 8 bytes a row, or ``ranks=RankedCells()`` in bounded memory.
    """

    name: ClassVar[str] = "auroc"
    title: ClassVar[str] = "AUROC of correctness"
    family: ClassVar[Family] = "refinement"
    paper: ClassVar[Paper] = _SINGH
    lower_is_better: ClassVar[bool | None] = False

    def value(self, state: TopState) -> Tensor:
        """Share of right-wrong pairs in the right order."""
        ranked = state.ranked
        above = (ranked.n_right[..., None] - ranked.right_up_to).add_(ranked.right, alpha=0.5)
        pairs = ranked.n_right * (ranked.n - ranked.n_right)
        return above.mul_(ranked.wrong).sum(-1) / pairs


@final
@dataclass(frozen=True)
class AUPRSuccess(RankMetric):
    """Average precision of finding right answers by high confidence.

    Its baseline is the accuracy, not 0.5: compare only models of the same accuracy. NaN when all answers are wrong.

    Formula: Σ_j (recall_j − recall_{j−1}) · precision_j, from the most confident down
    Estimator: step-wise average precision; tied rows enter together.
    Bias: slightly upward in small samples.
    Cost: O(n log n); exact state 8 bytes a row, or ``ranks=RankedCells()`` in bounded memory.
    """

    name: ClassVar[str] = "aupr_success"
    title: ClassVar[str] = "AUPR, right answers"
    family: ClassVar[Family] = "refinement"
    paper: ClassVar[Paper] = _CORBIERE
    lower_is_better: ClassVar[bool | None] = False

    def value(self, state: TopState) -> Tensor:
        """Precision at each confidence, weighted by the right answers there."""
        ranked = state.ranked
        right_above, above = _from_the_top(ranked)
        return (ranked.right * right_above / above.clamp(min=1)).sum(-1) / ranked.n_right


@final
@dataclass(frozen=True)
class AUPRError(RankMetric):
    """Average precision of finding wrong answers by low confidence.

    Its baseline is the error rate: compare only models of the same accuracy. NaN when all answers are right.

    Formula: Σ_j (recall_j − recall_{j−1}) · precision_j, from the least confident up
    Estimator: step-wise average precision; tied rows enter together.
    Bias: slightly upward in small samples.
    Cost: O(n log n); exact state 8 bytes a row, or ``ranks=RankedCells()`` in bounded memory.
    """

    name: ClassVar[str] = "aupr_error"
    title: ClassVar[str] = "AUPR, wrong answers"
    family: ClassVar[Family] = "refinement"
    paper: ClassVar[Paper] = _CORBIERE
    lower_is_better: ClassVar[bool | None] = False

    def value(self, state: TopState) -> Tensor:
        """Precision at each confidence, weighted by the wrong answers there."""
        ranked = state.ranked
        wrong_below = ranked.total_up_to - ranked.right_up_to
        precision = wrong_below / ranked.total_up_to.clamp(min=1)
        return (ranked.wrong * precision).sum(-1) / (ranked.n - ranked.n_right)


@final
@dataclass(frozen=True)
class FPR95(RankMetric):
    """Share of the wrong answers still accepted at the highest threshold that accepts 95 % of the right ones.

    NaN when all answers are right, or all wrong.

    Formula: FPR at the largest threshold with TPR ≥ 0.95, right answers positive
    Estimator: exact, no interpolation between thresholds.
    Bias: small; jumpy when wrong answers are few.
    Cost: O(n log n); exact state 8 bytes a row, or ``ranks=RankedCells()`` in bounded memory.
    """

    name: ClassVar[str] = "fpr95"
    title: ClassVar[str] = "FPR at 95 % TPR"
    family: ClassVar[Family] = "refinement"
    paper: ClassVar[Paper] = _CORBIERE
    lower_is_better: ClassVar[bool | None] = True

    def value(self, state: TopState) -> Tensor:
        """Wrong answers at or above the threshold."""
        ranked = state.ranked
        right_above, above = _from_the_top(ranked)
        # Going up, fewer right answers remain: the last place with enough of them is the threshold. A hair of slack
        # because 0.95 times a whole number need not be whole in binary.
        enough = right_above >= 0.95 * ranked.n_right[..., None] - 1e-9
        place = (enough.sum(-1, keepdim=True) - 1).clamp(min=0)
        wrong_above = (above - right_above).gather(-1, place).squeeze(-1)
        accepted = wrong_above / (ranked.n - ranked.n_right)
        return torch.where(ranked.n_right > 0, accepted, torch.nan)


def _from_the_top(ranked: Ranked) -> tuple[Tensor, Tensor]:
    """Right answers, and all answers, at this confidence or higher."""
    right = ranked.n_right[..., None] - ranked.right_up_to + ranked.right
    return right, ranked.n[..., None] - ranked.total_up_to + ranked.total


def auroc(*predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
    """Area under the ROC curve of telling right from wrong by confidence (:class:`AUROC`).

    Example:
        >>> auroc(TopLabel([0.9, 0.8, 0.7, 0.6], [True, True, False, True]))
        0.6666666666666666
    """
    return AUROC()(*predictions, **arrays)


def aupr_success(*predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
    """Average precision of finding right answers (:class:`AUPRSuccess`)."""
    return AUPRSuccess()(*predictions, **arrays)


def aupr_error(*predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
    """Average precision of finding wrong answers (:class:`AUPRError`)."""
    return AUPRError()(*predictions, **arrays)


def fpr95(*predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
    """False-positive rate at 95 % true-positive rate (:class:`FPR95`)."""
    return FPR95()(*predictions, **arrays)

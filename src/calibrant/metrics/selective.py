"""Selective classification: what risk remains if only the most confident answers are given."""

from dataclasses import dataclass
from typing import ClassVar, Unpack, final

import torch
from torch import Tensor

from calibrant.metrics.base import Family
from calibrant.metrics.families import RankMetric
from calibrant.metrics.ranking import Ranked, TopState
from calibrant.numerics.softmax import positions
from calibrant.paper import Paper
from calibrant.predictions import Arrays, Predictions, TopLabel

__all__ = ["AUGRC", "AURC", "EAURC", "augrc", "aurc", "e_aurc"]

_GEIFMAN = Paper("Geifman et al.", 2019, "Bias-Reduced Uncertainty Estimation for Deep Neural Classifiers",
                 "arXiv:1805.08206")  # fmt: skip
_TRAUB = Paper("Traub et al.", 2024, "Overcoming Common Flaws in the Evaluation of Selective Classification Systems",
               "arXiv:2407.01032")  # fmt: skip


@final
@dataclass(frozen=True)
class AURC(RankMetric):
    """Area under the risk-coverage curve: mean error rate over all "answer only the j most confident".

    Mixes accuracy and ranking; see e_aurc for the ranking alone.

    Formula: 1/n Σ_j (wrong answers among the j most confident)/j
    Estimator: exact; among tied rows every order is equally likely, and the expectation over them is taken.
    Bias: none to speak of.
    Cost: O(n log n); exact state 8 bytes a row, or ``ranks=RankedCells()`` in bounded memory.
    """

    name: ClassVar[str] = "aurc"
    title: ClassVar[str] = "Area under risk-coverage"
    family: ClassVar[Family] = "refinement"
    paper: ClassVar[Paper] = _GEIFMAN
    lower_is_better: ClassVar[bool | None] = True

    def value(self, state: TopState) -> Tensor:
        """Mean selective risk."""
        return _aurc(state.ranked)


@final
@dataclass(frozen=True)
class EAURC(RankMetric):
    """Excess AURC: the area above that of a perfect ranking with the same accuracy.

    Formula: aurc − (the same with all wrong answers last)
    Estimator: exact; the optimum is the finite sum, not its limit r + (1 − r) ln(1 − r), so the result is never
        negative.
    Bias: none to speak of.
    Cost: as aurc.
    """

    name: ClassVar[str] = "e_aurc"
    title: ClassVar[str] = "Excess AURC"
    family: ClassVar[Family] = "refinement"
    paper: ClassVar[Paper] = _GEIFMAN
    lower_is_better: ClassVar[bool | None] = True

    def value(self, state: TopState) -> Tensor:
        """Area above the perfect ranking's."""
        ranked = state.ranked
        n, n_right = ranked.n, ranked.n_right
        # Σ_{j=1..wrong} j/(right + j) = wrong − right·(H_n − H_right)
        best = (n - n_right - n_right * _harmonic_between(n_right, n)) / n
        return (_aurc(ranked) - best).clamp(min=0)


@final
@dataclass(frozen=True)
class AUGRC(RankMetric):
    """Area under the generalised risk-coverage curve: mean share of answers that are accepted and wrong.

    Unlike aurc it does not let the few most confident answers decide.

    Formula: ∫ P(accepted and wrong) d coverage = (1 − auroc)·acc·(1 − acc) + ½(1 − acc)²
    Estimator: exact trapezoid; ties enter along a straight line.
    Bias: none.
    Cost: as aurc.
    """

    name: ClassVar[str] = "augrc"
    title: ClassVar[str] = "Area under generalised risk-coverage"
    family: ClassVar[Family] = "refinement"
    paper: ClassVar[Paper] = _TRAUB
    lower_is_better: ClassVar[bool | None] = True

    def value(self, state: TopState) -> Tensor:
        """Trapezoids, one a distinct confidence."""
        ranked = state.ranked
        _, wrong_before = _accepted_before(ranked)
        return (ranked.total * (wrong_before + ranked.wrong / 2)).sum(-1) / ranked.n.square()


def _accepted_before(ranked: Ranked) -> tuple[Tensor, Tensor]:
    """Answers, and wrong answers, more confident than each entry."""
    accepted = ranked.n[..., None] - ranked.total_up_to
    wrong = (ranked.right_up_to - ranked.n_right[..., None]).add_(accepted)
    return accepted, wrong


def _harmonic_between(low: Tensor, high: Tensor) -> Tensor:
    """Sum of 1/j over low < j <= high."""
    return torch.digamma(high + 1) - torch.digamma(low + 1)


def _aurc(ranked: Ranked) -> Tensor:
    accepted, wrong = _accepted_before(ranked)
    if ranked.right.ndim > 1:
        return _group_risks(accepted, wrong, ranked.total, ranked.wrong).sum(-1) / ranked.n
    # One sample has few ties if any: a lone row adds (E + e)/(N + 1), and only groups (and empty entries of a resample)
    # need the general sum.
    tied = positions(ranked.total != 1)
    groups = _group_risks(*(column.index_select(0, tied) for column in (accepted, wrong, ranked.total, ranked.wrong)))
    alone = wrong.add_(ranked.wrong).div_(accepted.add_(1))
    return (alone.sum() - alone.index_select(0, tied).sum() + groups.sum()) / ranked.n


def _group_risks(accepted: Tensor, wrong_before: Tensor, total: Tensor, wrong: Tensor) -> Tensor:
    """Summed risk over each group of tied rows, in expectation over their order.

    A group of m rows with e wrong ones, after N rows with E wrong ones, adds
    ``Σ_{j=1..m} (E + j e/m)/(N + j) = e + (E − N e/m)(H_{N+m} − H_N)``.
    """
    steps = _harmonic_between(accepted, accepted + total)
    return wrong + (wrong_before - accepted * (wrong / total.clamp(min=1))) * steps


def aurc(*predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
    """Area under the risk-coverage curve (:class:`AURC`)."""
    return AURC()(*predictions, **arrays)


def e_aurc(*predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
    """Excess area under the risk-coverage curve (:class:`EAURC`)."""
    return EAURC()(*predictions, **arrays)


def augrc(*predictions: Predictions | TopLabel, **arrays: Unpack[Arrays]) -> float:
    """Area under the generalised risk-coverage curve (:class:`AUGRC`)."""
    return AUGRC()(*predictions, **arrays)

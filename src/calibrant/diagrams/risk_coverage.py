"""What risk remains if only the most confident answers are given."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from calibrant.metrics.ranking import Ranked
from calibrant.metrics.selective import AURC, EAURC
from calibrant.metrics.statistics import RankedRows
from calibrant.predictions import Predictions, TopLabel

__all__ = ["RiskCoverage", "risk_coverage"]

_MOST_POINTS = 1000


@final
@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """The risk-coverage curve at up to a thousand coverages, and the best one that the same accuracy allows."""

    coverage: Tensor  # (m,) share of rows answered, rising to 1
    risk: Tensor  # (m,) share of wrong ones among those answered
    optimal: Tensor  # (m,) the same if every wrong answer were less confident than every right one
    threshold: Tensor  # (m,) confidence of the least confident answer given
    n: int
    aurc: float  # exact, from all rows
    e_aurc: float


def risk_coverage(predictions: Predictions | TopLabel) -> RiskCoverage:
    """Error rate among the most confident answers, for every share of rows answered.

    Read it at the coverage you can afford. Its left end rests on few rows and is noisy. Tied rows have no order, so
    the expectation over all their orders is taken.

    Example:
        >>> curve = risk_coverage(TopLabel([0.9, 0.8, 0.7, 0.6], [True, False, True, False]))
        >>> curve.coverage.tolist(), curve.risk.tolist()
        ([0.25, 0.5, 0.75, 1.0], [0.0, 0.5, 0.3333333333333333, 0.5])
    """
    ranked = RankedRows()(predictions).ranked
    n, n_right = int(ranked.n), int(ranked.n_right)
    answered = _counts_to_show(n)
    wrong, threshold = _wrong_among(answered, ranked)
    return RiskCoverage(
        coverage=answered / n,
        risk=wrong / answered,
        optimal=(answered - n_right).clamp(min=0) / answered,
        threshold=threshold,
        n=n,
        aurc=float(AURC().value(ranked)),
        e_aurc=float(EAURC().value(ranked)),
    )


def _counts_to_show(n: int) -> Tensor:
    """Up to a thousand numbers of answers, evenly spaced and ending with all n."""
    shown = min(n, _MOST_POINTS)
    return (torch.arange(1, shown + 1, dtype=torch.float64) * n / shown).round()


def _wrong_among(answered: Tensor, ranked: Ranked) -> tuple[Tensor, Tensor]:
    """Wrong answers expected among the most confident ones, and the confidence of the last of these."""
    total, wrong, confidence = (part.flip(-1).cpu() for part in (ranked.total, ranked.wrong, ranked.confidence))
    total_up_to = total.cumsum(0)
    last = torch.searchsorted(total_up_to, answered)
    # Of the last group of tied rows some are not given; the wrong ones among these are expected in proportion.
    held_back = (total_up_to[last] - answered) / total[last]
    return wrong.cumsum(0)[last] - held_back * wrong[last], confidence[last]

"""Two sets of predictions for the same labels: is one better, and how sure is that?"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from calibrant.errors import InputError
from calibrant.evidence.groups import draw_groups
from calibrant.evidence.interval import bootstrap_interval, paired_p
from calibrant.evidence.weighted import values_of
from calibrant.metrics import Metric
from calibrant.predictions import Predictions, TopLabel

__all__ = ["Contest", "Difference", "compare"]


@final
@dataclass(frozen=True)
class Difference:
    """The first number, the second, and second minus first with its 95 % interval and two-sided p-value."""

    first: float
    second: float
    difference: float
    low: float
    high: float
    p: float


def compare(
    first: Predictions | TopLabel,
    second: Predictions | TopLabel,
    metrics: Iterable[Metric],
    *,
    resamples: int = 500,
    seed: int = 0,
) -> dict[str, Difference]:
    """Paired bootstrap of the difference of each metric, second minus first.

    Both sets must describe the same rows in the same order. Rows are drawn for both at once, so what is common to both
    (hard rows, easy rows) cancels, and small differences can be told from noise.

    Raises:
        InputError: If the sets differ in length, in labels, or in kind.

    Example:
        >>> from calibrant.metrics import NLL
        >>> logits, labels = torch.randn(500, 3, generator=torch.manual_seed(0)), torch.zeros(500, dtype=torch.int64)
        >>> found = compare(Predictions(3 * logits, labels), Predictions(logits, labels), [NLL()])["nll"]
        >>> found.high < 0, found.p < 0.01
        (True, True)
    """
    contest = Contest(first, metrics, resamples=resamples, seed=seed)
    return contest.differences(contest.values(first), contest.values(second))


@final
class Contest:
    """Several sets of predictions for the same rows: each is resampled once, and then compared with any other.

    Args:
        rows: The first of them; the others must have its rows in its order.
        metrics: What to compare.
        resamples: Draws, the same rows for every set.
        seed: Of the draws.
    """

    def __init__(
        self, rows: Predictions | TopLabel, metrics: Iterable[Metric], *, resamples: int = 500, seed: int = 0
    ) -> None:
        self.metrics = tuple(metrics)
        self._rows = rows
        self._group, weights = draw_groups(len(rows), resamples, np.random.default_rng([seed, 5]))
        # The first line has every row once: its values are the plain ones.
        self._weights = torch.cat([torch.ones_like(weights[:1]), weights])

    def values(self, rows: Predictions | TopLabel) -> dict[str, Tensor]:
        """Each metric of the rows themselves, then of every resample, (resamples + 1,).

        Raises:
            InputError: If these are not the rows of the contest.
        """
        _check_pair(self._rows, rows)
        return values_of(rows, self.metrics, self._group, self._weights)

    def differences(self, first: dict[str, Tensor], second: dict[str, Tensor]) -> dict[str, Difference]:
        """Second minus first, from the values of each."""
        return {m.name: self.difference(m, first[m.name], second[m.name]) for m in self.metrics}

    def difference(self, metric: Metric, first: Tensor, second: Tensor) -> Difference:
        """The same of one metric."""
        return _difference(metric, first, second, self._weights.shape[1])


def _check_pair(first: Predictions | TopLabel, second: Predictions | TopLabel) -> None:
    if type(first) is not type(second):
        raise InputError("both sets must be of one kind; got predictions over classes and a top-label table.")
    if len(first) != len(second):
        raise InputError(f"both sets must describe the same rows; got {len(first)} and {len(second)} rows.")
    if isinstance(first, Predictions) and isinstance(second, Predictions):
        differ = (first.labels.cpu() != second.labels.cpu()).nonzero()
        if differ.numel():
            row = int(differ[0])
            raise InputError(
                f"both sets must have the same labels in the same order; row {row} has {int(first.labels[row])} and "
                f"{int(second.labels[row])} ({differ.numel()} rows differ). Sort both by the same key first."
            )


def _difference(metric: Metric, first: Tensor, second: Tensor, groups: int) -> Difference:
    change = second - first
    value, drawn = float(change[0]), change[1:][~change[1:].isnan()]
    if not drawn.numel():
        return Difference(float(first[0]), float(second[0]), value, math.nan, math.nan, math.nan)
    inflated = metric.family == "calibration"
    low, high = bootstrap_interval(value, drawn, inflated=inflated)
    centred = drawn - 2 * (drawn.mean() - value) if inflated else drawn
    return Difference(float(first[0]), float(second[0]), value, low, high, paired_p(centred, groups))

"""Rows dealt at random into groups, whose states the bootstrap then draws and adds up instead of the rows."""

from collections.abc import Iterable
from functools import reduce
from operator import or_

import numpy as np
import torch
from torch import Tensor

from calibrant.metrics.base import Statistic
from calibrant.metrics.states import Sums
from calibrant.numerics.softmax import TOP_LABEL
from calibrant.predictions import Predictions

__all__ = ["bootstrap_weights", "deal", "states_by_group"]

# Enough that a group more or less does not show in an interval, few enough that their states fit in memory.
_GROUPS = 256


def deal(n: int, rng: np.random.Generator) -> Tensor:
    """The group of each of n rows, (n,); with fewer rows than groups every row is its own."""
    group = np.empty(n, dtype=np.int64)
    group[rng.permutation(n)] = np.arange(n) % min(n, _GROUPS)
    return torch.from_numpy(group)


def bootstrap_weights(group: Tensor, resamples: int, rng: np.random.Generator) -> Tensor:
    """How often each group is drawn in each resample, (resamples, groups), float64."""
    groups = int(group.max()) + 1
    return torch.from_numpy(rng.multinomial(groups, np.full(groups, 1 / groups), size=resamples)).double()


def states_by_group(rows: Predictions, statistics: Iterable[Statistic], group: Tensor) -> dict[Statistic, Sums]:
    """The states of the groups, side by side, from one pass over the logits."""
    statistics = tuple(statistics)
    rows.softmax_rows(reduce(or_, (statistic.wanted for statistic in statistics), TOP_LABEL))
    group = group.to(rows.logits.device)
    return {statistic: statistic.by_group(rows, group) for statistic in statistics}

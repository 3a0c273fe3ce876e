"""Rows dealt at random into groups, whose states the bootstrap then draws and adds up instead of the rows."""

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from calibrant.metrics.base import Statistic
from calibrant.metrics.states import Sums
from calibrant.numerics.softmax import TOP_LABEL
from calibrant.predictions import Predictions

__all__ = ["GroupDraws", "draw_groups", "states_by_group"]

# Enough that a group more or less does not show in an interval, few enough that their states fit in memory.
_GROUPS = 256


class GroupDraws(NamedTuple):
    """Samples dealt into groups, and groups drawn with replacement."""

    group: Tensor  # (n,) the group of each sample
    weights: Tensor  # (resamples, groups) how often each is drawn, float64


def draw_groups(n: int, resamples: int, rng: np.random.Generator) -> GroupDraws:
    """Deal n samples into groups, each its own group if they are few, and draw the groups again and again."""
    groups = min(n, _GROUPS)
    group = np.empty(n, dtype=np.int64)
    group[rng.permutation(n)] = np.arange(n) % groups
    weights = rng.multinomial(groups, np.full(groups, 1 / groups), size=resamples)
    return GroupDraws(torch.from_numpy(group), torch.from_numpy(weights).double())


def states_by_group(rows: Predictions, statistics: Iterable[Statistic], group: Tensor) -> dict[Statistic, Sums]:
    """The states of the groups, side by side, from one pass over the logits."""
    statistics = tuple(statistics)
    rows.softmax_rows(reduce(or_, (statistic.wanted for statistic in statistics), TOP_LABEL))
    group = group.to(rows.logits.device)
    return {statistic: statistic.by_group(rows, group) for statistic in statistics}

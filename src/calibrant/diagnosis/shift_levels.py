"""Means over corruptions by severity, as results on corrupted sets are told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from calibrant.diagnosis.over_seeds import Spread, TwoSample, spread, two_sample
from calibrant.diagnosis.record import Record
from calibrant.diagnosis.shift_rows import CLEAN, ShiftRow
from calibrant.diagnosis.shifted_sets import ShiftSource

__all__ = ["ShiftLevel", "shift_levels"]


@final
@dataclass(frozen=True, eq=False)
class ShiftLevel(Record):
    """One candidate under one map at one severity: the mean over corruptions of each run, over its runs.

    A mean of calibration errors is not the error of the mean: a network that claims too much under noise and too little
    under blur has an ECE under both, and ``gap`` may be 0. A number that one corruption does not give (AUROC, where all
    answers are wrong) is missing, because the mean of the others would not be comparable.
    """

    candidate: str
    map: str
    source: ShiftSource  # corruptions of the library, or of files; the two are not mixed
    severity: int  # 0 for the clean rows
    shifts: tuple[str, ...]  # that the mean is over
    metrics: Mapping[str, Spread]
    change: Mapping[str, Spread]  # of each since the clean rows, run by run
    t_tests: Mapping[str, TwoSample]  # of each against the reference's runs under this map; empty for the reference


def shift_levels(rows: Sequence[ShiftRow], reference: str) -> tuple[ShiftLevel, ...]:
    """By source, candidate, map and rising severity; none where no set has a severity.

    Args:
        rows: Of all sets, those of the clean rows among them.
        reference: The name of a candidate.

    Reference:
        Hendrycks & Dietterich (2019), Benchmarking Neural Network Robustness to Common Corruptions and Perturbations.
    """
    groups: dict[tuple[ShiftSource, str, str, int], list[ShiftRow]] = {}
    sources = dict.fromkeys(row.source for row in rows if row.severity is not None)
    for source in sources:
        for row in rows:
            if row.source == CLEAN or (row.source == source and row.severity is not None):
                groups.setdefault((source, row.candidate, row.map, row.severity or 0), []).append(row)
    means = {key: _means(group) for key, group in groups.items()}
    order = list(dict.fromkeys((row.candidate, row.map) for row in rows))
    found = []
    for source, candidate, name, severity in sorted(groups, key=lambda key: (key[0], order.index(key[1:3]), key[3])):
        values, clean = means[source, candidate, name, severity], means[source, candidate, name, 0]
        rival = {} if candidate == reference else means[source, reference, name, severity]
        found.append(
            ShiftLevel(
                candidate=candidate,
                map=name,
                source=source,
                severity=severity,
                shifts=tuple(row.shift for row in groups[source, candidate, name, severity]),
                metrics={metric: spread(each.tolist()) for metric, each in values.items()},
                change={metric: spread((each - clean[metric]).tolist()) for metric, each in values.items()},
                t_tests={metric: two_sample(each.tolist(), values[metric].tolist()) for metric, each in rival.items()},
            )
        )
    return tuple(found)


def _means(rows: Sequence[ShiftRow]) -> dict[str, np.ndarray]:
    """The mean over sets of each run, (runs,) by metric."""
    return {name: np.array([row.metrics[name].values for row in rows]).mean(0) for name in rows[0].metrics}

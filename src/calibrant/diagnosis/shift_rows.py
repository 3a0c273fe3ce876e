"""What a shift does to one candidate under one map: numbers, and what they were on the clean rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from calibrant.diagnosis.against import Against
from calibrant.diagnosis.direction import Direction, directions
from calibrant.diagnosis.judged import Judged
from calibrant.diagnosis.over_seeds import Spread, spread
from calibrant.diagnosis.record import Record
from calibrant.diagnosis.shifted_sets import ShiftSource

__all__ = ["CLEAN", "ShiftRow", "ShiftSummary", "shift_rows"]

CLEAN: Final = "clean"  # the test rows as they are
_METRICS = ("accuracy", "ece", "nll", "brier", "auroc")


@final
@dataclass(frozen=True)
class ShiftSummary(Record):
    """What a set is."""

    shift: str  # its name; "clean" for the test rows as they are
    source: ShiftSource
    severity: int | None  # None for a shift that has no severities
    n: int


@final
@dataclass(frozen=True, eq=False)
class ShiftRow(Record):
    """One candidate under one map on one set, over its runs.

    The maps were fitted on clean calibration rows. A map that mends the clean rows need not mend these: it suits the
    accuracy there, and here accuracy is another.
    """

    candidate: str
    map: str
    shift: str
    source: ShiftSource
    severity: int | None
    n: int
    metrics: Mapping[str, Spread]  # accuracy, ece, nll, brier, auroc, and gap: mean confidence minus accuracy
    change: Mapping[str, Spread]  # of each since the clean rows, run by run
    direction: Direction
    against: Mapping[str, Against]  # the reference on the same rows: ece, auroc, accuracy; empty where not compared


def shift_rows(
    judged: Judged,
    summary: ShiftSummary,
    *,
    clean: Sequence[ShiftRow] = (),
    against: Mapping[str, Mapping[str, Mapping[str, Against]]] | None = None,
) -> tuple[ShiftRow, ...]:
    """A row for every candidate and map, in their order.

    Args:
        judged: On the rows of this set.
        summary: Of the set.
        clean: The same of the clean rows, in the same order; none where these are the clean rows.
        against: From :func:`~calibrant.diagnosis.against.compared_with` on the rows of this set, if at all.
    """
    found: list[ShiftRow] = []
    for candidate in judged.candidates:
        for direction in directions(candidate):
            metrics = {name: candidate.over_runs(direction.map, name) for name in _METRICS} | {"gap": direction.gap}
            before = clean[len(found)].metrics if clean else metrics
            compared = (against or {}).get(candidate.name, {}).get(direction.map, {})
            found.append(
                ShiftRow(
                    candidate=candidate.name,
                    map=direction.map,
                    shift=summary.shift,
                    source=summary.source,
                    severity=summary.severity,
                    n=summary.n,
                    metrics=metrics,
                    change={name: _change(before[name], value) for name, value in metrics.items()},
                    direction=direction,
                    against=compared,
                )
            )
    return tuple(found)


def _change(before: Spread, after: Spread) -> Spread:
    return spread([new - old for old, new in zip(before.values, after.values, strict=True)])

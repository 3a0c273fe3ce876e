"""The lines of a judgement's tables, shared by the terminal and the Markdown page."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from calibrant.clamping import CLAMPED, REFITTED, ClampingEvaluation, clamping_metrics
from calibrant.comparison import MethodResult
from calibrant.evidence import Estimate
from calibrant.maps import Scale
from calibrant.report.comparison import difference_text as change_text
from calibrant.report.page import MARKS
from calibrant.report.rows import number, p_text

__all__ = ["Pair", "TrialLine", "change_rows", "pairs", "part_legend", "part_rows", "trial_lines", "value_rows"]

_PARTS = {
    "T* only": "T* only: the clamped network without δ.",
    "head* only": "head* only: the clamped network without δ.",
    REFITTED: f"{REFITTED}: T refitted for the log-loss at the same δ.",
}


class Pair(NamedTuple):
    """Two that are compared."""

    name: str
    rival: str

    def __str__(self) -> str:
        return f"{self.name} − {self.rival}"


class TrialLine(NamedTuple):
    """One strength, ready to print."""

    chosen: bool
    strength: str
    change: str
    norm: str


def value_rows(found: ClampingEvaluation) -> list[list[str]]:
    """A metric with its direction, and its value and interval for every entry."""
    rows = []
    for metric in clamping_metrics():
        arrow = "↓" if metric.lower_is_better else "↑"
        rows.append([f"{metric.name} {arrow}", *(_value(entry.metrics[metric.name]) for entry in found.methods)])
    return rows


def pairs(found: ClampingEvaluation) -> list[Pair]:
    """Who is compared, what tells δ's own doing first; then the head alone, temperature scaling, and doing nothing."""
    first = [Pair(found.with_delta, found.without_delta)] if found.with_delta and found.without_delta else []
    return list(dict.fromkeys([*first, *(Pair(CLAMPED, rival) for rival in reversed(found.clamped.differences))]))


def change_rows(found: ClampingEvaluation, compared: Sequence[Pair]) -> list[list[str]]:
    """A metric, and for every pair the difference with its mark and p-value."""
    rows = []
    for metric in clamping_metrics():
        row = [metric.name]
        for pair in compared:
            entry = found.find(pair.name)
            assert entry is not None, "only what has numbers is compared"
            change = entry.differences[pair.rival][metric.name]
            row += [f"{change_text(change)}{MARKS[change.side] or ' '}", p_text(change.p)]
        rows.append(row)
    return rows


def part_rows(found: ClampingEvaluation) -> list[list[str]]:
    """δ and the head taken apart: heading, then who has which, with three metrics; empty where δ is 0."""
    if not found.parts:
        return []
    heading = ["", "δ", *["T"] * (found.temperature is not None), "nll ↓", "ece ↓", "accuracy ↑"]
    return [heading] + [
        [
            entry.name,
            "δ*" if entry.name in {CLAMPED, REFITTED} else "0",
            *_temperature(found, entry),
            *(_value(entry.metrics[name]) for name in ("nll", "ece", "accuracy")),
        ]
        for entry in (found.find(found.head), *found.parts, found.clamped)
        if entry is not None
    ]


def part_legend(found: ClampingEvaluation) -> str:
    """What their names mean."""
    return " ".join(_PARTS[entry.name] for entry in found.parts)


def trial_lines(found: ClampingEvaluation) -> list[TrialLine]:
    """Every strength tried, from none (δ = 0) to the weakest."""
    if not found.summary.trials:
        return []
    nothing = TrialLine(math.isinf(found.summary.strength), "∞ (δ = 0)", "0", "0")
    return [
        nothing,
        *(
            TrialLine(
                trial.strength == found.summary.strength,
                f"{trial.strength:.3g}",
                f"{trial.change:+.5f} ± {trial.standard_error:.5f}",
                f"{trial.norm:.3g}",
            )
            for trial in found.summary.trials
        ),
    ]


def _temperature(found: ClampingEvaluation, entry: MethodResult) -> list[str]:
    if found.temperature is None:
        return []
    return [f"{float(entry.map.temperature) if isinstance(entry.map, Scale) else found.temperature:.4f}"]


def _value(estimate: Estimate) -> str:
    if math.isnan(estimate.low):
        return number(estimate.value)
    return f"{number(estimate.value)} ({number(estimate.low)}…{number(estimate.high)})"

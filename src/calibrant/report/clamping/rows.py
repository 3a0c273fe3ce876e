"""The lines of a judgement's tables, shared by the terminal and the Markdown page."""

import math
from typing import NamedTuple

from calibrant.evidence import Estimate
from calibrant.report.clamping.judgement import ClampingJudgement, clamping_metrics
from calibrant.report.comparison.rows import MARKS, change_text
from calibrant.report.rows import number, p_text

__all__ = ["TrialLine", "change_rows", "trial_lines", "value_rows"]


class TrialLine(NamedTuple):
    """One strength, ready to print."""

    chosen: bool
    strength: str
    gain: str
    norm: str


def value_rows(found: ClampingJudgement) -> list[list[str]]:
    """A metric with its direction, and its value and interval for every entry."""
    rows = []
    for metric in clamping_metrics():
        arrow = "↓" if metric.lower_is_better else "↑"
        rows.append([f"{metric.name} {arrow}", *(_value(entry.metrics[metric.name]) for entry in found.entries)])
    return rows


def change_rows(found: ClampingJudgement, rivals: list[str]) -> list[list[str]]:
    """A metric, and for every rival the difference with its mark and p-value."""
    rows = []
    for metric in clamping_metrics():
        row = [metric.name]
        for rival in rivals:
            change = found.clamped.against[rival][metric.name]
            row += [f"{change_text(change)}{MARKS[change.side] or ' '}", p_text(change.p)]
        rows.append(row)
    return rows


def trial_lines(found: ClampingJudgement) -> list[TrialLine]:
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
                f"{trial.gain:+.5f} ± {trial.error:.5f}",
                f"{trial.norm:.3g}",
            )
            for trial in found.summary.trials
        ),
    ]


def _value(estimate: Estimate) -> str:
    if math.isnan(estimate.low):
        return number(estimate.value)
    return f"{number(estimate.value)} ({number(estimate.low)}…{number(estimate.high)})"

"""The lines of a report's tables, shared by the terminal and the Markdown page."""

import math
from typing import NamedTuple

from calibrant.catalogue import all_metrics
from calibrant.evidence import Difference, Estimate
from calibrant.metrics.base import Family
from calibrant.report.evaluation import Evaluation

__all__ = [
    "HEADINGS",
    "INFLATED",
    "Row",
    "comparison_rows",
    "interval",
    "metric_rows",
    "number",
    "p_text",
    "part_lines",
]

HEADINGS: dict[Family, str] = {
    "description": "What the predictions look like",
    "proper": "Proper scores (select by these)",
    "calibration": "Calibration: does confidence mean what it says?",
    "refinement": "Refinement: does confidence tell right from wrong?",
}

INFLATED = "Noise inflates calibration errors: their interval is one for the true error, and can lie below the value."


class Row(NamedTuple):
    """One number of a report, ready to print."""

    name: str
    title: str
    better: str
    value: str
    interval: str
    floor: str
    p: str


def metric_rows(evaluation: Evaluation) -> dict[Family, list[Row]]:
    """The metrics of a report by family, in the order of the headings."""
    known = all_metrics()
    rows: dict[Family, list[Row]] = {family: [] for family in HEADINGS}
    for name, found in evaluation.metrics.items():
        metric = known[name]
        better = {True: "↓", False: "↑", None: ""}[metric.lower_is_better]
        floor = "" if found.floor is None else number(found.floor)
        rows[metric.family].append(
            Row(name, metric.title, better, number(found.value), interval(found), floor, p_text(found.p))
        )
    return rows


def part_lines(evaluation: Evaluation) -> list[str]:
    """The scores taken apart, a sentence each."""
    lines = [
        f"{name} {split.total:.4f} = removed by one temperature {split.calibration:.4f} ({split.calibration_low:.4f} … "
        f"{split.calibration_high:.4f}) + left {split.refinement:.4f}, cross-fitted"
        for name, split in evaluation.splits.items()
    ]
    parts, terms = evaluation.murphy, evaluation.refinement_terms
    lines.append(
        f"top_brier {parts.brier:.4f} = reliability {parts.reliability:.4f} − resolution {parts.resolution:.4f} + "
        f"uncertainty {parts.uncertainty:.4f} + within bins {parts.within_bin:.4f} (Murphy, exact)"
    )
    lines.append(
        f"α {terms.alpha:.4f} − β {terms.beta:.4f} − γ {terms.gamma:.4f} = {terms.equation_9:.4f} (equation 9 of Singh "
        f"et al., which is not an identity); exact: ece {terms.ece:.4f} ≥ |confidence − accuracy| "
        f"{abs(terms.confidence_minus_accuracy):.4f}"
    )
    return lines


def comparison_rows(comparison: dict[str, Difference]) -> list[tuple[str, str, str, str, str, str]]:
    """Name, first, second, difference, interval and p of every compared metric."""
    return [
        (name, number(d.baseline), number(d.candidate), f"{d.value:+.4f}", f"{d.low:+.4f} … {d.high:+.4f}", p_text(d.p))
        for name, d in comparison.items()
    ]


def number(value: float) -> str:
    """Four decimals, or the leading digits of something smaller."""
    if math.isnan(value):
        return "undefined"
    return f"{value:.2e}" if 0 < abs(value) < 0.0005 else f"{value:.4f}"


def interval(found: Estimate) -> str:
    """Both bounds, or a dash where there are none."""
    if math.isnan(found.low):
        return "–"
    return f"{number(found.low)} … {number(found.high)}"


def p_text(p: float | None, *, drawn: bool = True) -> str:
    """A p-value as far as draws can tell it; one that rests on no draws in full.

    Example:
        >>> p_text(0.0312), p_text(4e-6), p_text(4e-6, drawn=False)
        ('0.031', '< .002', '4e-06')
    """
    if p is None or math.isnan(p):
        return "" if p is None else "–"
    if drawn and p < 0.002:
        return "< .002"
    return f"{p:.3f}" if p >= 0.001 else f"{p:.0e}" if p >= 1e-12 else "< 1e-12"

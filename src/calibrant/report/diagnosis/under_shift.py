"""The shift panel in short: clean rows beside the most severe level of corruptions, and beside each file."""

from collections.abc import Mapping
from typing import NamedTuple

from calibrant.diagnosis import ShiftLevel, ShiftPanel, ShiftRow, Spread
from calibrant.diagnosis.evaluated import TEMPERATURE, UNCALIBRATED
from calibrant.diagnosis.shift_panel import CLEAN
from calibrant.evidence import Side
from calibrant.report.diagnosis.cells import Cell, brief

__all__ = ["ShiftLine", "UnderShift", "shift_words", "under_shifts"]


class ShiftLine(NamedTuple):
    """A candidate under a map: its numbers on the clean rows and under the shift, by metric."""

    clean: Mapping[str, Spread]
    shifted: Mapping[str, Cell]


class UnderShift(NamedTuple):
    """One shift: its name, and every candidate under every map."""

    title: str
    lines: Mapping[tuple[str, str], ShiftLine]  # by candidate and map


def under_shifts(panel: ShiftPanel) -> list[UnderShift]:
    """The most severe level of corruptions made here, of those in files, and every file without severities."""
    clean = {(row.candidate, row.map): row.metrics for row in panel.rows if row.source == CLEAN}
    found = []
    for source in dict.fromkeys(level.source for level in panel.levels):
        severity = max(level.severity for level in panel.levels if level.source == source)
        levels = [level for level in panel.levels if (level.source, level.severity) == (source, severity)]
        shifts = levels[0].shifts
        named = shifts[0] if len(shifts) == 1 else f"{len(shifts)} corruptions{' of files' * (source == 'file')}"
        found.append(UnderShift(f"{named} at severity {severity}", _of_levels(levels, clean)))
    for each in panel.sets:
        if each.severity is None and each.source != CLEAN:
            rows = [row for row in panel.rows if (row.shift, row.source) == (each.shift, each.source)]
            found.append(UnderShift(f"{each.shift} ({each.n:,} row{'s' * (each.n != 1)})", _of_rows(rows, clean)))
    return found


def shift_words(panel: ShiftPanel, reference: str) -> list[str]:
    """A sentence for each shift: what it does to the reference; on files, who is better or worse after a temperature.

    Args:
        panel: The numbers.
        reference: What a sentence calls the reference.
    """
    said = []
    for under in under_shifts(panel):
        raw, scaled = (under.lines[panel.baseline, name] for name in (UNCALIBRATED, TEMPERATURE))
        start = f"Under {under.title}, the accuracy of {reference} goes from {_change(raw, 'accuracy')}"
        said.append(
            f"{start} and its ECE after the clean rows' temperature from {_change(scaled, 'ece')}{_others(under)}."
        )
    return said


def _change(line: ShiftLine, metric: str) -> str:
    return f"{brief(line.clean[metric].mean)} to {brief(line.shifted[metric].spread.mean)}"


def _others(under: UnderShift) -> str:
    """Those whose ECE after a temperature is lower or higher than the reference's there, beyond noise."""
    told: dict[Side, list[str]] = {"better": [], "worse": []}
    for (candidate, name), line in under.lines.items():
        # A t-test of runs alone, which is all that means over corruptions have, is too little for a sentence.
        side = line.shifted["ece"].side
        if name == TEMPERATURE and side in told:
            told[side].append(candidate)
    words = {"better": "lower", "worse": "higher"}
    parts = [f"{words[side]} for {', '.join(names)}" for side, names in told.items() if names]
    return f" ({'; '.join(parts)})" if parts else ""


def _of_levels(
    levels: list[ShiftLevel], clean: Mapping[tuple[str, str], Mapping[str, Spread]]
) -> dict[tuple[str, str], ShiftLine]:
    return {
        (level.candidate, level.map): ShiftLine(
            clean[level.candidate, level.map],
            {name: Cell(spread, level.t_tests.get(name)) for name, spread in level.metrics.items()},
        )
        for level in levels
    }


def _of_rows(
    rows: list[ShiftRow], clean: Mapping[tuple[str, str], Mapping[str, Spread]]
) -> dict[tuple[str, str], ShiftLine]:
    return {
        (row.candidate, row.map): ShiftLine(
            clean[row.candidate, row.map],
            {name: Cell(spread, against=row.differences.get(name)) for name, spread in row.metrics.items()},
        )
        for row in rows
    }

"""The part of a diagnosis about shifted test sets: its tables and its sentences."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from calibrant.diagnosis import ShiftLevel, ShiftPanel, ShiftRow, ShiftSummary, Spread
from calibrant.diagnosis.evaluated import TEMPERATURE, UNCALIBRATED
from calibrant.diagnosis.shift import CLEAN
from calibrant.evidence import Side
from calibrant.report.candidates import SeedCell, direction_text, short_text, signed_text, spread_text
from calibrant.report.page import Cell, Row, Section, Table, code, counted, table

RUN_TEST = "a t-test of runs at .05, not corrected and without the noise of samples"

_OVER_LEVELS = {"ece": "ECE", "gap": "Mean confidence − accuracy", "accuracy": "Accuracy", "auroc": "AUROC"}
_BY_MAP = {"ece", "gap"}
_OF_FILE = ("accuracy", "ece", "nll", "brier", "auroc")


def shift_section(panel: ShiftPanel) -> Section:
    """Return metrics by severity, averaged over corruptions; each corruption at its most severe; then the files."""
    tables = (*_by_severity(panel), *_by_corruption(panel), *_by_file(panel))
    return Section("Under a shift", tables, legend=_legend(panel))


def _legend(panel: ShiftPanel) -> str:
    legend = (
        "Nothing is fitted on shifted samples: the maps are those of the clean calibration samples. Severity 3 of one "
        "corruption is not as bad as severity 3 of another."
    )
    if any(test.note is None for level in panel.levels for test in level.t_tests.values()):
        legend += f" ▲ higher, ▼ lower than {panel.baseline} there by {RUN_TEST}."
    if any(row.differences for row in panel.rows):
        legend += f" ✓ better, ✗ worse than {panel.baseline} on the samples of a file, as above."
    return legend


def _by_severity(panel: ShiftPanel) -> Iterator[Table]:
    for source in dict.fromkeys(level.source for level in panel.levels):
        levels = {(one.candidate, one.map, one.severity): one for one in panel.levels if one.source == source}
        severities = sorted({severity for _, _, severity in levels})
        header = ["candidate", "map", *(f"severity {severity}" if severity else CLEAN for severity in severities)]
        names = next(level.shifts for level in levels.values() if level.severity)
        for metric, words in _OVER_LEVELS.items():
            rows = [
                [code(candidate), name, *(_cells(levels[candidate, name, at])[metric].cell() for at in severities)]
                for candidate, name in _pairs(panel, panel.maps if metric in _BY_MAP else (UNCALIBRATED,))
            ]
            yield table(header, rows, text=(0, 1), title=f"{words}, mean over {', '.join(names)}")


def _by_corruption(panel: ShiftPanel) -> Iterator[Table]:
    """Yield the ECE under each corruption at the most severe level."""
    for source in dict.fromkeys(level.source for level in panel.levels):
        of_source = [one for one in panel.sets if one.source == source and one.severity is not None]
        severity = max(one.severity or 0 for one in of_source)
        names = [one.shift for one in of_source if one.severity == severity]
        of_severity = [row for row in panel.rows if (row.source, row.severity) == (source, severity)]
        texts = {(row.candidate, row.map, row.shift): _with_direction(row) for row in of_severity}
        rows = [
            [code(candidate), name, *(texts[candidate, name, shift] for shift in names)]
            for candidate, name in _pairs(panel, (UNCALIBRATED, TEMPERATURE))
        ]
        if len(names) > 1:
            title = f"ECE at severity {severity}, by corruption"
            yield table(["candidate", "map", *names], rows, text=(0, 1), title=title)


def _with_direction(row: ShiftRow) -> str:
    return spread_text(row.metrics["ece"]) + ("" if row.direction.side == "neither" else f", {row.direction.side}")


def _by_file(panel: ShiftPanel) -> Iterator[Table]:
    header = ["candidate", "map", *_OF_FILE, "ece since clean", "confidence − accuracy"]
    for summary, of_file in _files(panel):
        rows: list[Row] = []
        for key in _pairs(panel, panel.maps):
            row = of_file[key]
            cells = [_cells(row)[metric].cell() for metric in _OF_FILE]
            since = "–" if math.isnan(row.change["ece"].mean) else f"{row.change['ece'].mean:+.4f}"
            rows.append([code(row.candidate), row.map, *cells, since, direction_text(row.direction)])
        title = f"{summary.shift}, {counted(summary.n, 'sample')}"
        yield table(header, rows, text=(0, 1, len(header) - 1), title=title)


def _files(panel: ShiftPanel) -> Iterator[tuple[ShiftSummary, dict[tuple[str, str], ShiftRow]]]:
    """Yield the sets of files without severities, each with its rows by candidate and map."""
    for one in panel.sets:
        if one.severity is None and one.source != CLEAN:
            rows = [row for row in panel.rows if (row.shift, row.source) == (one.shift, one.source)]
            yield one, {(row.candidate, row.map): row for row in rows}


def _pairs(panel: ShiftPanel, maps: Sequence[str]) -> list[tuple[str, str]]:
    """Return all pairs of a candidate and a map, those of the baseline first."""
    names = sorted(dict.fromkeys(row.candidate for row in panel.rows), key=lambda name: name != panel.baseline)
    return [(candidate, name) for candidate in names for name in maps]


# The shift in short: clean samples beside the most severe level of corruptions, and beside each file.


class _ShiftLine(NamedTuple):
    """A candidate under a map: its metrics on the clean samples and under the shift."""

    clean: Mapping[str, Spread]
    shifted: Mapping[str, SeedCell]


class UnderShift(NamedTuple):
    """One shift: its name, and every candidate under every map."""

    title: str
    lines: Mapping[tuple[str, str], _ShiftLine]  # by candidate and map


def under_shifts(panel: ShiftPanel) -> list[UnderShift]:
    """Return the most severe level of corruptions made here, of those in files, and every file without severities."""
    clean = {(row.candidate, row.map): row.metrics for row in panel.rows if row.source == CLEAN}
    shifts = []
    for source in dict.fromkeys(level.source for level in panel.levels):
        severity = max(level.severity for level in panel.levels if level.source == source)
        levels = [level for level in panel.levels if (level.source, level.severity) == (source, severity)]
        names = levels[0].shifts
        named = names[0] if len(names) == 1 else f"{len(names)} corruptions{' of files' * (source == 'file')}"
        lines = {(one.candidate, one.map): _ShiftLine(clean[one.candidate, one.map], _cells(one)) for one in levels}
        shifts.append(UnderShift(f"{named} at severity {severity}", lines))
    for summary, rows in _files(panel):
        lines = {key: _ShiftLine(clean[key], _cells(row)) for key, row in rows.items()}
        shifts.append(UnderShift(f"{summary.shift} ({counted(summary.n, 'sample')})", lines))
    return shifts


def _cells(one: ShiftLevel | ShiftRow) -> dict[str, SeedCell]:
    """Return the metrics with their tests: a level has those of runs, a file those of samples."""
    tests = one.t_tests if isinstance(one, ShiftLevel) else {}
    differences = one.differences if isinstance(one, ShiftRow) else {}
    return {name: SeedCell(spread, tests.get(name), differences.get(name)) for name, spread in one.metrics.items()}


def brief_shift_sections(panel: ShiftPanel) -> list[Section]:
    """Return the metrics that matter most, on clean samples and under each shift."""
    sections = []
    for under in under_shifts(panel):
        rows: list[Row] = []
        for candidate, _ in _pairs(panel, (UNCALIBRATED,)):
            raw, scaled = (under.lines[candidate, name] for name in (UNCALIBRATED, TEMPERATURE))
            gap = signed_text(scaled.shifted["gap"].spread.mean)
            moved = [_moved(raw, "accuracy"), _moved(raw, "ece"), _moved(scaled, "ece"), _moved(raw, "auroc")]
            rows.append([code(candidate), *moved, gap])
        header = ["candidate", "accuracy", "ece, uncalibrated", "ece, temperature", "auroc", "confidence − accuracy"]
        sections.append(Section(f"Shift: clean → {under.title}", (table(header, rows),)))
    return sections


def _moved(line: _ShiftLine, metric: str) -> Cell:
    cell = line.shifted[metric]
    return cell.cell(f"{short_text(line.clean[metric].mean)} → {short_text(cell.spread.mean)}")


def shift_sentences(panel: ShiftPanel, baseline: str) -> list[str]:
    """Return a sentence for each shift: what it does to the baseline and, on files, who is better or worse there."""
    sentences = []
    for under in under_shifts(panel):
        accuracy, ece = (
            f"from {short_text(line.clean[metric].mean)} to {short_text(line.shifted[metric].spread.mean)}"
            for name, metric in ((UNCALIBRATED, "accuracy"), (TEMPERATURE, "ece"))
            for line in [under.lines[panel.baseline, name]]
        )
        sentences.append(
            f"Under {under.title}, the accuracy of {baseline} goes {accuracy} and its ECE after the clean samples' "
            f"temperature {ece}{_others(under)}."
        )
    return sentences


def _others(under: UnderShift) -> str:
    """Return the candidates whose ECE after a temperature is clearly lower or higher than the baseline's there."""
    names: dict[Side, list[str]] = {"better": [], "worse": []}
    for (candidate, map_), line in under.lines.items():
        # A t-test of runs alone, which is all that means over corruptions have, is too little for a sentence.
        side = line.shifted["ece"].side
        if map_ == TEMPERATURE and side in names:
            names[side].append(candidate)
    words = {"better": "lower", "worse": "higher"}
    parts = [f"{words[side]} for {', '.join(candidates)}" for side, candidates in names.items() if candidates]
    return f" ({'; '.join(parts)})" if parts else ""

"""The shift panel's tables: what becomes of networks and maps on images that neither was made for."""

import math
from collections.abc import Iterator, Sequence

from calibrant.diagnosis import ShiftPanel, ShiftRow
from calibrant.diagnosis.evaluated import TEMPERATURE, UNCALIBRATED
from calibrant.diagnosis.shift_panel import CLEAN
from calibrant.errors import markdown_code
from calibrant.report.diagnosis.cells import Cell, direction_text
from calibrant.report.diagnosis.curves import Grid
from calibrant.report.diagnosis.rows import map_words

__all__ = ["shift_grids"]

_OVER_LEVELS = {"ece": "ECE", "gap": "Mean confidence − accuracy", "accuracy": "Accuracy", "auroc": "AUROC"}
_BY_MAP = {"ece", "gap"}
_OF_FILE = ("accuracy", "ece", "nll", "brier", "auroc")


def shift_grids(panel: ShiftPanel) -> list[Grid]:
    """Numbers by severity, meaned over corruptions; each corruption at its most severe; then the files."""
    return [*_level_grids(panel), *_corruption_grids(panel), *_file_grids(panel)]


def _level_grids(panel: ShiftPanel) -> Iterator[Grid]:
    for source in dict.fromkeys(level.source for level in panel.levels):
        levels = {(one.candidate, one.map, one.severity): one for one in panel.levels if one.source == source}
        severities = sorted({severity for _, _, severity in levels})
        header = ["candidate", "map", *(f"severity {severity}" if severity else CLEAN for severity in severities)]
        names = next(one.shifts for one in levels.values() if one.severity)
        for metric, words in _OVER_LEVELS.items():
            rows = []
            for candidate, name in _candidates_and_maps(panel, panel.maps if metric in _BY_MAP else (UNCALIBRATED,)):
                found = [levels[candidate, name, severity] for severity in severities]
                cells = [Cell(one.metrics[metric], one.t_tests.get(metric)) for one in found]
                rows.append([markdown_code(candidate), map_words(name), *(cell.in_full() for cell in cells)])
            yield Grid(f"{words}, mean over {', '.join(names)}", header, rows)


def _corruption_grids(panel: ShiftPanel) -> Iterator[Grid]:
    """The ECE under each corruption at the most severe."""
    for source in dict.fromkeys(level.source for level in panel.levels):
        of_source = [one for one in panel.sets if one.source == source and one.severity is not None]
        severity = max(one.severity or 0 for one in of_source)
        names = [one.shift for one in of_source if one.severity == severity]
        rows = {
            (one.candidate, one.map, one.shift): one
            for one in panel.rows
            if (one.source, one.severity) == (source, severity)
        }
        lines = [
            [
                markdown_code(candidate),
                map_words(name),
                *(_with_direction(rows[candidate, name, each]) for each in names),
            ]
            for candidate, name in _candidates_and_maps(panel, (UNCALIBRATED, TEMPERATURE))
        ]
        if len(names) > 1:
            yield Grid(f"ECE at severity {severity}, by corruption", ["candidate", "map", *names], lines)


def _file_grids(panel: ShiftPanel) -> Iterator[Grid]:
    for each in panel.sets:
        if each.severity is not None or each.source == CLEAN:
            continue
        key = (each.shift, each.source)
        rows = {(one.candidate, one.map): one for one in panel.rows if (one.shift, one.source) == key}
        lines = []
        for candidate, name in _candidates_and_maps(panel, panel.maps):
            row = rows[candidate, name]
            cells = [Cell(row.metrics[metric], against=row.differences.get(metric)).in_full() for metric in _OF_FILE]
            since = "–" if math.isnan(row.change["ece"].mean) else f"{row.change['ece'].mean:+.4f}"
            lines.append([markdown_code(candidate), map_words(name), *cells, since, direction_text(row.direction)])
        header = ["candidate", "map", *_OF_FILE, "ece since clean", "confidence − accuracy"]
        yield Grid(f"{each.shift}, {each.n:,} rows", header, lines)


def _candidates_and_maps(panel: ShiftPanel, maps: Sequence[str]) -> list[tuple[str, str]]:
    """The reference first."""
    names = sorted(dict.fromkeys(row.candidate for row in panel.rows), key=lambda name: name != panel.baseline)
    return [(candidate, name) for candidate in names for name in maps]


def _with_direction(row: ShiftRow) -> str:
    side = "" if row.direction.side == "neither" else f", {row.direction.side}"
    return f"{Cell(row.metrics['ece']).in_full()}{side}"

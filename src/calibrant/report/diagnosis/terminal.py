"""A diagnosis for the terminal, as rich text of at most 100 columns: words, three tables, a digest of curves."""

import math
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from calibrant.diagnosis import Diagnosis, Direction
from calibrant.diagnosis.evaluated import TEMPERATURE, UNCALIBRATED
from calibrant.errors import terminal_text
from calibrant.evidence import Side
from calibrant.report.diagnosis.cells import Cell, brief, signed
from calibrant.report.diagnosis.digest import coefficient_lines, digest_grid
from calibrant.report.diagnosis.legends import REFINEMENT, calibratability_legend, marks_legend, shift_legend
from calibrant.report.diagnosis.rows import (
    Line,
    calibratability_lines,
    direction_lines,
    in_order,
    map_words,
    refinement_lines,
    split_lines,
)
from calibrant.report.diagnosis.under_shift import ShiftLine, under_shifts
from calibrant.report.diagnosis.wording import diagnosis_words, note_lines, runs_words
from calibrant.report.terminal import words_of

__all__ = ["diagnosis_to_terminal"]

_NAME = 34  # columns of a candidate's name at most; it is folded where it is longer, or the terminal narrow
_STYLES: dict[Side, str] = {"better": "green", "worse": "red", "alike": ""}
_MARKS = {"accuracy": 1, "optimal": 1, "T": 0}  # columns with fewer than two tests
_SHOWN = ("aupr_error", "aurc")
_TOO = {"overconfident": " over", "underconfident": " under", "neither": ""}


def diagnosis_to_terminal(found: Diagnosis, *, source: str | None = None) -> RenderableType:
    """The diagnosis as rich text: verdicts first, then the numbers; all of them are in the Markdown and JSON reports.

    Args:
        found: The numbers.
        source: Where the runs came from, for the title.
    """
    where = f"{terminal_text(source)}: " if source else ""
    parts: list[RenderableType] = [
        Panel(words_of(diagnosis_words(found)), title=Text(f"{where}{runs_words(found)}"), title_align="left"),
        _title("Calibratability: what a map can still mend (ECE)"),
        _calibratability(found),
        Text(f"{calibratability_legend(found)} {marks_legend(found)}".strip(), style="dim"),
        _title("Refinement: does confidence tell right from wrong?"),
        _refinement(found),
        Text(REFINEMENT, style="dim"),
        _title("Direction: mean confidence − accuracy"),
        _direction(found),
    ]
    if (digest := digest_grid(found)) is not None:
        rows = {name: [Text(cell) for cell in cells] for name, *cells in digest.rows}
        parts += [_title("Curves, in short"), _table(digest.header[1:], rows)]
    parts += [Text(line) for line in coefficient_lines(found)]
    parts += _shift(found)
    parts.append(Text("\nAll numbers, curves and tests: --markdown, --json and --figures.", style="dim"))
    parts += [Text(f"note: {line}", style="yellow") for line in note_lines(found)]
    return Group(*parts)


def _title(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _calibratability(found: Diagnosis) -> Table:
    lines = calibratability_lines(found)
    shown = [name for name in lines[0].cells if name != "optimal T"]
    rows = {
        line.candidate: [_cell(line.cells[name], 2 if name == "T" else 3, marks=_MARKS.get(name, 2)) for name in shown]
        for line in lines
    }
    return _table([map_words(name) for name in shown], rows)


def _refinement(found: Diagnosis) -> Table:
    by_map = {(line.candidate, line.map): line for line in refinement_lines(found)}
    splits = {line.candidate: line for line in split_lines(found)}
    rows = {}
    for name in dict.fromkeys(candidate for candidate, _ in by_map):
        raw = by_map[name, UNCALIBRATED]
        after = [_plain(by_map[name, each].cells["auroc"]) for each in found.maps[1:]]
        others = [Text(brief(raw.cells[each].spread.mean)) for each in _SHOWN]
        rows[name] = [_cell(raw.cells["auroc"]), *after, *others, _split(splits.get(name))]
    return _table(["auroc", *found.maps[1:], *_SHOWN, "nll = mendable + rest"], rows)


def _split(line: Line | None) -> Text:
    if line is None:
        return Text("–")
    total, calibration, rest = (line.cells[name].spread.mean for name in ("nll", "nll calibration", "nll refinement"))
    return Text(f"{brief(total)} = {brief(calibration)} + {brief(rest)}")


def _direction(found: Diagnosis) -> Table:
    rows = {name: [_gap(by_map[each]) for each in found.maps] for name, by_map in direction_lines(found)}
    return _table([map_words(name) for name in found.maps], rows)


def _shift(found: Diagnosis) -> list[RenderableType]:
    """Clean rows, and what becomes of the numbers, for each shift."""
    if found.shift is None:
        return []
    parts: list[RenderableType] = []
    for under in under_shifts(found.shift):
        rows = {
            candidate: [
                _moved(under.lines[candidate, UNCALIBRATED], "accuracy"),
                _moved(under.lines[candidate, UNCALIBRATED], "ece"),
                _moved(under.lines[candidate, TEMPERATURE], "ece"),
                _moved(under.lines[candidate, UNCALIBRATED], "auroc"),
                Text(signed(under.lines[candidate, TEMPERATURE].shifted["gap"].spread.mean)),
            ]
            for candidate in (one.candidate for one in in_order(found, found.calibratability))
        }
        header = ["accuracy", "ece as it is", "ece temperature", "auroc", "conf. − acc."]
        parts += [_title(f"Shift: clean → {under.title}"), _table(header, rows)]
    return [*parts, Text(f"{shift_legend(found.shift)} conf. − acc.: after temperature.", style="dim")]


def _moved(line: ShiftLine, metric: str) -> Text:
    cell = line.shifted[metric]
    text = Text(f"{brief(line.clean[metric].mean)} → {brief(cell.spread.mean)}")
    return text.append(cell.marks.ljust(1), style=_STYLES[cell.side])


def _gap(one: Direction) -> Text:
    return Text(f"{signed(one.gap.mean)}{_TOO[one.side]:6}")


def _cell(cell: Cell, digits: int = 3, *, marks: int = 2) -> Text:
    """The number with its spread, and marks that line up whether or not there are any."""
    mean, std = brief(cell.spread.mean, digits), cell.spread.std
    text = Text(mean if math.isnan(std) else f"{mean}±{brief(std, digits)}")
    return text.append(cell.marks.ljust(marks), style=_STYLES[cell.side])


def _plain(cell: Cell) -> Text:
    return Text(brief(cell.spread.mean)).append(cell.marks.ljust(2), style=_STYLES[cell.side])


def _table(header: Sequence[str], rows: Mapping[str, Sequence[Text]]) -> Table:
    """A candidate a row."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("candidate", max_width=_NAME, overflow="fold")
    for name in header:
        table.add_column(name, justify="right", no_wrap=True)
    for candidate, cells in rows.items():
        table.add_row(candidate, *cells)
    return table

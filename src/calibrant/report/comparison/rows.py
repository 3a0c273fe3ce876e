"""The lines of a leaderboard's tables, shared by the terminal and the Markdown page."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from calibrant.comparison import TEMPERATURE, UNCALIBRATED, Comparison, MethodResult, comparison_metrics
from calibrant.evidence import Difference, Side
from calibrant.report.rows import number

__all__ = ["MARKS", "PLANNED", "Cell", "Line", "board_lines", "change_text", "note_lines", "rival_of", "rival_words"]

MARKS: dict[Side, str] = {"better": "▲", "worse": "▼", "alike": ""}
PLANNED = "temperature against none is one planned test, not corrected"
_LOWER = {metric.name: metric.lower_is_better for metric in comparison_metrics()}


class Cell(NamedTuple):
    """A number, whether it is better or worse than the rival's beyond noise, and whether it is the best of all."""

    text: str
    side: Side = "alike"
    best: bool = False


class Line(NamedTuple):
    """One method, ready to print; only the change is filled in where it did not fit."""

    name: str
    recommended: bool
    change: str  # of the log-loss against the rival
    cells: dict[str, Cell]  # by metric
    accuracy_change: str  # against doing nothing, in percentage points
    seconds: str


def rival_of(board: Comparison) -> str:
    """Whom the marks compare with: temperature scaling, or doing nothing where that did not fit."""
    return TEMPERATURE if board.find(TEMPERATURE) is not None else UNCALIBRATED


def rival_words(board: Comparison) -> str:
    """The same in words."""
    return "temperature scaling" if rival_of(board) == TEMPERATURE else "doing nothing"


def board_lines(board: Comparison) -> list[Line]:
    """The methods in order."""
    rival, chosen = rival_of(board), board.recommended
    best = {name: _best(board, name) for name in _LOWER}
    return [_line(entry, rival, best, recommended=entry is chosen) for entry in board.methods]


def _line(entry: MethodResult, rival: str, best: dict[str, str], *, recommended: bool) -> Line:
    if entry.failure is not None:
        return Line(entry.name, recommended, "did not fit", {}, "", "")
    against = entry.differences.get(rival)
    cells = {
        name: Cell(
            _digits(found.value, name),
            "alike" if against is None else against[name].side,
            _digits(found.value, name) == best[name] and not math.isnan(found.value),
        )
        for name, found in entry.metrics.items()
    }
    moved = entry.differences[UNCALIBRATED]["accuracy"].value if UNCALIBRATED in entry.differences else 0.0
    change = "–" if against is None else change_text(against["nll"])
    return Line(
        entry.name, recommended, change, cells, f"{100 * moved:+.2f}" if moved else "0", _seconds(entry.seconds)
    )


def change_text(change: Difference) -> str:
    """A difference with its interval."""
    if math.isnan(change.low):
        return "undefined" if math.isnan(change.value) else f"{change.value:+.4f}"
    return f"{change.value:+.4f} ({change.low:+.4f} … {change.high:+.4f})"


def note_lines(entries: Sequence[MethodResult]) -> list[str]:
    """Return why methods did not fit, and what the others warn of; what several say stands once, after their names."""
    failed = [f"{entry.name} did not fit: {entry.failure}" for entry in entries if entry.failure is not None]
    told: dict[str, list[str]] = {}
    for entry in entries:
        for note in entry.notes if entry.failure is None else ():
            told.setdefault(note, []).append(entry.name)
    return failed + [f"{', '.join(names)}: {note}" for note, names in told.items()]


def _best(board: Comparison, metric: str) -> str:
    values = [entry.metrics[metric].value for entry in board.fitted]
    known = [value for value in values if not math.isnan(value)]
    return _digits((min if _LOWER[metric] else max)(known, default=math.nan), metric)


def _digits(value: float, metric: str) -> str:
    """Four decimals; of the classwise error, which many classes make small, one more."""
    return f"{value:.5f}" if metric == "sce" and value >= 0 else number(value)


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f}" if seconds < 9.995 else f"{seconds:.0f}"

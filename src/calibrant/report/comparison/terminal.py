"""A leaderboard for the terminal, as rich text of at most 120 columns."""

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from calibrant.comparison import Comparison
from calibrant.errors import terminal_text
from calibrant.evidence import Side
from calibrant.report.comparison.rows import (
    MARKS,
    PLANNED,
    Cell,
    Line,
    board_lines,
    note_lines,
    rival_of,
    rival_words,
)
from calibrant.report.comparison.terms import rows_words
from calibrant.report.comparison.wording import leaderboard_verdict
from calibrant.report.terminal import words_of

__all__ = ["leaderboard_to_terminal"]

_WIDTH = 119
_STYLES: dict[Side, str] = {"better": "green", "worse": "red", "alike": ""}


def leaderboard_to_terminal(board: Comparison, *, source: str | None = None) -> RenderableType:
    """The leaderboard as rich text: verdict first, then the table, then what should be known.

    Args:
        board: The numbers.
        source: Where the rows came from, for the title.
    """
    where = f"{terminal_text(source)}: " if source else ""
    parts: list[RenderableType] = [
        Panel(words_of(leaderboard_verdict(board)), title=Text(f"{where}{rows_words(board)}"), title_align="left"),
        _table(board),
        Text(_legend(board), style="dim"),
    ]
    parts += [Text(f"note: {line}", style="yellow") for line in note_lines(board.methods)]
    return Group(*parts)


def _table(board: Comparison) -> Table:
    shown = [name for name in board.best.metrics if name != "accuracy"]
    lines = [(line, _cells(line, shown)) for line in board_lines(board)]
    headings = [f"{name} " for name in shown] + ["acc. ±", "fit s"]
    headings.insert(1, f"− {rival_of(board)} (95 %)")
    widths = [
        max(len(each) for each in column) for column in zip(headings, *(cells for _, cells in lines), strict=True)
    ]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column(
        "  method", no_wrap=True, overflow="ellipsis", max_width=max(10, _WIDTH - sum(widths) - len(widths))
    )
    for heading, width in zip(headings, widths, strict=True):
        table.add_column(heading, justify="right", no_wrap=True, min_width=width)
    for line, cells in lines:
        name = Text(f"→ {line.name}" if line.recommended else f"  {line.name}", style="bold" * line.recommended)
        table.add_row(name, *cells, style="" if line.cells else "dim")
    return table


def _cells(line: Line, shown: list[str]) -> list[Text]:
    numbers = [_number(line.cells.get(metric, Cell(""))) for metric in shown]
    numbers.insert(1, Text(line.change))
    return [*numbers, Text(line.accuracy_change), Text(line.seconds)]


def _number(cell: Cell) -> Text:
    """The number in bold if it is the best, and a mark that lines up whether or not there is one."""
    text = Text(cell.text, style="bold" if cell.best else "")
    return text.append(MARKS[cell.side] or " ", style=_STYLES[cell.side])


def _legend(board: Comparison) -> str:
    return (
        f"Sorted by nll. ▲ better, ▼ worse than {rival_words(board)} beyond noise: paired, corrected for the number of "
        f"methods (Holm) in each column; {PLANNED}. The interval is that of the one difference, not corrected. Bold: "
        "the best of the column. acc. ±: change of accuracy, percentage points. All intervals are in the JSON and "
        "Markdown reports."
    )

"""A leaderboard as Markdown, for a pull request, a model card or a job summary."""

from collections.abc import Sequence
from pathlib import PurePath

from calibrant.comparison import TEMPERATURE, UNCALIBRATED, Comparison, comparison_metrics
from calibrant.errors import markdown_text
from calibrant.report.comparison.rows import (
    MARKS,
    PLANNED,
    Cell,
    board_lines,
    change_text,
    note_lines,
    rival_of,
    rival_words,
)
from calibrant.report.comparison.terms import rows_words, settings_words
from calibrant.report.comparison.wording import leaderboard_verdict
from calibrant.report.markdown import opening, table
from calibrant.report.rows import INFLATED, interval, number, p_text

__all__ = ["leaderboard_to_markdown"]


def leaderboard_to_markdown(board: Comparison, *, source: str | None = None, figures: Sequence[PurePath] = ()) -> str:
    """The leaderboard as one Markdown page.

    Args:
        board: The numbers.
        source: Where the rows came from, for the title.
        figures: Pictures to show, as the page should address them.
    """
    lines = [
        *opening("Calibration methods compared", leaderboard_verdict(board), source=source, figures=figures),
        *_main_table(board),
        "",
        _legend(board),
        "",
        "## Every number with its 95 % interval",
        "",
        *_interval_table(board),
    ]
    for rival, heading in ((UNCALIBRATED, "doing nothing"), (TEMPERATURE, "temperature scaling")):
        if board.find(rival) is not None:
            lines += ["", f"## Against {heading}", "", *_change_table(board, rival)]
    if notes := note_lines(board.methods):
        lines += ["", "## Notes", "", *(f"- {markdown_text(note)}" for note in notes)]
    lines += ["", _footer(board)]
    return "\n".join(lines) + "\n"


def _main_table(board: Comparison) -> list[str]:
    metrics = [metric for metric in comparison_metrics() if metric.name != "accuracy"]
    arrows = {metric.name: "↓" if metric.lower_is_better else "↑" for metric in metrics}
    header = ["method", *(f"{name} {arrow}" for name, arrow in arrows.items()), "accuracy, points", "fit, s"]
    header.insert(2, f"nll − {rival_of(board)}")
    rows = []
    for line in board_lines(board):
        cells = [_cell(line.cells.get(name, Cell(""))) for name in arrows]
        cells.insert(1, line.change)
        name = f"**`{line.name}`** ←" if line.recommended else f"`{line.name}`"
        rows.append([name, *cells, line.accuracy_change, line.seconds])
    return table(header, rows, left=1)


def _interval_table(board: Comparison) -> list[str]:
    names = list(board.best.metrics)
    rows = [
        [f"`{entry.name}`", *(f"{number(found.value)} ({interval(found)})" for found in entry.metrics.values())]
        for entry in board.fitted
    ]
    return table(["method", *names], rows, left=1)


def _change_table(board: Comparison, rival: str) -> list[str]:
    names = list(board.best.metrics)
    rows = [
        [
            f"`{entry.name}`",
            *(
                f"{change_text(entry.differences[rival][name])} {MARKS[entry.differences[rival][name].side]}"
                for name in names
            ),
            p_text(entry.differences[rival]["nll"].p),
            p_text(entry.differences[rival]["nll"].corrected_p),
        ]
        for entry in board.fitted
        if rival in entry.differences
    ]
    return table(["method", *names, "p of nll", "corrected"], rows, left=1)


def _cell(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.best else cell.text
    return f"{text} {MARKS[cell.side]}".strip()


def _legend(board: Comparison) -> str:
    return (
        f"▲ better, ▼ worse than {rival_words(board)} beyond noise (paired bootstrap, p corrected for the number of "
        f"methods by Holm, one column at a time; {PLANNED}). Bold: the best of the column."
    )


def _footer(board: Comparison) -> str:
    return (
        f"{rows_words(board)}; {settings_words(board)}. Differences are a method's number minus the rival's; their "
        f"intervals are those of the one difference, not corrected for the number of methods. {INFLATED}"
    )

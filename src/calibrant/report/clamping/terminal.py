"""A judgement for the terminal, as rich text of at most 120 columns."""

from collections.abc import Collection

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from calibrant.clamping import ClampingEvaluation
from calibrant.errors import terminal_text
from calibrant.report.clamping.rows import change_rows, pairs, part_legend, part_rows, trial_lines, value_rows
from calibrant.report.clamping.wording import clamping_verdict, other_notes
from calibrant.report.comparison import held_out_facts as rows_words
from calibrant.report.rows import INFLATED
from calibrant.report.terminal import words_of

__all__ = ["clamping_to_terminal"]

_PAIRS = 2  # for which there is room
_VALUE, _CHANGE = 22, 28  # columns that they need


def clamping_to_terminal(
    found: ClampingEvaluation, *, source: str | None = None, said: Collection[str] = ()
) -> RenderableType:
    """The judgement as rich text: verdict first, then the numbers, the differences, and the strengths tried.

    Args:
        found: The numbers.
        source: Where the rows came from, for the title.
        said: Notes that the person has read already.
    """
    where = f"{terminal_text(source)}: " if source else ""
    parts: list[RenderableType] = [
        Panel(words_of(clamping_verdict(found)), title=Text(f"{where}{rows_words(found)}"), title_align="left"),
        _values(found),
        Text(),
        _changes(found),
        Text(_LEGEND, style="dim"),
    ]
    if rows := part_rows(found):
        apart = _table(*rows[0])
        for row in rows[1:]:
            apart.add_row(*row)
        parts += [Text("\nδ and the head taken apart", style="bold"), apart, Text(part_legend(found), style="dim")]
    if lines := trial_lines(found):
        trials = _table("  λ a row", "change of held-out log-loss", "‖δ‖")
        for line in lines:
            mark = "→ " if line.chosen else "  "
            trials.add_row(f"{mark}{line.strength}", line.change, line.norm, style="bold" * line.chosen)
        parts += [Text("\nStrengths tried on the calibration rows (cross-validated)", style="bold"), trials]
    parts += [Text(f"note: {note}", style="yellow") for note in other_notes(found) if note not in said]
    return Group(*parts)


_LEGEND = f"With 95 % intervals; the differences are paired: ▲ better, ▼ worse than the other beyond noise. {INFLATED}"


def _values(found: ClampingEvaluation) -> Table:
    table = _table("metric", *(entry.name for entry in found.methods), width=_VALUE)
    for row in value_rows(found):
        table.add_row(*row)
    return table


def _changes(found: ClampingEvaluation) -> Table:
    compared = pairs(found)[:_PAIRS]
    table = _table("metric")
    for pair in compared:
        # From the left, because a mark that is not there would be cut off at the right.
        table.add_column(str(pair), min_width=_CHANGE)
        table.add_column("p", justify="right", no_wrap=True)
    for row in change_rows(found, compared):
        table.add_row(*row)
    return table


def _table(first: str, *others: str, width: int | None = None) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", min_width=width)
    return table

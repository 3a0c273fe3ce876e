"""A report for the terminal, as rich text; the command line prints it."""

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from calibrant.evidence import Difference
from calibrant.report.evaluation import Evaluation
from calibrant.report.rows import HEADINGS, INFLATED, Row, comparison_rows, metric_rows, part_lines
from calibrant.report.wording import Verdict, verdict
from calibrant.shown_text import terminal_text

__all__ = ["to_terminal", "words_of"]


def to_terminal(
    evaluation: Evaluation,
    *,
    source: str | None = None,
    comparison: dict[str, Difference] | None = None,
    other: str | None = None,
) -> RenderableType:
    """The report as rich text: verdict first, then the numbers by family."""
    classes = f"{evaluation.classes} classes" if evaluation.classes else "top label only"
    where = f"{terminal_text(source)}: " if source else ""
    parts: list[RenderableType] = [
        Panel(
            words_of(verdict(evaluation)), title=Text(f"{where}{evaluation.n:,} rows, {classes}"), title_align="left"
        ),
        _metrics(evaluation),
    ]
    if comparison is not None:
        parts.append(_comparison(comparison, other))
    return Group(*parts)


def words_of(words: Verdict) -> Text:
    """A verdict with its findings and next steps, a line each."""
    text = Text(words.headline, style="bold")
    for finding in words.findings:
        text.append(f"\n• {finding}", style="not bold")
    for step in words.next_steps:
        text.append(f"\n→ {step}", style="not bold green")
    return text


def _metrics(evaluation: Evaluation) -> Group:
    families = [(HEADINGS[family], rows) for family, rows in metric_rows(evaluation).items() if rows]
    parts: list[RenderableType] = [_columns()]
    for heading, rows in families:
        parts += [Text(f"\n{heading}", style="bold"), _columns(rows)]
    parts += [Text(f"\n{INFLATED}", style="dim"), Text("\nScores taken apart", style="bold")]
    return Group(*parts, *(Text(line) for line in part_lines(evaluation)))


def _columns(rows: Sequence[Row] = ()) -> Table:
    """A table of fixed widths, so that those of all families line up; without rows, its header."""
    table = Table(box=None, pad_edge=False, show_header=not rows, expand=True)
    table.add_column("metric", width=17, no_wrap=True)
    table.add_column("", ratio=1, no_wrap=True, overflow="ellipsis", style="dim")
    for name, width in (("value", 9), ("95 % interval", 19), ("noise floor", 11), ("p", 6)):
        table.add_column(name, width=width, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(f"{row.name} {row.better}", row.title, row.value, row.interval, row.floor, row.p)
    return table


def _comparison(comparison: dict[str, Difference], other: str | None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=f"Compared with {terminal_text(other)}" if other else None)
    for name in ("metric", "this", "other", "other − this", "95 % interval", "p"):
        table.add_column(name, justify="left" if name == "metric" else "right", no_wrap=True)
    for row in comparison_rows(comparison):
        table.add_row(*row)
    return table

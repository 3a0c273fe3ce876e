"""The parts that the pages of all papers share."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.numbers import Number
from experiments.published import Claim, Finding, Published
from experiments.records import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["claims", "interval", "joined", "number_by_number", "page", "plain_table", "provenance", "save", "table"]


def page(title: str, study: str, introduction: str, parts: Sequence[str]) -> str:
    """Return the page of a study.

    Args:
        title: Its heading.
        study: Name on the command line.
        introduction: Its first paragraphs.
        parts: What follows; empty ones are left out.
    """
    by = f"<!-- Written by `python -m experiments table {study}` from its records.jsonl. -->"
    return joined([f"# {title}\n\n{by}", introduction, *parts])


def joined(parts: Sequence[str]) -> str:
    """Return a page of parts, the empty ones left out."""
    return "\n".join(text.strip("\n") + "\n" for text in parts if text)


def provenance(records: Sequence[Record]) -> str:
    """Return how many records there are, where they were made and by which commits."""
    places = sorted({f"{record['device']}, torch {record['torch'].partition('+')[0]}" for record in records})
    commits = sorted({record["commit"][:12] for record in records})
    return f"{len(records)} records, made on {'; '.join(places)}. Library commits: {', '.join(commits)}."


def plain_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table without a heading."""
    lines = [f"| {' | '.join(cells)} |" for cells in (heads, *rows)]
    return "\n".join([lines[0], "|---" * len(heads) + "|", *lines[1:]])


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a section with a table."""
    return f"## {title}\n\n{plain_table(heads, rows)}"


def claims(entries: Sequence[Finding], title: str = "What holds") -> str:
    """Return the table of the paper's claims for which there are records; an empty title leaves out the heading."""
    rows = [
        [about.what, f"**{entry.verdict}**", interval(entry.number, 2, signed=True), entry.number.about, about.reason]
        for entry in entries
        if isinstance(about := entry.published, Claim) and entry.number is not None
    ]
    heads = ["claim of the paper", "verdict", "ours", "from", "why"]
    return (table(title, heads, rows) if title else plain_table(heads, rows)) if rows else ""


def number_by_number(entries: Sequence[Finding]) -> str:
    """Return the table of the paper's numbers for which there are records."""
    rows = [
        [
            about.what,
            f"{about.value:g}",
            f"± {about.tolerance:g}",
            interval(entry.number, digits),
            entry.verdict,
            about.reason,
        ]
        for entry in entries
        if isinstance(about := entry.published, Published) and entry.number is not None
        for digits in [max(2, 1 - math.floor(math.log10(about.tolerance)))]
    ]
    return table("Number by number", ["where", "paper", "tolerance", "ours", "verdict", "reason"], rows) if rows else ""


def interval(number: Number, digits: int, *, signed: bool = False) -> str:
    """Return a number with its interval, where it has one."""
    value, low, high = (f"{bound:{'+' if signed else ''}.{digits}f}" for bound in number[:3])
    return value if math.isnan(number.low) else f"{value} ({low} … {high})"


def save(figure: "Figure", path: Path) -> None:
    """Write a figure, the same bytes wherever it is drawn by the same libraries."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})

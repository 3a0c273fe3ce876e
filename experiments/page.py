"""The parts that the pages of all papers share."""

import math
from collections.abc import Sequence

from experiments.numbers import Number
from experiments.published import Claim, Finding, Published
from experiments.records import Record

__all__ = ["claims", "interval", "joined", "number_by_number", "provenance"]


def joined(parts: Sequence[str]) -> str:
    """Return a page of parts, the empty ones left out."""
    return "\n".join(text.strip("\n") + "\n" for text in parts if text)


def provenance(records: Sequence[Record]) -> str:
    """Return how many records there are, where they were made and by which commits."""
    places = sorted({f"{each['device']}, torch {each['torch']}" for each in records})
    commits = sorted({each["commit"][:12] for each in records})
    return f"{len(records)} records, made on {'; '.join(places)}. Library commits: {', '.join(commits)}."


def claims(entries: Sequence[Finding]) -> str:
    """Return the table of the paper's claims for which there are records."""
    lines = ["## What holds", "", "| claim of the paper | verdict | ours | from | why |", "|---" * 5 + "|"]
    for each in entries:
        if isinstance(each.published, Claim) and each.number is not None:
            ours = interval(each.number, 2, signed=True)
            lines.append(
                f"| {each.published.what} | **{each.verdict}** | {ours} | {each.number.about} | "
                f"{each.published.reason} |"
            )
    return "\n".join(lines) if len(lines) > 4 else ""


def number_by_number(entries: Sequence[Finding]) -> str:
    """Return the table of the paper's numbers for which there are records."""
    lines = ["## Number by number", "", "| where | paper | tolerance | ours | verdict | reason |", "|---" * 6 + "|"]
    for each in entries:
        if isinstance(each.published, Published) and each.number is not None:
            ours, about = interval(each.number, 4 if abs(each.number.value) < 2 else 2), each.published
            lines.append(
                f"| {about.what} | {about.value:g} | ± {about.tolerance:g} | {ours} | {each.verdict} | {about.reason} |"
            )
    return "\n".join(lines) if len(lines) > 4 else ""


def interval(number: Number, digits: int, *, signed: bool = False) -> str:
    """Return a number with its interval, where it has one."""
    value, low, high = (f"{each:{'+' if signed else ''}.{digits}f}" for each in number[:3])
    return value if math.isnan(number.low) else f"{value} ({low} … {high})"

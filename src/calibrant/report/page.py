"""A report as data, independent of its layout.

The function of each record (evaluation, comparison, clamping, diagnosis) returns a :class:`Page`; each renderer
(terminal, Markdown, LaTeX, HTML, JSON) takes one. All text of a page is plain text: a renderer escapes every string,
because names of classes, files and runs can be anything.
"""

import dataclasses
import hashlib
import json
import math
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any, Literal, Self, TypeAlias, final

from calibrant import __version__
from calibrant.errors import CalibrantWarning
from calibrant.evidence import Difference, Estimate, Side
from calibrant.text import counted, without_middles

Tone: TypeAlias = Literal["good", "bad", "open", "neutral"]

_MARKS: dict[Side, str] = {"better": "▲", "worse": "▼", "alike": ""}
INFLATED = "Noise inflates calibration errors: their interval is one for the true error, and can lie below the value."


@final
@dataclass(frozen=True)
class Verdict:
    """A report in words: one headline, the findings behind it, and what to do next."""

    headline: str
    findings: list[str]
    next_steps: list[str]


@final
@dataclass(frozen=True)
class Cell:
    """One cell of a table."""

    text: str
    side: Side = "alike"  # whether it is better or worse than the baseline beyond noise
    mark: str = ""  # sign of the side, shown after the text
    bold: bool = False  # whether it stands out, as the best of its column does
    code: bool = False  # whether it is a name that a person types, such as that of a method
    whole: str = ""  # the name whose middle the text lacks


Row: TypeAlias = Sequence[object]
"""Cells of a table; what is no :class:`Cell` becomes one with its text."""


@final
@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, and whether it is text (set from the left, may wrap) or numbers.

    A description explains the first column. The terminal lists it below the table if the table is too wide.
    """

    heading: str
    is_text: bool = False
    is_description: bool = False


@final
@dataclass(frozen=True)
class Table:
    """Columns and rows; every row has a cell for every column. The leading text columns name the row."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""


def table(
    header: Sequence[str],
    rows: Iterable[Row],
    *,
    text: Sequence[int] = (0,),
    description: int | None = None,
    title: str = "",
) -> Table:
    """Build a table, without the columns that have a heading but no entry.

    ``text`` has the indices of the columns that hold text rather than numbers, ``description`` that of the one that
    explains the first.
    """
    lines = [tuple(cell if isinstance(cell, Cell) else Cell(str(cell)) for cell in row) for row in rows]
    names = without_middles(cell.whole for row in lines for cell in row)  # in one table, names differ
    lines = [tuple(replace(cell, text=names[cell.whole]) if cell.whole else cell for cell in row) for row in lines]
    kept = [i for i, name in enumerate(header) if not name or any(row[i].text for row in lines)]
    columns = tuple(Column(header[i], i in text or i == description, i == description) for i in kept)
    return Table(columns, tuple(tuple(row[i] for i in kept) for row in lines), title)


@final
@dataclass(frozen=True)
class Section:
    """Tables, then single lines, then the legend that keeps them from being misread."""

    title: str
    tables: tuple[Table, ...] = ()
    items: tuple[str, ...] = ()
    legend: str = ""


@final
@dataclass(frozen=True)
class Figure:
    """A picture: its file, for a page that links it, and its content, for a self-contained page."""

    title: str
    path: PurePath | None = None
    content: bytes = b""
    kind: str = "png"


@final
@dataclass(frozen=True)
class KeyNumber:
    """The number behind the verdict, as text: its name, its value, and its interval and noise floor."""

    title: str
    value: str
    detail: str


@final
@dataclass(frozen=True)
class Origin:
    """How a report was made: the command, versions by package, and digests of the data by distinct ends of paths."""

    command: str
    versions: dict[str, str]
    digests: dict[str, str]

    @classmethod
    def of(cls, command: str, inputs: Iterable[Path]) -> Self:
        """Return the origin of a report on these files, with the versions in use; folders have no digest."""
        files = dict.fromkeys(path.absolute() for path in inputs if path.is_file())
        digests = {}
        for path in files:
            ends = ("/".join(path.parts[-size:]) for size in range(1, len(path.parts) + 1))
            name = next(end for end in ends if sum(other.as_posix().endswith(f"/{end}") for other in files) <= 1)
            with path.open("rb") as stream:
                digests[name] = f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
        versions = {name: import_module(name).__version__ for name in ("torch", "numpy", "scipy")}
        return cls(command, {"calibrant": __version__, **versions, "Python": platform.python_version()}, digests)


@final
@dataclass(frozen=True)
class Page:
    """A report as data."""

    title: str  # kind of report
    facts: str  # size of the data, such as "1,197 samples, 10 classes"
    verdict: Verdict
    source: str | None = None  # where the data came from
    tone: Tone = "neutral"  # whether the verdict is good or bad news, or leaves the question open
    brief: tuple[Section, ...] = ()  # the numbers that matter most
    brief_findings: tuple[str, ...] | None = None  # the findings of the brief form, if not all
    brief_notes: tuple[str, ...] | None = None  # the notes of the brief form, if not all
    full_hint: str = ""  # what the full form has beyond the brief one
    sections: tuple[Section, ...] = ()  # all numbers
    notes: tuple[str, ...] = ()  # warnings of fits, and reasons why something is missing
    settings: str = ""  # what decides the numbers, given the data, such as the seed
    footer: str = INFLATED  # how to read the numbers
    commands: tuple[str, ...] = ()  # that carry out the next step
    figures: tuple[Figure, ...] = ()
    number: KeyNumber | None = None  # that the verdict rests on
    origin: Origin | None = None  # how it was made
    charts: Callable[[], dict[str, Any]] | None = field(default=None, compare=False, repr=False)  # for HTML
    data: Callable[[], dict[str, Any]] = field(default=dict, compare=False, repr=False)  # plain data, for JSON

    def without_notes(self, shown: Iterable[str]) -> Self:
        """Return the same page without the notes that were already shown."""
        known = set(shown)
        return replace(self, notes=tuple(note for note in self.notes if note not in known))

    def with_dropped(self, warnings: Sequence[CalibrantWarning], *, twice: int = 0) -> Self:
        """Return the same page with cautions about rows left out, of which two may count some ``twice``."""
        if not warnings:
            return self
        cautions = [f"Caution: {warning}" for warning in warnings]
        brief = None if self.brief_findings is None else (*self.brief_findings, *cautions)
        verdict = replace(self.verdict, findings=[*self.verdict.findings, *cautions])
        dropped, data = [warning.facts for warning in warnings], self.data
        facts = f"{self.facts}, {counted(sum(one['dropped'] for one in dropped) - twice, 'row')} left out"
        made = replace(self, facts=facts, verdict=verdict, brief_findings=brief)
        return replace(made, data=lambda: {**data(), "dropped_rows": dropped})

    @property
    def heading(self) -> str:
        return f"{self.title}: {self.source}" if self.source else self.title

    @property
    def conditions(self) -> str:
        """Data, settings, and how to read the numbers, in one paragraph."""
        facts = f"{'; '.join(filter(None, (self.facts, self.settings)))}."
        return " ".join(filter(None, (facts, self.footer)))


def code(name: str, **look: Any) -> Cell:
    """Return the cell of a name that a person types, such as that of a method."""
    return Cell(name, code=True, **look)


def name_cell(name: str) -> Cell:
    """Return the cell of a name from the data, which its table shortens."""
    return Cell(name, whole=name)


def comparison_cell(text: str, side: Side, *, bold: bool = False) -> Cell:
    """Return a cell marked ▲ or ▼ where it is better or worse than the baseline."""
    return Cell(text, side, _MARKS[side], bold)


def arrow(name: str, lower_is_better: bool | None) -> str:
    """Return the name of a metric with the direction in which it is better.

    Example:
        >>> arrow("ece", True), arrow("auroc", False), arrow("confidence", None)
        ('ece ↓', 'auroc ↑', 'confidence')
    """
    return name + {True: " ↓", False: " ↑", None: ""}[lower_is_better]


_ROUNDING = 1e-15  # less than a probability of 1 can be off


def number_text(value: float) -> str:
    """Return four decimals, or the leading digits of a smaller number, unless rounding may have made it.

    Example:
        >>> number_text(0.25), number_text(0.00012), number_text(2e-30)
        ('0.2500', '1.20e-04', '0.0000')
    """
    if math.isnan(value):
        return "undefined"
    return f"{value:.2e}" if _ROUNDING <= abs(value) < 0.0005 else f"{value:.4f}"


def interval_text(estimated: Estimate) -> str:
    """Return both bounds, or a dash where there are none."""
    return "–" if math.isnan(estimated.low) else f"{number_text(estimated.low)} … {number_text(estimated.high)}"


def estimate_text(estimated: Estimate) -> str:
    """Return a number with its interval in brackets, where there is one."""
    value = number_text(estimated.value)
    return value if math.isnan(estimated.low) else f"{value} ({interval_text(estimated)})"


def bounds_text(low: float, high: float, form: str = "+z.4f", joined: str = "…") -> str:
    """Return both bounds of a difference, or a dash where there are none."""
    return "–" if math.isnan(low) else f"{low:{form}} {joined} {high:{form}}"


def difference_text(change: Difference) -> str:
    """Return a difference with its interval in brackets, where there is one."""
    if math.isnan(change.low):
        return "undefined" if math.isnan(change.value) else f"{change.value:+z.4f}"
    return f"{change.value:+z.4f} ({bounds_text(change.low, change.high)})"


def estimate_number(title: str, estimated: Estimate) -> KeyNumber:
    """Return a metric as the number that a verdict rests on."""
    interval = "" if math.isnan(estimated.low) else f"95 % interval {interval_text(estimated)}"
    floor = "" if estimated.floor is None else f"a calibrated model would score {number_text(estimated.floor)}"
    return KeyNumber(title, number_text(estimated.value), "; ".join(filter(None, (interval, floor))))


def difference_number(title: str, change: Difference) -> KeyNumber:
    """Return a difference as the number that a verdict rests on."""
    interval = "" if math.isnan(change.low) else f"95 % interval {change.low:+z.4f} … {change.high:+z.4f}; "
    detail = f"{interval}from {number_text(change.baseline)} to {number_text(change.candidate)}"
    return KeyNumber(title, *(text.replace("-", "−") for text in (f"{change.value:+z.4f}", detail)))


def difference_cell(change: Difference) -> Cell:
    """Return a difference with its interval, marked."""
    return comparison_cell(difference_text(change), change.side)


def p_text(p: float | None, *, resampled: bool = True) -> str:
    """Return a p-value with the digits that are known: resamples leave a lower limit.

    Example:
        >>> p_text(0.0312), p_text(4e-6), p_text(4e-6, resampled=False)
        ('0.031', '< .002', '4e-06')
    """
    if p is None or math.isnan(p):
        return "" if p is None else "–"
    if resampled and p < 0.002:
        return "< .002"
    return f"{p:.3f}" if p >= 0.001 else f"{p:.0e}" if p >= 1e-12 else "< 1e-12"


def notes_with_names(notes: Iterable[tuple[str, str]]) -> list[str]:
    """Return notes after the names that they are about, given in pairs (name, note); a note of several stands once."""
    names: dict[str, list[str]] = {}
    for name, note in notes:
        names.setdefault(note, []).append(name)
    return [f"{', '.join(about)}: {note}" for note, about in names.items()]


def sentence(text: object) -> str:
    """Return the text with a capital first letter; a Greek letter is kept, because γ and Γ are different symbols."""
    words = str(text)
    return f"{words[:1].upper() if words[:1].isascii() else words[:1]}{words[1:]}"


def to_plain(value: Any) -> Any:  # noqa: PLR0911  # one line for every kind of value
    """Return dictionaries, lists, strings and numbers for any record.

    A dataclass or named tuple becomes a dictionary of its fields; fields that are not part of its ``repr``, such as a
    network, are left out. JSON has neither NaN nor infinity: both become None.

    Example:
        >>> from calibrant.evidence import Estimate
        >>> to_plain({"ece": Estimate(0.1, 0.05, float("nan"))})
        {'ece': {'value': 0.1, 'low': 0.05, 'high': None, 'floor': None, 'p': None}}
    """
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, PurePath):
        return str(value)
    if dataclasses.is_dataclass(value):
        return {part.name: to_plain(getattr(value, part.name)) for part in dataclasses.fields(value) if part.repr}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return to_plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return to_plain(value.tolist())
    raise TypeError(f"a report must hold records and plain values; got {type(value).__name__}.")


def document(schema: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report as plain data: its schema, the version that wrote it, and its fields."""
    plain: dict[str, Any] = to_plain(fields)
    return {"schema": schema, "calibrant": __version__, **plain}


def to_json(page: Page, *, ascii_only: bool = False) -> str:
    """Return the data of a page as JSON; with ``ascii_only`` other characters are escaped."""
    return json.dumps(page.data(), indent=2, ensure_ascii=ascii_only) + "\n"

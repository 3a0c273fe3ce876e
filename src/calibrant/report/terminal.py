"""Render a page for the terminal at any width: no column is dropped and no word is cut.

A table that is too wide first wraps its headings, then moves its description column below it, then wraps its text
columns, and finally continues in a second block of columns below the first.
"""

import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from calibrant.errors import check_kind
from calibrant.evidence import Side
from calibrant.report.page import Cell, Column, Page, Section, Table, Tone
from calibrant.text import terminal_text

_WIDEST, _NARROWEST = 120, 60
_STYLES: dict[Side, str] = {"better": "green", "worse": "red", "alike": ""}
_TONES: dict[Tone, tuple[str, str]] = {
    "good": ("✓ ", "bold green"), "bad": ("✗ ", "bold red"), "open": ("? ", "bold yellow"), "neutral": ("", "bold"),
}  # fmt: skip
# Where a word that is longer than its column may be broken: after one of these.
_BREAKS = "/\\_+-(,=:;"
_PIECE = re.compile(rf"[^{re.escape(_BREAKS)}]*[{re.escape(_BREAKS)}]|[^{re.escape(_BREAKS)}]+")
# A number stays with its unit or sign.
_NO_BREAK = re.compile(r"(?<=\d) (?=%)|(?<=[=<>≤≥±−]) (?=[\d.])|(?<=\bp) (?=[<=])")


def show(page: Page, *, full: bool = False, console: Console | None = None) -> None:
    """Print a page, all numbers or the brief form, to standard output unless given; the width decides the layout."""
    check_kind(page, Page, "page", "Make one with evaluation_page(evaluation) of calibrant.report.")
    console = console or Console(markup=False)
    console.print(to_terminal(page, width=console.width, full=full), soft_wrap=True, highlight=False)


def to_terminal(page: Page, *, width: int = _WIDEST, full: bool = False) -> Text:
    """Return a page as styled text for so many columns, at most 120: all numbers or the brief form."""
    width = max(_NARROWEST, min(width, _WIDEST))
    mark, style = _TONES[page.tone]
    lines = [*_paragraph(f"{page.heading} ({page.facts})", width, style="dim"), Text()]
    lines += _paragraph(page.verdict.headline, width, first=mark, style=style)
    is_brief = not full and bool(page.brief)
    findings = page.brief_findings if is_brief and page.brief_findings is not None else page.verdict.findings
    for finding in findings:
        lines += _paragraph(finding, width, first="• ")
    sections = page.brief if is_brief else page.sections
    layouts = _layouts(sections, width)
    for section in sections:
        lines += [Text(), *_section(section, layouts, width)]
    if full:
        lines += [Text(), *_paragraph(page.conditions, width, style="dim")]
    for note in page.brief_notes if is_brief and page.brief_notes is not None else page.notes:
        lines += _paragraph(note, width, first="note: ", style="yellow", hanging=False)
    lines.append(Text())
    for step in page.verdict.next_steps:
        lines += _paragraph(step, width, first="→ ", style="green")
    for command in page.commands:
        lines.append(Text(f"  {terminal_text(command)}", style="bold"))  # in one piece, to be copied
    if page.full_hint and is_brief:
        lines += _paragraph(f"{page.full_hint}: --full", width, style="dim")
    return Text("\n").join(lines)


def _section(section: Section, layouts: dict[tuple[Column, ...], "_Layout"], width: int) -> list[Text]:
    lines = _paragraph(section.title, width, style="bold") if section.title else []
    for place, table in enumerate(section.tables):
        if place:
            lines.append(Text())
        if table.title:
            lines += _paragraph(table.title, width, style="bold dim")
        lines += _table(table, layouts[table.columns], width)
    for item in section.items:
        lines += _paragraph(item, width, first="• ")
    return [*lines, *_paragraph(section.legend, width, style="dim")] if section.legend else lines


def _paragraph(text: str, width: int, *, first: str = "", style: str = "", hanging: bool = True) -> list[Text]:
    """Wrap a paragraph; lines after the first are indented as far as its text begins."""
    indent = " " * cell_len(first) if hanging else ""
    wrapped = _wrap(terminal_text(text), width - cell_len(first))
    return [Text(f"{indent if place else first}{line}", style=style) for place, line in enumerate(wrapped)]


def _wrap(text: str, width: int) -> list[str]:
    """Break text at spaces; a word that is longer than a line, such as a path, after a sign if there is one."""
    lines = [""]
    for word in _NO_BREAK.sub("\u00a0", text).split(" "):
        gap = " " if lines[-1] else ""
        if cell_len(lines[-1] + gap + word) <= width:
            lines[-1] += gap + word
            continue
        if lines[-1]:
            lines.append("")
        parts = [[part] if cell_len(part) <= width else part for part in _PIECE.findall(word)]
        for piece in (piece for part in parts for piece in part):  # single characters of a part that is too long
            if cell_len(lines[-1] + piece) > width and lines[-1]:
                lines.append("")
            lines[-1] += piece
    return [line.replace("\u00a0", " ") for line in lines]


class _Layout(NamedTuple):
    """The layout of the tables of one header: blocks of column indices, widths of columns, and the description."""

    blocks: tuple[tuple[int, ...], ...]
    widths: tuple[int, ...]
    marks: tuple[int, ...]  # width of the mark after each number
    description: int | None
    gap: int


def _layouts(sections: Sequence[Section], width: int) -> dict[tuple[Column, ...], _Layout]:
    """Return one layout per header, so that tables of the same columns line up."""
    rows: dict[tuple[Column, ...], list[tuple[Cell, ...]]] = {}
    for section in sections:
        for table in section.tables:
            rows.setdefault(table.columns, []).extend(table.rows)
    return {columns: _layout(columns, cells, width) for columns, cells in rows.items()}


def _layout(columns: tuple[Column, ...], rows: Sequence[tuple[Cell, ...]], width: int) -> _Layout:
    places = range(len(columns))
    texts = [[terminal_text(row[i].text) for row in rows] for i in places]
    marks = tuple(max((len(_mark(row[i], columns[i])) for row in rows), default=0) for i in places)
    bodies = [max((cell_len(text) for text in texts[i]), default=0) + marks[i] for i in places]
    headings = [terminal_text(column.heading) for column in columns]
    natural = [max(bodies[i], cell_len(headings[i])) for i in places]
    # Numbers are never broken: their columns are as narrow as the longest number, or word of the heading.
    words = [max(map(cell_len, heading.split(" "))) for heading in headings]
    pieces = [
        [piece for text in texts[i] for word in text.split(" ") for piece in _PIECE.findall(word)] for i in places
    ]
    longest = [max(map(cell_len, pieces[i]), default=0) + marks[i] for i in places]
    least = [max(words[i], longest[i] if columns[i].is_text else bodies[i]) for i in places]
    shown, description, gap = list(places), None, 2
    if _total(natural, shown, gap) > width:
        description = next((i for i in places if columns[i].is_description), None)
        shown = [i for i in places if i != description]
    if _total(natural, shown, gap) > width:
        natural = [max(bodies[i], words[i]) for i in places]
    if _total(natural, shown, gap) > width >= _total(least, shown, 1):
        gap = 1
    keys = [i for i in shown if columns[i].is_text and all(columns[j].is_text for j in range(i))]
    if _total(least, shown, gap) <= width:
        return _Layout((tuple(shown),), _shrunk(natural, least, shown, width, gap), marks, description, gap)
    # Continue in further blocks, each with the names of the rows.
    blocks: list[list[int]] = [[]]
    for i in (i for i in shown if i not in keys):
        if blocks[-1] and _total(least, [*keys, *blocks[-1], i], gap) > width:
            blocks.append([])
        blocks[-1].append(i)
    full = [(*keys, *block) for block in blocks]
    fitted = list(natural)
    for block in full:
        shrunk = _shrunk(natural, least, block, width, gap)
        fitted = [min(fitted[i], shrunk[i]) if i in block else fitted[i] for i in places]
    return _Layout(tuple(full), tuple(fitted), marks, description, gap)


def _mark(cell: Cell, column: Column) -> str:
    """Return the mark with the space before it: after a name one, after a number none."""
    return f" {cell.mark}" if cell.mark and column.is_text else cell.mark


def _total(widths: Sequence[int], shown: Sequence[int], gap: int) -> int:
    return sum(widths[i] for i in shown) + gap * (len(shown) - 1)


def _shrunk(
    natural: Sequence[int], least: Sequence[int], shown: Sequence[int], width: int, gap: int
) -> tuple[int, ...]:
    """Narrow the widest columns that may be narrowed until the table fits."""
    widths = list(natural)
    while _total(widths, shown, gap) > width:
        loose = [i for i in shown if widths[i] > least[i]]
        if not loose:
            break
        widths[max(loose, key=lambda i: widths[i])] -= 1
    return tuple(widths)


def _table(table: Table, layout: _Layout, width: int) -> list[Text]:
    lines = []
    for place, block in enumerate(layout.blocks):
        if place:
            lines.append(Text())
        header = [_wrap(terminal_text(table.columns[i].heading), layout.widths[i]) for i in block]
        if any(line for heading in header for line in heading):
            # The last lines of all headings stand above the numbers.
            for texts in reversed(list(zip_longest(*map(reversed, header), fillvalue=""))):
                titled = zip(block, texts, strict=True)
                parts = [_set(Text(text, style="bold"), table.columns[i], layout.widths[i]) for i, text in titled]
                lines.append(_joined(parts, layout.gap))
        for row in table.rows:
            lines += _row(row, block, table.columns, layout)
    if layout.description is not None and table.rows:
        described = [(row[0].text.split(" ")[0], row[layout.description].text) for row in table.rows]
        known = "; ".join(f"{name}: {text}" for name, text in described if text)
        lines += _paragraph(known, width, style="dim")
    return lines


def _row(row: Sequence[Cell], block: Sequence[int], columns: Sequence[Column], layout: _Layout) -> list[Text]:
    wrapped = [
        _wrap(terminal_text(row[i].text), layout.widths[i] - len(_mark(row[i], columns[i])))
        if columns[i].is_text
        else [terminal_text(row[i].text)]
        for i in block
    ]
    lines = []
    for line, texts in enumerate(zip_longest(*wrapped, fillvalue="")):
        parts = []
        for i, piece in zip(block, texts, strict=True):
            text = Text(piece, style="bold" if row[i].bold else "")
            if line == 0:
                mark = _mark(row[i], columns[i])
                text.append(mark if columns[i].is_text else mark.ljust(layout.marks[i]), style=_STYLES[row[i].side])
            parts.append(_set(text, columns[i], layout.widths[i]))
        lines.append(_joined(parts, layout.gap))
    return lines


def _set(text: Text, column: Column, width: int) -> Text:
    """Pad a cell: text from the left, numbers from the right."""
    space = " " * max(0, width - text.cell_len)
    return text + Text(space) if column.is_text else Text(space) + text


def _joined(parts: Sequence[Text], gap: int) -> Text:
    line = Text(" " * gap).join(parts)
    line.rstrip()
    return line

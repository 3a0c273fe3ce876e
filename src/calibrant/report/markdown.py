"""Render a page as Markdown, for a pull request, a model card or a job summary."""

from collections.abc import Sequence
from pathlib import PurePath
from urllib.parse import quote

from calibrant.errors import markdown_code, markdown_text
from calibrant.report.page import Cell, Figure, Page, Section, Table, Verdict

__all__ = ["opening", "table", "to_markdown"]


def to_markdown(page: Page) -> str:
    """Return the full form of a page as Markdown; its figures are links to their files."""
    lines = [f"# {markdown_text(page.heading)}", "", f"**{markdown_text(page.verdict.headline)}**", ""]
    lines += _items(page.verdict.findings)
    lines += ["**Next:** " + " ".join(map(markdown_text, page.verdict.next_steps)), ""]
    lines += [line for figure in page.figures for line in _figure(figure)]
    for section in page.sections:
        lines += _section(section)
    if page.notes:
        lines += ["## Notes", "", *_items(page.notes)]
    lines.append(markdown_text(page.conditions))
    return "\n".join(lines) + "\n"


def _section(section: Section) -> list[str]:
    lines = [f"## {markdown_text(section.title)}", ""]
    for table in section.tables:
        if table.title:
            lines += [f"**{markdown_text(table.title)}**", ""]
        lines += [*_table(table), ""]
    lines += _items(section.items)
    return [*lines, markdown_text(section.legend), ""] if section.legend else lines


def _items(items: Sequence[str]) -> list[str]:
    return [*(f"- {markdown_text(item)}" for item in items), ""] if items else []


def _figure(figure: Figure) -> list[str]:
    if figure.path is None:
        return []
    return [f"![{markdown_text(figure.title)}]({quote(figure.path.as_posix())})", ""]


def _table(table: Table) -> list[str]:
    header = [markdown_text(column.heading) for column in table.columns]
    rule = ["---" if column.is_text else "---:" for column in table.columns]
    rows = [[_cell(cell) for cell in row] for row in table.rows]
    return ["| " + " | ".join(line) + " |" for line in (header, rule, *rows)]


def _cell(cell: Cell) -> str:
    text = markdown_code(cell.text) if cell.code and cell.text else markdown_text(cell.text)
    text = f"**{text}**" if cell.bold and cell.text else text
    return f"{text} {cell.mark}".strip()


# Used by the records that do not have a page yet.
def opening(title: str, words: Verdict, *, source: str | None, figures: Sequence[PurePath]) -> list[str]:
    """The lines above the tables: title, verdict, next steps and pictures."""
    return [
        f"# {title}{f': {markdown_text(source)}' if source else ''}",
        "",
        f"**{markdown_text(words.headline)}**",
        "",
        *(f"- {markdown_text(finding)}" for finding in words.findings),
        "",
        "**Next:** " + " ".join(map(markdown_text, words.next_steps)),
        "",
        *(line for figure in figures for line in (_picture(figure), "")),
    ]


def _picture(path: PurePath) -> str:
    return f"![{markdown_text(path.stem.replace('_', ' '))}]({quote(path.as_posix())})"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 2) -> list[str]:
    """The lines of a table, without the named columns that are empty; the first columns are set from the left."""
    kept = [i for i, name in enumerate(header) if not name or any(row[i] for row in rows)]
    rule = ["---" if i < left else "---:" for i in range(len(header))]
    lines = [[line[i] for i in kept] for line in (header, rule, *rows)]
    return ["| " + " | ".join(line) + " |" for line in lines]

"""Render a page as Markdown, for a pull request, a model card or a job summary."""

from collections.abc import Sequence
from urllib.parse import quote

from calibrant.errors import markdown_code, markdown_text
from calibrant.report.page import Cell, Figure, Page, Section, Table

__all__ = ["to_markdown"]


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

"""Render a page as Markdown, for a pull request or a model card, and as one static HTML file.

The HTML has no script and loads nothing from elsewhere; it is light or dark as the reader's system is, and printable.
"""

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from urllib.parse import quote

from calibrant.errors import markdown_code, markdown_text, terminal_text
from calibrant.report.page import Cell, Figure, Page, Section, Table, Tone


def to_markdown(page: Page) -> str:
    """Return the full form of a page as Markdown; its figures are links to their files."""
    lines = [f"# {markdown_text(page.heading)}", "", f"**{markdown_text(page.verdict.headline)}**", ""]
    lines += _markdown_list(page.verdict.findings)
    lines += ["**Next:** " + " ".join(map(markdown_text, page.verdict.next_steps)), ""]
    for figure in page.figures:
        if figure.path is not None:
            lines += [f"![{markdown_text(figure.title)}]({quote(figure.path.as_posix())})", ""]
    for section in page.sections:
        lines += [f"## {markdown_text(section.title)}", ""]
        for table in section.tables:
            lines += [f"**{markdown_text(table.title)}**", ""] if table.title else []
            lines += [*_markdown_table(table), ""]
        lines += _markdown_list(section.items)
        lines += [markdown_text(section.legend), ""] if section.legend else []
    lines += ["## Notes", "", *_markdown_list(page.notes)] if page.notes else []
    return "\n".join([*lines, markdown_text(page.conditions)]) + "\n"


def _markdown_list(items: Sequence[str]) -> list[str]:
    return [*(f"- {markdown_text(item)}" for item in items), ""] if items else []


def _markdown_table(table: Table) -> list[str]:
    header = [markdown_text(column.heading) for column in table.columns]
    rule = ["---" if column.is_text else "---:" for column in table.columns]
    rows = [[_markdown_cell(cell) for cell in row] for row in table.rows]
    return ["| " + " | ".join(line) + " |" for line in (header, rule, *rows)]


def _markdown_cell(cell: Cell) -> str:
    text = markdown_code(cell.text) if cell.code and cell.text else markdown_text(cell.text)
    text = f"**{text}**" if cell.bold and cell.text else text
    return f"{text} {cell.mark}".strip()


_KINDS = {"png": "image/png", "svg": "image/svg+xml"}
_TONES: dict[Tone, str] = {"good": "✓ ", "bad": "✗ ", "open": "? ", "neutral": ""}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

# Colours of the figures: Okabe and Ito's blue and vermilion, which are distinguishable with any colour vision.
_STYLE = """
.calibrant { --ink: #1c2024; --dim: #5b636b; --line: #d9dde1; --card: #f5f7f8; --good: #00695c; --bad: #b23c00;
  --open: #7a5b00; --link: #0060a0; color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; }
@media (prefers-color-scheme: dark) { .calibrant { --ink: #e6e9ec; --dim: #a2abb3; --line: #3a4148; --card: #1e2327;
  --good: #4fc3a1; --bad: #ff9466; --open: #e5c04b; --link: #6cb8f0; } }
.calibrant h1 { font-size: 1.15rem; font-weight: 600; margin: 0; overflow-wrap: anywhere; }
.calibrant h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
.calibrant h3 { font-size: .95rem; margin: 1rem 0 .25rem; }
.calibrant .facts, .calibrant .legend, .calibrant footer { color: var(--dim); font-size: .85rem; }
.calibrant .verdict { background: var(--card); border-left: .35rem solid var(--dim); border-radius: .25rem;
  margin: 1rem 0; padding: .8rem 1rem; }
.calibrant .headline { font-size: 1.25rem; font-weight: 600; line-height: 1.35; margin: 0 0 .5rem; }
.calibrant .verdict ul { margin: .25rem 0 .5rem; padding-left: 1.2rem; }
.calibrant .verdict .next { font-weight: 600; margin: .5rem 0 0; }
.calibrant .good { border-color: var(--good); } .calibrant .bad { border-color: var(--bad); }
.calibrant .open { border-color: var(--open); }
.calibrant .scroll { overflow-x: auto; margin: .25rem 0 .75rem; }
.calibrant table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
.calibrant th, .calibrant td { border: 0; border-bottom: 1px solid var(--line); padding: .25rem .7rem;
  text-align: right; white-space: nowrap; background: none; color: inherit; }
.calibrant th { font-weight: 600; vertical-align: bottom; white-space: normal; }
.calibrant .text { text-align: left; white-space: normal; overflow-wrap: anywhere; min-width: 6rem; }
.calibrant code { font-family: ui-monospace, monospace; font-size: .95em; background: none; color: inherit; }
.calibrant td.better i { color: var(--good); } .calibrant td.worse i { color: var(--bad); }
.calibrant td i { font-style: normal; display: inline-block; min-width: 1.1em; padding-left: .15em; text-align: left; }
.calibrant .figures { display: flex; flex-wrap: wrap; gap: 1rem; }
.calibrant figure { margin: 0; flex: 1 1 22rem; max-width: 34rem; }
.calibrant img { width: 100%; background: #fff; border: 1px solid var(--line); border-radius: .25rem; }
.calibrant figcaption { color: var(--dim); font-size: .85rem; }
.calibrant footer { border-top: 1px solid var(--line); margin-top: 2rem; padding-top: .5rem; }
@media print { .calibrant { font-size: 10pt; max-width: none; --ink: #000; --dim: #444; --card: #fff; --line: #bbb; }
  .calibrant .scroll { overflow: visible; } .calibrant table { font-size: 8pt; }
  .calibrant th, .calibrant td { padding: .1rem .35rem; white-space: normal; }
  .calibrant figure, .calibrant tr, .calibrant .verdict { break-inside: avoid; }
  .calibrant h2, .calibrant h3 { break-after: avoid; } .calibrant figure { flex-basis: 45%; max-width: 48%; } }
"""
_BODY = "body { margin: 0; padding: 1.5rem; background: #fff; } :root { color-scheme: light dark; }"
_DARK = "@media (prefers-color-scheme: dark) { body { background: #14181b; } }"
_PRINT = "@media print { body { background: #fff; padding: 0; } @page { margin: 15mm; } }"


def to_html(page: Page) -> str:
    """Return the full form of a page as an HTML document with its figures inside."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_escaped(page.heading)}</title>\n<style>{_BODY} {_DARK} {_PRINT}</style>\n</head>\n<body>\n"
        f"{to_html_fragment(page)}\n</body>\n</html>\n"
    )


def to_html_fragment(page: Page) -> str:
    """Return a page as an element of another document, such as a notebook."""
    parts = [
        f"<style>{_STYLE}</style>",
        f"<h1>{_escaped(page.heading)}</h1>",
        _html_paragraph("facts", page.facts),
        f'<div class="verdict {page.tone}">',
        _html_paragraph("headline", _TONES[page.tone] + page.verdict.headline),
        _html_list(page.verdict.findings),
        *(_html_paragraph("next", f"→ {step}") for step in page.verdict.next_steps),
        *(f"<p><code>{_escaped(command)}</code></p>" for command in page.commands),
        "</div>",
        *map(_html_section, page.brief),
        f'<div class="figures">{"".join(map(_html_figure, page.figures))}</div>' if page.figures else "",
        *map(_html_section, page.sections),
        f"<section><h2>Notes</h2>{_html_list(page.notes)}</section>" if page.notes else "",
        f"<footer>{_escaped(page.conditions)}</footer>",
    ]
    return '<article class="calibrant">' + "\n".join(filter(None, parts)) + "</article>"


def _escaped(text: str) -> str:
    return escape(terminal_text(text))


def _html_paragraph(kind: str, text: str) -> str:
    return f'<p class="{kind}">{_escaped(text)}</p>'


def _html_list(items: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{_escaped(item)}</li>' for item in items)}</ul>" if items else ""


def _html_section(section: Section) -> str:
    parts = [f"<h2>{_escaped(section.title)}</h2>" if section.title else ""]
    for table in section.tables:
        parts += [f"<h3>{_escaped(table.title)}</h3>" if table.title else "", _html_table(table)]
    parts += [_html_list(section.items), _html_paragraph("legend", section.legend) if section.legend else ""]
    return f"<section>{''.join(parts)}</section>"


def _html_table(table: Table) -> str:
    kinds = [' class="text"' if column.is_text else "" for column in table.columns]
    names = [_escaped(column.heading) for column in table.columns]
    head = "".join(f'<th scope="col"{kind}>{name}</th>' for kind, name in zip(kinds, names, strict=True))
    # Numbers line up whether or not there is a mark behind them.
    marked = [any(row[i].mark for row in table.rows) for i in range(len(table.columns))]
    body = "".join(
        f"<tr>{''.join(_html_cell(row[i], table.columns[i].is_text, marked[i]) for i in range(len(row)))}</tr>\n"
        for row in table.rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'


def _html_cell(cell: Cell, is_text: bool, has_marks: bool) -> str:
    kinds = " ".join(kind for kind in ("text" if is_text else "", "" if cell.side == "alike" else cell.side) if kind)
    text = f"<code>{_escaped(cell.text)}</code>" if cell.code and cell.text else _escaped(cell.text)
    text = f"<b>{text}</b>" if cell.bold else text
    mark = f"<i>{_escaped(cell.mark)}</i>" if has_marks else ""
    opening = f'<td class="{kinds}">' if kinds else "<td>"
    return f"{opening}{text}{mark}</td>"


def _html_figure(figure: Figure) -> str:
    kind, title = _KINDS.get(figure.kind), _escaped(figure.title)
    if kind is None or not figure.content:
        return ""
    image = f'<img alt="{title}" src="data:{kind};base64,{b64encode(figure.content).decode()}">'
    return f"<figure>{image}<figcaption>{title}</figcaption></figure>"

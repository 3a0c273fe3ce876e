"""Render a page as Markdown, for a pull request or a model card, as tables of LaTeX, and as one HTML file.

The HTML loads nothing from elsewhere; it is light or dark as the reader's system is, and printable. It has a script
only if the page has interactive charts, and is readable without it.
"""

import dataclasses
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from calibrant.errors import check_kind
from calibrant.report.page import Cell, Column, Figure, Page, Section, Table, Tone
from calibrant.text import markdown_code, markdown_text, terminal_text


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
            header = [markdown_text(column.heading) for column in table.columns]
            rule = ["---" if column.is_text else "---:" for column in table.columns]
            rows = [[_markdown_cell(cell) for cell in row] for row in table.rows]
            lines += [*("| " + " | ".join(line) + " |" for line in (header, rule, *rows)), ""]
        lines += _markdown_list(section.items)
        lines += [markdown_text(section.legend), ""] if section.legend else []
    lines += ["## Notes", "", *_markdown_list(page.notes)] if page.notes else []
    return "\n".join([*lines, markdown_text(page.conditions)]) + "\n"


def _markdown_list(items: Sequence[str]) -> list[str]:
    return [*(f"- {markdown_text(item)}" for item in items), ""] if items else []


def _markdown_cell(cell: Cell) -> str:
    text = markdown_code(cell.text) if cell.code and cell.text else markdown_text(cell.whole or cell.text)
    text = f"**{text}**" if cell.bold and cell.text else text
    return f"{text} {cell.mark}".strip()


_LATEX = {mark: f"\\{mark}" for mark in "&%$#_{}"} | {mark: f"${mark}$" for mark in "<>"}
_LATEX |= {mark: f"{{{mark}}}" for mark in "[*"}  # which the end of the row before would take for its arguments
_LATEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$"}
_SYMBOLS = {
    "↑": "uparrow", "↓": "downarrow", "←": "leftarrow", "→": "rightarrow", "▲": "blacktriangle",
    "▼": "blacktriangledown", "✓": "checkmark", "✗": "times", "×": "times", "±": "pm", "≤": "leq", "≥": "geq",
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "λ": "lambda", "…": "ldots",
    "‖": "Vert", "∞": "infty",
}  # fmt: skip
_AS_LATEX = str.maketrans(_LATEX | {mark: f"$\\{name}$" for mark, name in _SYMBOLS.items()})
_MINUS = re.compile(r"(?<![\w.])-(?=[\d.])")


def to_latex(page: Page) -> str:
    """Return the tables of the full form of a page as LaTeX, which needs booktabs, amssymb and graphicx."""
    lines = [f"% {terminal_text(page.heading)}: {terminal_text(page.verdict.headline)}"]
    notes = (page.conditions, *page.verdict.findings, *page.notes, r"Needs \usepackage{booktabs,amssymb,graphicx}.")
    lines += [f"% {terminal_text(line)}" for line in notes if line]
    tables = [(section, table) for section in page.sections for table in section.tables]
    for number, (section, table) in enumerate(tables, 1):
        parts = filter(None, (section.title, table.title, section.legend))
        caption = " ".join(part if part.endswith((".", "?")) else f"{part}." for part in parts)
        rows = (map(_latex_cell, row, table.columns) for row in table.rows)
        header = [_latex_text(column.heading) for column in table.columns]
        lines += [
            *("", r"\begin{table}", r"\centering", rf"\caption{{{_latex_text(caption)}}}"),
            rf"\label{{tab:{re.sub('[^a-z0-9]+', '-', section.title.lower()).strip('-')}-{number}}}",
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",  # only where it is too wide
            rf"\begin{{tabular}}{{{''.join('l' if column.is_text else 'r' for column in table.columns)}}}",
            *(r"\toprule", " & ".join(header) + r" \\", r"\midrule"),
            *(" & ".join(row) + r" \\" for row in rows),
            *(r"\bottomrule", r"\end{tabular}}", r"\end{table}"),
        ]
    return "\n".join(lines) + "\n"


def _latex_text(text: str) -> str:
    return terminal_text(text).translate(_AS_LATEX)


def _latex_cell(cell: Cell, column: Column) -> str:
    text = cell.whole or cell.text
    text = _latex_text(text if column.is_text else _MINUS.sub("−", text))
    text = rf"\texttt{{{text}}}" if cell.code and text else text
    text = rf"\textbf{{{text}}}" if cell.bold and text else text
    return f"{text} {_latex_text(cell.mark)}".strip()


_MAIN = "<h2>Main numbers</h2>"  # where the first section has no heading of its own
_KINDS = {"png": "image/png", "svg": "image/svg+xml"}
_TONES: dict[Tone, str] = {"good": "✓ ", "bad": "✗ ", "open": "? ", "neutral": ""}
_WITHOUT_SCRIPT = "The interactive charts need JavaScript. Everything else is on this page."


def to_html(page: Page) -> str:
    """Return the full form of a page as one HTML document that loads nothing: interactive if it has charts."""
    check_kind(page, Page, "page", "Make one with evaluation_page(evaluation) of calibrant.report.")
    return _html_document(page.heading, _html_article(page), None if page.charts is None else page.charts())


def to_html_of_several(title: str, groups: Mapping[str, Mapping[str, Page]]) -> str:
    """Return several pages as one HTML document, with a switch between them at its top; one below the other without it.

    Args:
        title: Title of the document.
        groups: Pages by their name in the switch, by the name of their group.
    """
    named = [(group, name, page) for group, pages in groups.items() for name, page in pages.items()]
    places = {group: [i for i, (of, _, _) in enumerate(named) if of == group] for group in groups}
    links = "".join(
        f"<p>{_escaped(group)}: " + " ".join(f'<a href="#report-{i}">{_escaped(named[i][1])}</a>' for i in own) + "</p>"
        for group, own in places.items()
    )
    top = f'<div class="calibrant switch"><header><nav aria-label="Reports">{links}</nav></header></div>\n'
    articles = [_html_article(page, place=f"-{i}") for i, (_, _, page) in enumerate(named)]
    charts = {f"report-{i}": page.charts() for i, (_, _, page) in enumerate(named) if page.charts is not None}
    if not charts:
        return _html_document(title, top + "\n".join(articles), None)
    from calibrant.report.interactive import charts_of_several

    return _html_document(title, top + "\n".join(articles), charts_of_several(charts))


def _html_document(title: str, body: str, charts: Mapping[str, Any] | None) -> str:
    """Return a document with its style sheet and, if there are charts, their data and the script that draws them."""
    style, data, script = _bundled("css"), "", ""
    policy = f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; base-uri 'none'; form-action 'none'"
    if charts is not None:
        from calibrant.report.interactive import packed

        code = _bundled("js")
        policy += f"; script-src '{_digest(code)}'"
        data = f'<script type="application/octet-stream" id="calibrant-data">{packed(charts)}</script>\n'
        script = f"<script>{code}</script>\n"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_escaped(title)}</title>\n<style>{style}</style>\n</head>\n"
        f'<body class="calibrant-page">\n{body}\n{data}{script}</body>\n</html>\n'
    )


def to_html_fragment(page: Page, *, styled: bool = True) -> str:
    """Return a page as an element of another document, such as a notebook; its styles apply to it only.

    Not ``styled``, it is for a document that has the style sheet, and has an empty place for the charts.
    """
    if not styled:
        return _html_article(page)
    return _html_article(dataclasses.replace(page, charts=None), f"<style>{_bundled('css')}</style>")


def _bundled(ending: str) -> str:
    """Return the script or the style sheet that ``frontend`` builds."""
    return (files("calibrant") / "studio" / "static" / f"calibrant.{ending}").read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """Return the source that a content security policy allows inline."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _html_article(page: Page, style: str = "", *, place: str = "") -> str:
    source = f": <small>{_escaped(page.source)}</small>" if page.source else ""
    number = page.number
    parts = [
        style,
        f"<header><h1>{_escaped(page.title)}{source}</h1></header>",
        _html_paragraph("facts", page.facts),
        f'<div class="verdict {page.tone}"><div class="words">',
        _html_paragraph("headline", _TONES[page.tone] + page.verdict.headline),
        *(_html_paragraph("next", f"→ {step}") for step in page.verdict.next_steps),
        *map(_html_command, page.commands),
        "</div>",
        f'<p class="number"><span>{_escaped(number.title)}</span><b>{_escaped(number.value)}</b>'
        f"<span>{_escaped(number.detail)}</span></p>"
        if number
        else "",
        "</div>",
        f'<div class="figures">{"".join(map(_html_figure, page.figures))}</div>' if page.figures else "",
        f'<main id="calibrant-charts{place}"><noscript><p class="legend">{_WITHOUT_SCRIPT}</p></noscript></main>'
        if page.charts
        else "",
        '<div class="columns">',
        f'<section class="findings"><h2>Findings</h2>{_html_list(page.verdict.findings)}</section>'
        if page.verdict.findings
        else "",
        f'<div class="brief">{"" if page.brief[0].title else _MAIN}{"".join(map(_html_section, page.brief))}</div>'
        if page.brief
        else "",
        "</div>",
        f"<details{'' if page.brief else ' open'}><summary>All numbers</summary>",
        *map(_html_section, page.sections),
        "</details>",
        f"<section><h2>Notes</h2>{_html_list(page.notes)}</section>" if page.notes else "",
        _html_footer(page),
    ]
    named = f' id="report{place}"' if place else ""
    return f'<article class="calibrant"{named}>' + "\n".join(filter(None, parts)) + "</article>"


def _html_command(command: str) -> str:
    return f'<p class="command"><code>{_whole_options(_escaped(command))}</code></p>'


def _whole_options(text: str) -> str:
    """Mark options of a command in escaped text, so that no line ends between ``--`` and the name."""
    return re.sub(r"(?<= )--?[a-z][a-z-]{0,30}(?![\w-])", r'<span class="option">\g<0></span>', text)


def _html_footer(page: Page) -> str:
    made = ""
    if page.origin is not None:
        used = ", ".join(f"{name} {version}" for name, version in page.origin.versions.items())
        made = f"<h2>How it was made</h2>{_html_command(page.origin.command)}<p>{_escaped(used)}</p>" + "".join(
            f"<p>{_escaped(name)}: <code>{digest}</code></p>" for name, digest in page.origin.digests.items()
        )
    return f"<footer>{made}<p>{_escaped(page.conditions)}</p></footer>"


def _escaped(text: str) -> str:
    return escape(terminal_text(text))


def _html_paragraph(kind: str, text: str) -> str:
    # No line begins with a percent sign.
    return f'<p class="{kind}">{_whole_options(_escaped(text))}</p>'.replace(" %", "&nbsp;%")


def _html_list(items: Sequence[str]) -> str:
    listed = "".join(f"<li>{_escaped(item)}</li>" for item in items).replace(" %", "&nbsp;%")
    return f"<ul>{listed}</ul>" if items else ""


def _html_section(section: Section) -> str:
    parts = [f"<h2>{_escaped(section.title)}</h2>" if section.title else ""]
    for table in section.tables:
        parts += [
            f"<h3>{_escaped(table.title)}</h3>" if table.title else "",
            _html_table(table, table.title or section.title or "Main numbers"),
        ]
    parts += [_html_list(section.items), _html_paragraph("legend", section.legend) if section.legend else ""]
    return f"<section>{''.join(parts)}</section>"


def _html_table(table: Table, label: str) -> str:
    kinds = [' class="text"' if column.is_text else "" for column in table.columns]
    names = [_escaped(column.heading) for column in table.columns]
    head = "".join(f'<th scope="col"{kind}>{name}</th>' for kind, name in zip(kinds, names, strict=True))
    # Numbers line up whether or not there is a mark behind them.
    marked = [any(row[i].mark for row in table.rows) for i in range(len(table.columns))]
    body = "".join(
        f"<tr>{''.join(_html_cell(row[i], table.columns[i].is_text, marked[i]) for i in range(len(row)))}</tr>\n"
        for row in table.rows
    )
    region = f'<div class="scroll" tabindex="0" role="region" aria-label="{_escaped(label)}">'
    return f"{region}<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>"


def _html_cell(cell: Cell, is_text: bool, has_marks: bool) -> str:
    kinds = " ".join(kind for kind in ("text" if is_text else "", "" if cell.side == "alike" else cell.side) if kind)
    text = f"<code>{_escaped(cell.text)}</code>" if cell.code and cell.text else _escaped(cell.text)
    text = f"<b>{text}</b>" if cell.bold else text
    mark = f"<i>{_escaped(cell.mark)}</i>" if has_marks else ""
    kinds = f' class="{kinds}"' if kinds else ""
    whole = f' title="{_escaped(cell.whole)}"' if cell.whole not in {"", cell.text} else ""
    return f"<td{kinds}{whole}>{text}{mark}</td>"


def _html_figure(figure: Figure) -> str:
    kind, title = _KINDS.get(figure.kind), _escaped(figure.title)
    if kind is None or not figure.content:
        return ""
    image = f'<img alt="{title}" src="data:{kind};base64,{b64encode(figure.content).decode()}">'
    return f"<figure>{image}<figcaption>{title}</figcaption></figure>"

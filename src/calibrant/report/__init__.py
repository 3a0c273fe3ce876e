"""Reports: records in, pages out, for the terminal, Markdown, LaTeX, HTML and JSON.

A command makes one page of its record and hands it to :func:`show` and :func:`write`. What only some pages need is
loaded when it is first used: an evaluation does without the calibrators, and a file without rich.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from calibrant.atomic import atomic_text
from calibrant.errors import InputError, check_kind
from calibrant.report.documents import to_html, to_html_fragment, to_html_of_several, to_latex, to_markdown
from calibrant.report.evaluation import evaluation_page
from calibrant.report.page import Cell, Column, Figure, Page, Section, Table, Verdict, to_json, to_plain
from calibrant.report.verdict import verdict

if TYPE_CHECKING:
    from calibrant.report.clamping import clamping_page, clamping_verdict
    from calibrant.report.comparison import comparison_page, comparison_verdict
    from calibrant.report.diagnosis import diagnosis_page, diagnosis_verdict
    from calibrant.report.terminal import show

__all__ = [
    "Cell", "Column", "Figure", "Page", "Section", "Table", "Verdict", "clamping_page", "clamping_verdict",
    "comparison_page", "comparison_verdict", "diagnosis_page", "diagnosis_verdict", "evaluation_page", "page_of",
    "show", "to_html", "to_html_fragment", "to_html_of_several", "to_json", "to_latex", "to_markdown", "to_plain",
    "verdict", "write",
]  # fmt: skip

Form: TypeAlias = Literal["json", "markdown", "latex", "html"]

_FORMS: dict[str, Form] = {
    ".json": "json", ".md": "markdown", ".markdown": "markdown", ".tex": "latex", ".html": "html", ".htm": "html",
}  # fmt: skip
_RENDERERS = {"json": to_json, "markdown": to_markdown, "latex": to_latex, "html": to_html}
# Records that have a page, and the module that makes it: clamping_page in clamping, and so on.
_PAGES = {
    "ClampingEvaluation": "clamping", "Comparison": "comparison", "Diagnosis": "diagnosis", "Evaluation": "evaluation",
}  # fmt: skip
_LATER = {f"{module}_{what}": module for module in _PAGES.values() for what in ("page", "verdict")}
_LATER |= {"show": "terminal"}


def page_of(record: Any, **options: Any) -> Page:
    """Return the page of a record: an evaluation, a comparison, a clamped network's evaluation, or a diagnosis.

    ``options`` are arguments of its page, such as ``source``.

    Raises:
        InputError: If there is no page for such an object.
    """
    kind = type(record).__name__
    if kind not in _PAGES:
        raise InputError(f"record must be one of {', '.join(_PAGES)}; got {kind}.")
    page: Page = __getattr__(f"{_PAGES[kind]}_page")(record, **options)
    return page


def write(page: Page, path: str | Path, *, form: Form | None = None) -> Path:
    """Write a page to a file, whole or not at all, and return the file; its ending decides the form unless given.

    Raises:
        InputError: If neither the form nor a known ending is given.
        FileError: If the file could not be written.
    """
    check_kind(path, (str, Path), "path", "Call write(page, path).")
    path = Path(path)
    if form is None:
        if path.suffix.lower() not in _FORMS:
            raise InputError(f"path must end in one of {', '.join(_FORMS)}; got {path.name}.")
        form = _FORMS[path.suffix.lower()]
    with atomic_text(path) as stream:
        stream.write(_RENDERERS[form](page))
    return path


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'calibrant.report' has no attribute {name!r}")
    return getattr(import_module(f"calibrant.report.{_LATER[name]}"), name)

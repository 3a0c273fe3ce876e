"""Writes what is made from the classes and their docstrings, so that page and code cannot disagree.

Run by ``make docs``; a test fails if a page is out of date.
"""

from pathlib import Path

from calibrator_pages import calibrator_pages
from loss_page import loss_page
from metric_page import metric_page
from papers_page import PAGE, page

from calibrant.cli.listing import INDEX, write_index

DOCS = Path(__file__).parent


def pages() -> dict[Path, str]:
    """Every written page, and the index of the command line, by its place."""
    methods = {DOCS / "calibrators" / name: text for name, text in calibrator_pages().items()}
    return {DOCS / "losses.md": loss_page(), DOCS / "metrics.md": metric_page(), INDEX: write_index(), **methods}


def main() -> None:
    """Write them, and remove those of methods that are gone."""
    from experiments.__main__ import STUDIES
    from experiments.reproduce import GUIDE, page_of_guide

    written = pages()
    for old in (DOCS / "calibrators").glob("*.md"):
        if old not in written:
            old.unlink()
    written |= {PAGE: page(), GUIDE: page_of_guide(list(STUDIES.values()))}
    for path, text in written.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

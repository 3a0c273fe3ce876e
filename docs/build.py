"""Writes what is made from the classes and their docstrings, so that page and code cannot disagree.

Run by ``make docs``; a test fails if a page is out of date.
"""

import json
from dataclasses import asdict
from pathlib import Path

from calibrator_pages import calibrator_pages
from loss_page import loss_page
from metric_page import metric_page
from papers_page import PAGE, page

from calibrant import catalogue
from calibrant.catalogue import AnyCalibrator, find_papers
from calibrant.cli.listing import EXPORTING, INDEX, LISTINGS, exported_classes, other_papers

DOCS = Path(__file__).parent


def pages() -> dict[Path, str]:
    """Every written page, and the index of the command line, by its place."""
    methods = {DOCS / "calibrators" / name: text for name, text in calibrator_pages().items()}
    return {DOCS / "losses.md": loss_page(), DOCS / "metrics.md": metric_page(), INDEX: index_text(), **methods}


def index_text() -> str:
    """Return the index of the command line, from the classes."""
    lists = {kind.value: [list(row) for row in listing.rows()] for kind, listing in LISTINGS.items()}
    names = {row[0] for kind in ("metrics", "calibrators", "losses") for row in lists[kind]} | {"piece"}
    papers = {name: find_papers(name) for name in names}
    papers |= {name: () if paper is None else (paper,) for name, paper in other_papers().items()}
    # Steps of a chain: calibrators whose name has no other meaning, so that its papers are the step's.
    steps: dict[str, AnyCalibrator] = {**catalogue.calibrators, **catalogue.feature_calibrators}
    index = {
        "exports": {name: exported_classes(name) for name in EXPORTING},
        "lists": lists,
        "papers": {name: [asdict(paper) for paper in papers[name]] for name in sorted(papers)},
        "steps": sorted(name for name, step in steps.items() if papers[name] == (step.paper,)),
    }
    return json.dumps(index, indent=1, ensure_ascii=False) + "\n"


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

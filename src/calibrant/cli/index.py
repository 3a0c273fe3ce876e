"""What ``calibrant list`` and ``calibrant cite`` print, as data beside this file: to read it, torch is not needed.

``make docs`` writes the file from the classes, and a test fails if it is out of date. A method that was added since
shows up all the same: where a folder exports other classes than the file was made from, they are asked themselves.
"""

import ast
import json
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from calibrant.paper import Paper

__all__ = ["INDEX", "papers_of", "rows_of", "write_index"]

INDEX = Path(__file__).with_name("index.json")
_PACKAGE = Path(__file__).parent.parent
# Where what is listed lives: a class more or less in one of these, and the file no longer tells all.
_FOLDERS = ("calibrators", "datasets", "datasets/corruptions", "losses", "metrics", "models")


def rows_of(kind: str) -> list[list[str]] | None:
    """The rows of a list; None if the file does not tell them."""
    index = _index()
    return None if index is None else index["lists"][kind]


def papers_of(text: str) -> tuple[Paper, ...] | None:
    """The papers behind a name or a chain of calibrators; None if the file does not tell them."""
    index = _index()
    if index is None:
        return None
    names = text.split("+")
    if any(name not in index["papers"] or not index["papers"][name] for name in names):
        return None
    if len(names) > 1 and any(name not in index["steps"] for name in names):
        return None
    papers = (Paper(**fields) for name in names for fields in index["papers"][name])
    return tuple(dict.fromkeys(papers))


def write_index() -> str:
    """The text of the file, from the classes."""
    from calibrant.catalogue import all_calibrators, all_feature_calibrators, find_papers
    from calibrant.cli.cite import papers_beside
    from calibrant.cli.listing import LISTINGS
    from calibrant.method_text import AnyCalibrator

    beside = papers_beside()
    lists = {kind.value: [list(row) for row in shown.rows()] for kind, shown in LISTINGS.items()}
    listed = {row[0] for kind in ("metrics", "calibrators", "losses") for row in lists[kind]} | {"piece"}
    papers = {name: find_papers(name) for name in listed}
    papers |= {name: () if paper is None else (paper,) for name, paper in beside.items()}
    # Steps of a chain: calibrators whose name stands for nothing else, so that its papers are the step's.
    steps: dict[str, AnyCalibrator] = {**all_calibrators(), **all_feature_calibrators()}
    index = {
        "exports": {folder: _exports(folder) for folder in _FOLDERS},
        "lists": lists,
        "papers": {name: [asdict(paper) for paper in papers[name]] for name in sorted(papers)},
        "steps": sorted(name for name, step in steps.items() if papers[name] == (step.paper,)),
    }
    return json.dumps(index, indent=1, ensure_ascii=False) + "\n"


@cache
def _index() -> dict[str, Any] | None:
    """The file, if it is about what the folders export now."""
    if not INDEX.exists():
        return None
    index: dict[str, Any] = json.loads(INDEX.read_text(encoding="utf-8"))
    return index if all(_exports(folder) == names for folder, names in index["exports"].items()) else None


def _exports(folder: str) -> list[str]:
    """The classes that a folder of the package exports, read and not loaded."""
    module = _PACKAGE / folder
    path = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return [name for name in ast.literal_eval(node.value) if name[0].isupper()]
    return []

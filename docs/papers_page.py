"""Writes papers.md: every item of the four papers with its code, its tests and its records.

``python docs/papers_page.py`` reads papers.toml, finds where each name is defined and which tests use it, and counts
the records of the studies.
"""

import importlib
import inspect
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent
PAGE = DOCS / "papers.md"
PAPERS = {
    "N": "Neural Clamping (Tang et al. 2024)",
    "D": "Neural Clamping: its demonstration and toolkit",
    "W": "Do Not Be Afraid of Overconfidence (Wang et al. 2021)",
    "K": "On the Dark Side of Calibration (Singh et al. 2021)",
    "M": "Meta-Regularization (Wang & Golebiowski 2024)",
}
STATUS = {"done": "done", "part": "in part", "absent": "absent", "none": "nothing to implement"}
MOST_TESTS = 2
if str(ROOT) not in sys.path:  # for experiments, which is no part of the package
    sys.path.append(str(ROOT))
INTRODUCTION = """\
# The four papers, item by item

<!-- Written by `python docs/papers_page.py` from papers.toml. -->

Every method, formula, data set, network and protocol that the papers define or use, with its code, the tests that use
it most, and the study that has records of it. *Done* refers to the implementation. Whether a paper's table comes out as
printed is the subject of the study; commands, data and times are in [how to reproduce a table](reproduce.md).
"""


def items() -> dict[str, dict[str, Any]]:
    """Return the items of papers.toml by id."""
    return tomllib.loads((DOCS / "papers.toml").read_text(encoding="utf-8"))


def source_of(name: str) -> Path:
    """Return the file in which a name such as ``metrics.ECE`` is defined.

    Args:
        name: Below ``calibrant``, or below ``experiments`` with that word in front.

    Raises:
        LookupError: If there is no such name.
    """
    place, _, last = (name if name.startswith("experiments.") else f"calibrant.{name}").rpartition(".")
    try:
        module = importlib.import_module(place)
        found = getattr(module, last)
    except (ImportError, AttributeError) as error:
        raise LookupError(f"papers.toml names {name}, which is not there ({error}).") from error
    file = inspect.getsourcefile(inspect.unwrap(found)) if callable(found) else module.__file__
    return Path(str(file)).resolve().relative_to(ROOT)


def tests_of(names: list[str]) -> list[Path]:
    """Return the test files that use the names most, at most two."""
    counts: Counter[Path] = Counter()
    for name in names:
        # The function of a metric has its class's name in small letters.
        word = name.rpartition(".")[2].lower()
        counts.update({path: words[word] for path, words in _words_of_tests().items() if word in words})
    return [path for path, _ in sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:MOST_TESTS]]


@cache
def _words_of_tests() -> Mapping[Path, Counter[str]]:
    return {
        path.relative_to(ROOT): Counter(re.findall(r"\w+", path.read_text(encoding="utf-8").lower()))
        for path in sorted(ROOT.glob("tests/**/test_*.py"))
    }


def page() -> str:
    """Return the whole page."""
    counts: dict[str, Counter[str]] = {letter: Counter() for letter in PAPERS}
    rows: dict[str, list[str]] = {letter: [] for letter in PAPERS}
    for key, item in items().items():
        counts[key[0]][item["status"]] += 1
        rows[key[0]].append(_row(key, item))
    parts = [INTRODUCTION, "| paper | items | done | in part | absent | nothing to implement |", "|---" * 6 + "|"]
    for letter, title in [*PAPERS.items(), ("", "all")]:
        own = counts.get(letter) or sum(counts.values(), Counter())
        parts.append(f"| {title} | {sum(own.values())} | {' | '.join(str(own[status]) for status in STATUS)} |")
    for letter, title in PAPERS.items():
        head = ["", f"## {title}", "", "| id | item | state | code | tests | records | notes |", "|---" * 7 + "|"]
        parts += [*head, *rows[letter]]
    return "\n".join(parts) + "\n"


def _row(key: str, item: Mapping[str, Any]) -> str:
    names = item.get("names", [])
    code = "<br>".join(f"[`{name}`](../{source_of(name)})" for name in names)
    tests = "<br>".join(f"[{path.stem}](../{path})" for path in tests_of(names))
    records = _records_of(item["study"]) if "study" in item else ""
    cells = (key, item["item"].replace("|", "\\|"), STATUS[item["status"]], code, tests, records, item.get("note", ""))
    return f"| {' | '.join(cells)} |"


@cache
def _records_of(name: str) -> str:
    from experiments.__main__ import STUDIES
    from experiments.records import Records
    from experiments.runner import finished

    study = STUDIES[name]
    cells = study.cells(quick=False)
    done, _ = finished(cells, Records(study.folder / "records.jsonl").read())
    return f"[{name}]({study.page_name}), {len(done)} of {len(cells)} cells"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

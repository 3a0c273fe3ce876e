"""Links between pages lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/RESULTS.md", "tests/reference/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^()\s]*)\)|\b(?:src|href)=\"([^\"]+)\"")


def links_of(page):
    """Where a page points within the repository, without the places inside pages."""
    found = ((link[1] or link[2] or "").strip("<>") for link in _LINK.finditer(_FENCED.sub("", page)))
    return [link.partition("#")[0] for link in found if not re.match(r"[a-z]+:|#", link)]


def test_links_are_found_in_text_and_pictures_but_not_in_code():
    page = '[a](x.md#top) ![b](y.png) <img src="z.svg"> [c](http://a.b) [d](#here) []()\n```python\n[e](f)\n```\n'
    assert links_of(page) == ["x.md", "y.png", "z.svg", ""]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_points_to_a_file(page):
    links = links_of(page.read_text(encoding="utf-8"))
    assert [link for link in links if not link or not (page.parent / link).exists()] == []


def test_the_architecture_names_functions_where_they_are():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)`,\s`([\w.]+)`", text)
    assert len(named) > 20
    for file, name in named:
        code = (ROOT / "src" / "calibrant" / file).read_text(encoding="utf-8")
        for part in name.split("."):
            assert re.search(rf"^\s*(?:async )?(?:def|class) {part}\b|^\s*{part}\b", code, re.MULTILINE), (file, name)

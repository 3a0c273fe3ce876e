"""The table of the papers' items names code and tests that are there."""

import importlib
from collections import Counter
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def papers():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS))
        yield importlib.import_module("papers_page")


def test_every_item_of_the_papers_is_listed_once_in_order(papers):
    keys = list(papers.items())
    assert Counter(key[0] for key in keys) == {"N": 44, "D": 15, "W": 32, "K": 32, "M": 31}
    for letter in papers.PAPERS:
        own = [key for key in keys if key[0] == letter]
        assert own == [f"{letter}{number:02}" for number in range(1, len(own) + 1)]


def test_what_is_done_has_code_and_tests(papers):
    for key, item in papers.items().items():
        assert item["status"] in papers.STATUS, key
        names = item.get("names", [])
        assert bool(names) or item["status"] in {"absent", "none"}, key
        assert all((DOCS.parent / papers.source_of(name)).exists() for name in names), key
        assert papers.tests_of(names) or not names, key


def test_a_name_that_is_not_there_is_an_error(papers):
    with pytest.raises(LookupError, match="NoSuchThing"):
        papers.source_of("metrics.NoSuchThing")


def test_the_page_has_every_item(papers):
    text = papers.PAGE.read_text(encoding="utf-8")
    for key, item in papers.items().items():
        assert f"\n| {key} | {item['item'].replace('|', chr(92) + '|')} | {papers.STATUS[item['status']]} |" in text, (
            "run `make docs`"
        )

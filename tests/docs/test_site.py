"""The pages of the site: links lead to pages and figures of it, and nothing is left out. MkDocs is not needed here."""

import importlib
import inspect
import pkgutil
import re
from collections import Counter
from pathlib import Path, PurePosixPath

import pytest

from calibrant import plots

DOCS = Path(__file__).parents[2] / "docs"
DRAWN = {"<class 'matplotlib.axes._axes.Axes'>", "<class 'matplotlib.figure.Figure'>"}
INTERNAL = {"cli", "numerics", "studio"}  # packages that no user imports


@pytest.fixture(scope="module")
def site():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS))
        yield importlib.import_module("site_pages")


def links_of(text):
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(<?([^()\s>#]*)(?:#[^()\s>]*)?>?\)", prose) + re.findall(r'\bsrc="([^"]+)"', prose)
    return [link for link in links if link and not re.match(r"[a-z]+:", link)]


def resolved(page, link):
    parts = []
    for part in (PurePosixPath(page).parent / link).parts:
        parts = parts[:-1] if part == ".." else [*parts, part]
    return "/".join(parts)


def test_every_link_leads_to_a_page_or_figure_of_the_site(site):
    pages = site.pages()
    there = {*pages, *site.figures()}
    wrong = {
        (page, link) for page, text in pages.items() for link in links_of(text) if resolved(page, link) not in there
    }
    assert wrong == set()
    assert sum(len(links_of(text)) for text in pages.values()) > 100


def test_every_page_stands_once_in_the_navigation(site):
    pages = site.pages()
    listed = Counter(name for section in site.navigation(list(pages)) for names in section.values() for name in names)
    assert listed == Counter(list(pages))


def test_the_gallery_shows_every_figure(site):
    gallery = site.pages()["gallery.md"]
    assert [figure for figure in site.figures() if f"]({figure})" not in gallery] == []


def drawing_functions():
    packages = [f"{plots.__name__}.{found.name}" for found in pkgutil.iter_modules(plots.__path__) if found.ispkg]
    for module in (plots, *map(importlib.import_module, packages)):
        for name in module.__all__:
            drawn = getattr(module, name)
            if inspect.isfunction(drawn) and str(inspect.signature(drawn).return_annotation) in DRAWN:
                yield name


def test_the_gallery_draws_every_figure_of_the_library(site):
    drawn = list(drawing_functions())
    assert {"plot_reliability", "plot_delta", "plot_shift"} <= set(drawn)
    assert {figure.function for section in site.gallery.SECTIONS for figure in section.figures} == set(drawn)


def test_a_gallery_command_that_fails_is_reported(site, tmp_path, monkeypatch):
    failing = site.gallery.Section("Broken", "index.md", "raise ValueError('no data')", ())
    monkeypatch.setattr(site.gallery, "SECTIONS", (failing,))
    with pytest.raises(SystemExit, match=r"(?s)failed: raise ValueError.*ValueError: no data"):
        site.gallery.draw(tmp_path)


def test_every_package_that_users_import_is_in_the_reference(site):
    packages = {path.parent.name for path in (DOCS.parent / "src" / "calibrant").glob("*/__init__.py")}
    assert packages - INTERNAL <= set(site.PACKAGES)
    assert all(importlib.util.find_spec(f"calibrant.{name}") for name in site.PACKAGES)


def test_what_would_be_loaded_from_another_host_is_found(site, tmp_path):
    (tmp_path / "page.html").write_text(
        '<a href="https://a.org/paper"><link rel="canonical" href="https://b.org"><img src="images/x.png">'
        '<script async src="https://c.org/x.js"></script><link href="https://d.org/y.css" rel="stylesheet">'
    )
    (tmp_path / "style.css").write_text("@font-face { src: url('https://e.org/f.woff2') } a { background: url(g.png) }")
    assert site.foreign_resources(tmp_path) == {"https://c.org/x.js", "https://d.org/y.css", "https://e.org/f.woff2"}

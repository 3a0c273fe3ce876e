"""Writes the pages of the site, and builds it: ``make site`` leaves it in build/site.

The pages are those of docs and the README, beside an API reference from the docstrings and a gallery of all figures,
which docs/gallery.py has drawn before.
Links to files of the repository that are no pages become their text. The site asks no other host for anything.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import gallery

DOCS = Path(__file__).parent
ROOT = DOCS.parent
BUILD = ROOT / "build"

# What a user imports, in the order of the architecture.
PACKAGES = (
    "predictions", "metrics", "evidence", "evaluation", "calibrators", "comparison", "maps", "clamping", "confidence",
    "losses", "models", "datasets", "training", "inference", "diagnosis", "diagrams", "plots", "plots.diagnosis",
    "report", "files", "integrations", "slices", "shift", "gates", "scale", "processes", "catalogue", "testing",
    "errors",
)  # fmt: skip
SECTIONS = {
    "Start": ("index", "tutorial", "choosing", "shift", "use_with", "studio"),
    "Methods": ("metrics", "calibrators/README", "losses", "clamping", "confidence", "training", "diagnose"),
    "Results": ("results", "reproduce", "comparison"),  # and every study
    "Development": ("architecture", "adding-a-metric", "adding-a-calibrator", "adding-a-loss", "robustness", "papers"),
}
CONFIGURATION = {
    "site_name": "Calibrant",
    "theme": {
        "name": "material",
        "font": False,  # its fonts would be asked of another host
        "features": ["navigation.tabs", "navigation.top", "search.highlight", "search.suggest", "content.code.copy"],
        "palette": [
            {"media": f"(prefers-color-scheme: {scheme})", "scheme": name, "primary": "indigo"}
            for scheme, name in (("light", "default"), ("dark", "slate"))
        ],
    },
    "use_directory_urls": False,  # so that the pages open from a folder
    "markdown_extensions": [
        "admonition", "attr_list", "md_in_html", "tables", "pymdownx.superfences", {"toc": {"permalink": True}},
    ],
    "plugins": [
        "search",
        {
            "mkdocstrings": {
                "handlers": {
                    "python": {
                        "paths": [str(BUILD / "site-pages" / "source")],
                        "options": {
                            "docstring_style": "google",
                            "show_source": False,
                            "show_root_toc_entry": False,
                            "show_submodules": False,
                            "separate_signature": True,
                            "members_order": "source",
                        },
                    }
                }
            }
        },
    ],
}  # fmt: skip
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(<?([^()\s>]*)>?\)")


def pages() -> dict[str, str]:
    """Return the text of every page by its path in the site."""
    own = {path.relative_to(DOCS).as_posix(): path for path in sorted(DOCS.rglob("*.md"))}
    found = {name: _inside(path.read_text(encoding="utf-8"), path, DOCS) for name, path in own.items()}
    readme = (ROOT / "README.md").read_text(encoding="utf-8").replace('src="docs/', 'src="')
    found["index.md"] = _inside(readme, ROOT / "README.md", DOCS)
    found["gallery.md"] = _gallery(found)
    for name in PACKAGES:
        found[f"api/{name}.md"] = f"# calibrant.{name}\n\n::: calibrant.{name}\n"
    found["api/integrations.md"] += "    options:\n      show_submodules: true\n"  # a module each, which none imports
    return found


def figures() -> list[str]:
    """Return the paths of all figures in the site: those of the pages, and those of the gallery alone."""
    return [*_page_figures(), *(figure.path for section in gallery.SECTIONS for figure in section.figures)]


def _page_figures() -> list[str]:
    return [path.relative_to(DOCS).as_posix() for path in sorted((DOCS / "images").rglob("*.png"))]


def _inside(text: str, page: Path, docs: Path) -> str:
    """Return a page whose links lead to pages and figures of the site; others become their text."""
    place = page.parent if page.is_relative_to(docs) else docs

    def replaced(link: re.Match[str]) -> str:
        target, hash_, part = link[3].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return link[0]
        file = (page.parent / target).resolve()
        if not file.is_relative_to(docs) or file.suffix not in {".md", ".png"}:
            return link[2]
        return f"{link[1]}[{link[2]}]({_relative(file, place)}{hash_}{part})"

    return "".join(
        part if part.startswith("```") else _LINK.sub(replaced, part)
        for part in re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    )


def _relative(file: Path, place: Path) -> str:
    up = 0
    while not file.is_relative_to(place):
        place, up = place.parent, up + 1
    return "../" * up + file.relative_to(place).as_posix()


def _gallery(texts: dict[str, str]) -> str:
    """Return a page of all figures, each with a link to the page that explains it."""
    parts = ["# Gallery\n", gallery.page(), "## Figures of the pages\n"]
    for figure in _page_figures():
        name = figure.rpartition("/")[2]
        page = next((page for page, text in texts.items() if name in text), "index.md")
        title = name.removesuffix(".png").replace("-", " ").replace("_", " ").capitalize()
        parts.append(f"### [{title}]({page})\n\n[![{title}]({figure})]({page})\n")
    return "\n".join(parts)


def navigation(names: list[str]) -> list[dict[str, list[str]]]:
    """Return the pages by section; every page is in one."""
    studies = sorted(name for name in names if name.endswith("-study.md"))
    sections = {title: [f"{name}.md" for name in listed] for title, listed in SECTIONS.items()}
    sections["Results"] += [*studies, "gallery.md"]
    sections["Methods"] += sorted(name for name in names if re.fullmatch(r"calibrators/(?!README).*", name))
    listed = {name for section in sections.values() for name in section}
    sections["Start"] += sorted(name for name in names if name not in listed and not name.startswith("api/"))
    sections["API"] = [f"api/{name}.md" for name in PACKAGES]
    return [{title: section} for title, section in sections.items()]


def write(folder: Path) -> Path:
    """Write pages, figures and the configuration of MkDocs to a folder; return the configuration's file."""
    shutil.rmtree(folder, ignore_errors=True)
    texts = pages()
    for name, text in texts.items():
        (folder / "pages" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "pages" / name).write_text(text, encoding="utf-8")
    shutil.copytree(DOCS / "images", folder / "pages" / "images")
    shutil.copytree(BUILD / "gallery" / gallery.FOLDER, folder / "pages" / gallery.FOLDER)
    _write_source(folder / "source")
    configuration = CONFIGURATION | {
        "docs_dir": str(folder / "pages"), "site_dir": str(BUILD / "site"), "nav": navigation(list(texts)),
    }  # fmt: skip
    (folder / "mkdocs.yml").write_text(json.dumps(configuration, indent=1), encoding="utf-8")  # JSON is YAML
    return folder / "mkdocs.yml"


def _write_source(folder: Path) -> None:
    """Write a copy of the package whose docstrings have sections that mkdocstrings knows, and a paragraph a fact."""
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        text = re.sub(r"^( +)Example:$", r"\1Examples:", text, flags=re.MULTILINE)
        text = re.sub(r"^( +)(Samples|Estimator|Bias|Cost): (?=\S)", r"\n\1\2: ", text, flags=re.MULTILINE)
        copied = folder / path.relative_to(ROOT / "src")
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_text(text, encoding="utf-8")


def foreign_resources(site: Path) -> set[str]:
    """Return what the built pages would load from other hosts: scripts, styles, fonts, pictures and frames."""
    loads = re.compile(
        r"<(?:script|img|iframe|link(?![^>]*rel=[\"']?canonical))[^>]*?(?:src|href)=[\"']?(https?://[^\"'\s>]+)"
    )
    styles = re.compile(r"(?:url\(|@import )[\"']?(https?://[^\"')]+)")
    pages_of_site = [path.read_text(encoding="utf-8") for path in site.rglob("*.html")]
    sheets = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    return {url for text in pages_of_site for url in loads.findall(text)} | {
        url for text in sheets for url in styles.findall(text)
    }


def main() -> int:
    """Build the site; return 1 where it has a broken link or would ask another host."""
    configuration = write(BUILD / "site-pages")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", configuration]
    built = subprocess.run(command, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=False)
    foreign = foreign_resources(BUILD / "site")
    for url in sorted(foreign):
        print(f"loaded from another host: {url}")
    print(f"Built {BUILD / 'site' / 'index.html'}; its search needs a server: python -m http.server -d build/site")
    return int(bool(foreign) or built.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())

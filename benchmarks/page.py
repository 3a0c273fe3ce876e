"""RESULTS.md: a page of sections, of which a run replaces those it has made."""

import platform
from importlib.metadata import version
from pathlib import Path

__all__ = ["PAGE", "write"]

PAGE = Path(__file__).with_name("RESULTS.md")
_HEADING = "\n## "


def write(sections: list[str], notes: list[str]) -> None:
    """Put the sections where sections of the same heading stand, new ones last, and the rest as it was."""
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    kept = {_title(part): part.strip() for part in page.split(_HEADING)[1:]}
    for section in sections:
        body = section.strip().removeprefix("## ")
        kept[_title(body)] = body
    about = (
        f"Each section is one run on {platform.machine()}, one thread, torch {version('torch')}, all candidates in "
        "turns, least processor time of several rounds. The machine is noisy: only ratios count. Written by "
        "`make benchmarks`; `make benchmarks QUESTIONS=temperature` runs that question alone."
    )
    head = "\n".join(["# Speed, beside the peers", "", about, *(f"\n{note}" for note in notes)])
    PAGE.write_text(head + "\n" + "".join(f"{_HEADING}{body}\n" for body in kept.values()), encoding="utf-8")


def _title(section: str) -> str:
    return section.strip().splitlines()[0]

"""RESULTS.md: a page of sections, of which a run replaces those it has made."""

import platform
from importlib.metadata import version
from pathlib import Path

__all__ = ["PAGE", "write"]

PAGE = Path(__file__).with_name("RESULTS.md")
_HEADING = "\n## "


def write(sections: list[str], notes: list[str] | None) -> None:
    """Put the sections where sections of the same heading stand, new ones last, and the rest as it was.

    Args:
        sections: With their headings.
        notes: For the top of the page, which also tells this machine. None leaves the top: the sections tell theirs.
    """
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    top, *parts = page.split(_HEADING)
    kept = {_title(part): part.strip() for part in parts}
    for section in sections:
        body = section.strip().removeprefix("## ")
        kept[_title(body)] = body
    top = top.rstrip() if notes is None else _top(notes)
    PAGE.write_text(top + "\n" + "".join(f"{_HEADING}{body}\n" for body in kept.values()), encoding="utf-8")


def _top(notes: list[str]) -> str:
    about = (
        f"Each section that does not name its device is one run on {platform.machine()}, one thread, torch "
        f"{version('torch')}, all candidates in turns, least processor time of several rounds. The machine is noisy: "
        "only ratios count. Written by `make benchmarks`; `make benchmarks QUESTIONS=temperature` runs that question "
        "alone."
    )
    return "\n".join(["# Speed, beside the peers", "", about, *(f"\n{note}" for note in notes)])


def _title(section: str) -> str:
    return section.strip().splitlines()[0]

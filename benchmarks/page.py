"""RESULTS.md: a page of sections, of which a run replaces those it has made."""

import platform
from importlib.metadata import version
from pathlib import Path

__all__ = ["PAGE", "write"]

PAGE = Path(__file__).with_name("RESULTS.md")
_HEADING = "\n## "
_TOP = """# Speed, beside the peers

Each section is one run on the device that its heading names: all candidates in turns, least processor time of several \
rounds. The machines are noisy: only ratios within a section count. Written by `make benchmarks`; \
`make benchmarks QUESTIONS=temperature` runs that question alone.
"""


def write(sections: list[str], notes: list[str] | None) -> None:
    """Replace the sections of the same heading, add new ones at the end, and keep the rest.

    Args:
        sections: Sections with their headings. A heading that names no device gets this machine's processor.
        notes: Peers that were not compared, stated in each of the sections. None for sections without peers.
    """
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    kept = {_title(part): part.strip() for part in page.split(_HEADING)[1:]}
    for section in sections:
        body = section.strip().removeprefix("## ")
        if notes is not None:
            body = _placed(body, notes)
        kept[_title(body)] = body
    PAGE.write_text(_TOP + "".join(f"{_HEADING}{body}\n" for body in kept.values()), encoding="utf-8")


def _placed(body: str, notes: list[str]) -> str:
    title, *rest = body.splitlines()
    about = f"One thread of {platform.machine()}, torch {version('torch')}."
    return "\n".join([f"{title}, on {platform.machine()}", "", " ".join([about, *notes]), *rest])


def _title(section: str) -> str:
    return section.strip().splitlines()[0]

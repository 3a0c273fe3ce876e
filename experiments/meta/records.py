"""What the study has found, a line each, of four kinds; and the page that is written from them."""

import json
from pathlib import Path
from typing import Any

from page import write_page

__all__ = ["IMAGES", "keep"]

RECORDS = Path(__file__).parent / "records.jsonl"
IMAGES = Path(__file__).parents[2] / "docs" / "images" / "meta-study"
_KINDS = ("run", "way", "shift", "confidence")


def keep(found: list[dict[str, Any]], *, about: str) -> None:
    """Put these lines in the place of all others of their kind, and write the page anew."""
    old = RECORDS.read_text(encoding="utf-8").splitlines() if RECORDS.exists() else []
    records = [record for record in map(json.loads, old) if record["about"] != about]
    records += [{"about": about} | record for record in found]
    records.sort(key=lambda record: _KINDS.index(record["about"]))
    RECORDS.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    write_page(records)

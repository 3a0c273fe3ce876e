"""The reports that a command leaves: JSON, a Markdown page, and the summary of a job that has one."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import Any

from calibrant.sources.atomic import atomic_text

__all__ = ["write_json", "write_page"]


def write_json(path: Path | None, document: Callable[[], dict[str, Any]]) -> list[Path]:
    """Write the document if a path is given; the paths written."""
    if path is None:
        return []
    with atomic_text(path) as stream:
        stream.write(json.dumps(document(), indent=2, ensure_ascii=False) + "\n")
    return [path]


def write_page(path: Path | None, pictures: Sequence[Path], page: Callable[[Sequence[PurePath]], str]) -> list[Path]:
    """Write the page, with its pictures, if a path is given, and without them to a job's summary; the paths written."""
    written = []
    if path is not None:
        with atomic_text(path) as stream:
            stream.write(page([Path(os.path.relpath(picture, path.parent)) for picture in pictures]))
        written.append(path)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8") as stream:
            stream.write(page([]))
    return written

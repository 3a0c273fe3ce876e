"""Studies that were run before this runner: their records are kept, and their pages are written from them.

The programs that made the records are in the history, at the commits named here.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from calibrant.errors import InputError
from experiments import clamping, meta, posthoc, training
from experiments.clamping.page import page_of as clamping_page
from experiments.meta.page import page_of as meta_page
from experiments.posthoc.page import page_of as comparison_page
from experiments.records import Record, Records
from experiments.runner import Cell, Place, RunCells, Settings, Study
from experiments.training.page import page_of as training_page

__all__ = ["EARLIER"]


def _earlier(
    name: str,
    title: str,
    module: ModuleType,
    page_of: Callable[[list[dict[str, Any]]], str],
    *,
    made_at: str,
    page_file: str | None = None,
) -> Study:
    """Return a study whose grid is what it has records of.

    Args:
        name: On the command line.
        title: For lists.
        module: Package of its records.
        page_of: Writes the page from records in which a cell's settings and its numbers are one dictionary.
        made_at: Commit whose ``study.py`` made the records.
        page_file: File name of the page.
    """
    folder = Path(module.__path__[0])

    def grid() -> list[Settings]:
        return [record["cell"] for record in Records(folder / "records.jsonl").read()]

    def page(records: Sequence[Record], *, images: Path | None) -> str:  # noqa: ARG001
        return page_of([record["cell"] | record["numbers"] for record in records])

    return Study(
        name,
        title,
        folder,
        grid,
        tuple,
        partial(_refuse, name, made_at),
        lambda _records: {},
        page,
        page_file=page_file,
    )


def _refuse(name: str, made_at: str, _place: Place, _cells: Sequence[Cell], *, quick: bool) -> RunCells:  # noqa: ARG001
    raise InputError(f"a study must have a program to be run; that of {name} is in the history alone, at {made_at}.")


EARLIER = (
    _earlier(
        "comparison",
        "all calibrators on a public DenseNet",
        posthoc,
        comparison_page,
        made_at="811e1483d83a",
        page_file="comparison.md",
    ),
    _earlier("training", "five losses on ResNet-110 and ResNet-32", training, training_page, made_at="e4d57843a4be"),
    _earlier("clamping", "Neural Clamping on networks of our own", clamping, clamping_page, made_at="d7a6c2afc3cc"),
    _earlier("meta", "thirteen ways to train ResNet-18 for 40 epochs", meta, meta_page, made_at="0188df3f3fd0"),
)

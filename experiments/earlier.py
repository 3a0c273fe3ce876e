"""Studies that were run before this runner: their records are kept, and their pages are written from them.

The programs that made the records are in the history, at the commits named here.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias, final

from calibrant.errors import InputError
from experiments import clamping, meta, posthoc, training
from experiments.clamping.page import page_of as clamping_page
from experiments.meta.page import page_of as meta_page
from experiments.numbers import Number
from experiments.posthoc.page import page_of as comparison_page
from experiments.records import Record, Records
from experiments.runner import Cell, Place, RunCells, Study
from experiments.training.page import page_of as training_page

__all__ = ["EARLIER", "EarlierStudy"]

PageOf: TypeAlias = Callable[[list[dict[str, Any]]], str]


@final
class EarlierStudy(Study):
    """A study whose grid is what it has records of.

    Args:
        name: On the command line.
        title: For lists.
        module: Package of its records.
        page_of: Writes the page from records in which a cell's settings and its numbers are one dictionary.
        made_at: Commit whose ``study.py`` made the records.
        page_name: File name of the page.
    """

    # Of each study, not of the class.
    name: str  # type: ignore[misc]
    title: str  # type: ignore[misc]
    folder: Path  # type: ignore[misc]

    def __init__(
        self, name: str, title: str, module: ModuleType, page_of: PageOf, *, made_at: str, page_name: str | None = None
    ) -> None:
        self.name, self.title, self._page_of, self._made_at = name, title, page_of, made_at
        self.folder = Path(module.__path__[0])
        self._page_name = page_name

    @property
    def page_name(self) -> str:
        return self._page_name or super().page_name

    def cells(self, *, quick: bool) -> Sequence[Cell]:
        return [] if quick else [Cell(each["cell"]) for each in Records(self.folder / "records.jsonl").read()]

    def prepare(self, place: Place, *, quick: bool) -> RunCells:  # noqa: ARG002
        raise InputError(
            f"a study must have a program to be run; that of {self.name} is in the history alone, at {self._made_at}."
        )

    def numbers(self, records: Sequence[Record]) -> dict[str, Number]:  # noqa: ARG002
        return {}

    def page(self, records: Sequence[Record], *, images: Path | None) -> str:  # noqa: ARG002
        return self._page_of([each["cell"] | each["numbers"] for each in records])


EARLIER = (
    EarlierStudy(
        "comparison",
        "all calibrators on a public DenseNet",
        posthoc,
        comparison_page,
        made_at="811e1483d83a",
        page_name="comparison.md",
    ),
    EarlierStudy(
        "training", "five losses on ResNet-110 and ResNet-32", training, training_page, made_at="e4d57843a4be"
    ),
    EarlierStudy("clamping", "Neural Clamping on networks of our own", clamping, clamping_page, made_at="d7a6c2afc3cc"),
    EarlierStudy("meta", "thirteen ways to train ResNet-18 for 40 epochs", meta, meta_page, made_at="0188df3f3fd0"),
)

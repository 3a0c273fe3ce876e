"""Sets of images that networks were not trained for, each made only when its turn comes."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias, final

import torch

from calibrant import catalogue
from calibrant.checks import check_at_least, check_known, check_seed
from calibrant.datasets import Dataset, Examples, ImageLayout, corrupt, read_shifted
from calibrant.datasets.corruptions import MOST_SEVERE
from calibrant.diagnosis.run_data import clean_examples
from calibrant.diagnosis.run_images import check_sees_images, check_suits, peak_of
from calibrant.diagnosis.runs import DiagnosedRun
from calibrant.errors import InputError

__all__ = ["SEVERITIES", "ShiftSource", "ShiftedSet", "corrupted_sets", "stored_sets"]

ShiftSource: TypeAlias = Literal["clean", "corruption", "file"]
_PathLike: TypeAlias = str | os.PathLike[str]

SEVERITIES = tuple(range(1, MOST_SEVERE + 1))


@final
@dataclass(frozen=True, eq=False)
class ShiftedSet:
    """Images under one shift, and how to get them: a set is made, judged and dropped, so that many need little memory.

    Args:
        name: Of the corruption, or of the file.
        severity: 1 to 5; None for a shift that has no severities.
        source: Whether the library made it, or a file holds it.
        make: Gives the set, with images on this device if they are made there.
    """

    name: str
    severity: int | None
    source: ShiftSource
    make: Callable[[torch.device], Examples]

    @property
    def title(self) -> str:
        """As a message calls it."""
        return self.name if self.severity is None else f"{self.name}, severity {self.severity}"


def corrupted_sets(
    runs: Sequence[DiagnosedRun],
    dataset: Dataset,
    *,
    names: Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES,
    seed: int = 0,
) -> tuple[ShiftedSet, ...]:
    """The runs' own test images, spoiled by corruptions at rising severities.

    All networks see the same spoiled images. They are the library's corruptions, and not those of the files called
    CIFAR-10-C: numbers of the two are not to be mixed.

    Args:
        runs: From :func:`~calibrant.diagnosis.runs.read_runs`.
        dataset: That they were trained on; all its rows are checked against what the runs have kept.
        names: Names of corruptions; None takes all.
        severities: Each 1 to 5.
        seed: Of what is drawn.

    Raises:
        InputError: If a run sees no images, the data set is not that of the runs, or an option is out of range.
        UnknownNameError: If there is no such corruption.
    """
    for severity in severities:
        if check_at_least(severity, 1, "severity") > MOST_SEVERE:
            raise InputError(f"severity must be at most {MOST_SEVERE}; got {severity}.")
    known, seed = catalogue.corruptions, check_seed(seed)
    for name in names or ():
        check_known(name, known, "a corruption")
    test = clean_examples(runs, dataset)
    peak = peak_of(runs[0])
    return tuple(
        ShiftedSet(name, severity, "corruption", partial(_corrupted, test, name, severity, seed, peak))
        for name in (known if names is None else names)
        for severity in severities
    )


def stored_sets(
    runs: Sequence[DiagnosedRun],
    path: _PathLike | tuple[_PathLike, _PathLike],
    *,
    name: str | None = None,
    layout: ImageLayout = "auto",
) -> tuple[ShiftedSet, ...]:
    """The set that a file holds; five where it holds five severities of the runs' own test rows, as in CIFAR-10-C.

    It is looked through now, and read again when its turn comes. Where the runs were calibrated on a part of the test
    rows (``half-test``), a file made of all of them holds images that the maps were fitted on.

    Args:
        runs: From :func:`~calibrant.diagnosis.runs.read_runs`.
        path: As :func:`~calibrant.datasets.read_shifted` takes it.
        name: What to call the set; None goes by the file's name.
        layout: Where the channels stand, if the shape leaves it open.

    Raises:
        FileError: If a file is missing or damaged, or a label is none of the runs' classes.
        InputError: If a run sees no images, or images of another size.
    """
    check_sees_images(runs[0])
    n_classes = len(runs[0].settings.class_names)
    read = partial(read_shifted, path, n_classes=n_classes, layout=layout)
    examples = read()
    called = _name_of(path) if name is None else name
    for run in runs:
        check_suits(examples, run, called)
    test, n = runs[0].test.labels, len(examples)
    # Nothing else has the same labels in the same order five times over.
    if n != MOST_SEVERE * len(test) or not torch.equal(examples.labels, test.repeat(MOST_SEVERE)):
        return (ShiftedSet(called, None, "file", lambda _device: read()),)
    parts = {severity: slice((severity - 1) * len(test), severity * len(test)) for severity in SEVERITIES}
    return tuple(ShiftedSet(called, severity, "file", partial(_part, read, rows)) for severity, rows in parts.items())


def _corrupted(test: Examples, name: str, severity: int, seed: int, peak: int, device: torch.device) -> Examples:
    images = corrupt(test.inputs.to(device), name, severity=severity, seed=seed, peak=peak)
    return Examples(images, test.labels)


def _part(read: Callable[[], Examples], rows: slice, _device: torch.device) -> Examples:
    return read()[rows]


def _name_of(path: _PathLike | tuple[_PathLike, _PathLike]) -> str:
    """The file's name less what every such file is called."""
    file = Path(path[0] if isinstance(path, tuple | list) else path)
    if file.suffix.lower() not in {".npy", ".npz"}:
        return file.name
    for ending in ("data", "images"):
        if file.stem.endswith(("_" + ending, "-" + ending)):
            return file.stem[: -len(ending) - 1]
    return file.stem

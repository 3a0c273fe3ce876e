"""Read the folders of finished runs, and check that they can be diagnosed together."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, final

from torch import Tensor

from calibrant.checks import as_tensor, check_real, check_same_length
from calibrant.errors import FileError, InputError, reading
from calibrant.files import load
from calibrant.files.source import open_npz
from calibrant.predictions import Predictions
from calibrant.training.folder import RunFolder
from calibrant.training.recipe import RunSettings
from calibrant.training.record import EpochRecord

__all__ = ["DiagnosedRun", "LearnedRows", "read_runs"]


class LearnedRows(NamedTuple):
    """When each training sample was learned, and how high its top logit is in the end; (n,) each."""

    learned_epoch: Tensor  # counted from 1; one more than there were epochs for a row that was never learned
    max_logit: Tensor


@final
@dataclass(frozen=True, eq=False)
class DiagnosedRun:
    """A finished run. Its predictions are read each time they are asked for, so that many runs need little memory."""

    path: Path
    settings: RunSettings
    records: tuple[EpochRecord, ...]

    @property
    def seed(self) -> int:
        """Random seed of the weights, the order of the samples and the augmentation."""
        return self.settings.recipe.seed

    @property
    def calibration(self) -> Predictions:
        """The calibration samples.

        Raises:
            FileError: If the file is damaged.
        """
        return self._part("calibration")

    @property
    def test(self) -> Predictions:
        """The test samples.

        Raises:
            FileError: If the file is damaged.
        """
        return self._part("test")

    @property
    def is_recorded(self) -> bool:
        """Whether there is a record of each of its epochs; if not, the last one is not that of the end."""
        return len(self.records) == self.settings.recipe.epochs

    @property
    def is_traced(self) -> bool:
        """Whether it was written down when each training sample was learned."""
        return (self.path / "learning.npz").exists()

    @property
    def learning(self) -> LearnedRows | None:
        """When each training sample was learned; None if the run did not look.

        Raises:
            FileError: If the file is damaged.
        """
        if not self.is_traced:
            return None
        path = self.path / "learning.npz"
        with reading(path, "NumPy archive (.npz)"):
            held = open_npz(path).read(LearnedRows._fields, None)
            learned = LearnedRows(*(check_real(as_tensor(held[name], name), name) for name in LearnedRows._fields))
            check_same_length(learned.learned_epoch, "learned_epoch", learned.max_logit, "max_logit")
            return learned

    def _part(self, name: str) -> Predictions:
        found = load(self.path / f"{name}.npz", kind="logits")
        assert isinstance(found, Predictions), "that is what logits make"
        return found


def read_runs(paths: Sequence[Path]) -> tuple[DiagnosedRun, ...]:
    """The runs of these folders, in their order.

    Args:
        paths: Folders that ``calibrant train`` has left.

    Raises:
        FileError: If one is no folder of a finished run, or has no rows set apart to calibrate.
        InputError: If there is none, one is named twice, or they do not have the same classes and test samples.
    """
    if not paths:
        raise InputError("there must be a run to diagnose; got none. Name folders that calibrant train has left.")
    runs = tuple(_read(Path(path)) for path in paths)
    _check_different(runs)
    first = runs[0]
    labels = first.test.labels
    for run in runs[1:]:
        if run.settings.class_names != first.settings.class_names:
            raise InputError(_unlike_classes(first, run))
        _check_labels(first, labels, run)
    return runs


def _read(path: Path) -> DiagnosedRun:
    folder = RunFolder(path)
    if not (path / "settings.json").exists():
        inside = len(list(path.glob("*/settings.json")))
        hint = f" It holds {inside} such folders: name those ({path / '*'})." if inside else ""
        raise FileError(
            f"{path} must be the folder of a run that calibrant train has left; it has no settings.json.{hint}"
        )
    settings = folder.settings()
    if not folder.has_answers:
        raise FileError(
            f"{path} must hold a finished run; this one was stopped before its end. Repeat its calibrant train, which "
            "goes on from where it stopped."
        )
    for part, use in (("test", "to judge"), ("calibration", "set apart to calibrate, which the maps are fitted on")):
        if not (path / f"{part}.npz").exists():
            raise FileError(
                f"{path} must have rows {use}; it has no {part}.npz. Train with a split that sets some apart, such as "
                "--split holdout."
            )
    return DiagnosedRun(path, settings, tuple(folder.records()))


def _check_different(runs: Sequence[DiagnosedRun]) -> None:
    for place, run in enumerate(runs):
        for other in runs[:place]:
            if run.path.resolve() == other.path.resolve():
                raise InputError(f"each run must be named once; {run.path} is named twice.")
            if run.settings == other.settings:
                raise InputError(
                    f"each run must be named once; {other.path} and {run.path} have the same settings and the same "
                    "seed, so they are one run. Leave one out."
                )


def _unlike_classes(first: DiagnosedRun, other: DiagnosedRun) -> str:
    ours, theirs = first.settings.class_names, other.settings.class_names
    start = "runs that are diagnosed together must have the same classes, in the same order;"
    end = "Diagnose them apart."
    if len(ours) != len(theirs):
        return f"{start} {first.path} has {len(ours)} and {other.path} has {len(theirs)}. {end}"
    place = next(i for i, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
    return f"{start} class {place} is {ours[place]!r} in {first.path} and {theirs[place]!r} in {other.path}. {end}"


def _check_labels(first: DiagnosedRun, labels: Tensor, other: DiagnosedRun) -> None:
    theirs = other.test.labels
    start = "runs that are diagnosed together must be evaluated on the same test rows, in the same order;"
    end = "Diagnose them apart, or train them on the same data and split."
    if len(theirs) != len(labels):
        raise InputError(f"{start} {first.path} has {len(labels):,} and {other.path} has {len(theirs):,}. {end}")
    differ = (labels != theirs).nonzero()
    if differ.numel():
        row = int(differ[0])
        raise InputError(
            f"{start} row {row} is of class {int(labels[row])} in {first.path} and {int(theirs[row])} in {other.path} "
            f"({differ.numel():,} rows differ). {end}"
        )

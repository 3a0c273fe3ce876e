"""The shifted images that ``calibrant diagnose`` was asked to judge on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch

from calibrant.checks import check_known
from calibrant.cli.device import chosen_device
from calibrant.datasets import all_corruptions
from calibrant.diagnosis import DiagnosedRun, ShiftedSet, corrupted_sets, read_run_dataset, stored_sets
from calibrant.diagnosis.shifted_sets import SEVERITIES
from calibrant.errors import FileError, InputError

__all__ = ["ShiftRequest"]

_COMMON = ("gaussian_noise", "defocus_blur", "contrast", "brightness", "jpeg_compression")


@final
@dataclass(frozen=True)
class ShiftRequest:
    """What the person asked for: files, corruptions, or neither."""

    files: tuple[Path, ...] = ()
    corrupt: str | None = None
    severity: str | None = None
    data: Path | None = None
    is_checked: bool = True
    device: str | None = None

    def check(self) -> None:
        """Find what is wrong with the request before anything is read.

        Raises:
            InputError: If a corruption or a severity is not known, or an option is given without --corrupt.
            FileError: If a file is not there.
        """
        for place, file in enumerate(self.files):
            if file.resolve() in {other.resolve() for other in self.files[:place]}:
                raise InputError(f"--shift must name each file once; {file} is named twice.")
            if not file.exists():
                raise FileError(f"--shift must name a file or folder of images; there is no {file}.")
        if self.corrupt is None:
            for option, given in (("--severity", self.severity), ("--data", self.data)):
                if given is not None:
                    raise InputError(f"{option} must stand beside --corrupt, which is not there. Add --corrupt common.")
            return
        self._names()
        self._severities()

    def sets(self, runs: Sequence[DiagnosedRun], *, seed: int) -> list[ShiftedSet]:
        """All sets, each made when its turn comes.

        Raises:
            InputError: If a set does not suit the runs.
            FileError: If a file or the data set cannot be read.
        """
        found: list[ShiftedSet] = []
        if self.corrupt is not None:
            dataset = read_run_dataset(runs, self.data, checked=self.is_checked)
            found += corrupted_sets(runs, dataset, names=self._names(), severities=self._severities(), seed=seed)
        names = [file.name for file in self.files]
        for file in self.files:
            # Two files of one name are told apart by their folders.
            name = f"{file.resolve().parent.name}/{file.stem}" if names.count(file.name) > 1 else None
            found += stored_sets(runs, file, name=name)
        return found

    def chosen_device(self) -> torch.device | None:
        """Where the networks run, if they do at all."""
        return chosen_device(self.device) if self.files or self.corrupt is not None else None

    def _names(self) -> tuple[str, ...]:
        known, given = tuple(all_corruptions()), (self.corrupt or "").strip()
        if given in {"all", "common"}:
            return known if given == "all" else _COMMON
        names = tuple(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
        for name in names:
            check_known(name, (*known, "all", "common"), "--corrupt")
        if not names:
            raise InputError(f"--corrupt must be common, all, or some of {', '.join(known)}; got nothing.")
        return names

    def _severities(self) -> tuple[int, ...]:
        if self.severity is None:
            return SEVERITIES
        texts = [text.strip() for text in self.severity.split(",")]
        if not all(text.isdecimal() and int(text) in SEVERITIES for text in texts):
            raise InputError(f"--severity must be 1 to 5, with commas between them; got {self.severity!r}.")
        return tuple(sorted({int(text) for text in texts}))

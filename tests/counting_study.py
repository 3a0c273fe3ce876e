"""A study for the tests of the runner: its cells write down when they begin, and wait, fail or die if asked to.

Run as a program it runs itself: ``python counting_study.py FOLDER CELLS``.
"""

import os
import sys
import time
from pathlib import Path
from typing import ClassVar

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from experiments.numbers import Number  # noqa: E402
from experiments.records import Records  # noqa: E402
from experiments.runner import Cell, Place, Study, one_by_one, run_cells  # noqa: E402

from calibrant.errors import InputError  # noqa: E402


class CountingStudy(Study):
    name: ClassVar[str] = "counting"
    title: ClassVar[str] = "A study that counts"
    folder: ClassVar[Path] = ROOT

    def __init__(self, log, settings):
        self.log, self.settings = Path(log), settings

    def cells(self, *, quick):
        return [Cell(each) for each in self.settings[: 2 if quick else None]]

    def prepare(self, place, *, quick):  # noqa: ARG002  # as every study
        if place.data is not None and not place.data.exists():
            raise InputError(f"--data must exist; got {place.data}.")
        return self._run_together if any("fails" in each for each in self.settings) else one_by_one(self._run)

    def _run_together(self, cells, report):
        for place, settings in reversed(list(enumerate(cells))):
            if settings["fails"] == "alone":
                report(place, RuntimeError("not finite"))
            elif settings["fails"] == "with all":
                raise RuntimeError("out of memory")
            else:
                report(place, self._run(settings))

    def _run(self, settings):
        with self.log.open("a", encoding="utf-8") as stream:
            stream.write(f"{settings['seed']}\n")
        time.sleep(settings.get("wait", 0))
        if settings.get("does") == "raise":
            raise RuntimeError("out of memory")
        if (
            settings.get("does") == "die"
            and self.log.read_text(encoding="utf-8").split().count(str(settings["seed"])) == 1
        ):
            os._exit(9)
        return {"square": float("nan") if settings.get("does") == "nan" else settings["seed"] ** 2}

    def numbers(self, records):
        return {str(each["cell"]["seed"]): Number(each["numbers"]["square"], 0, 1, "") for each in records}

    def page(self, records, *, images):  # noqa: ARG002  # as every study
        return f"{len(records)} records"


def place(data=None):
    return Place(data, "cpu", "a commit")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    study = CountingStudy(folder / "begun", [{"seed": seed, "wait": 0.1} for seed in range(int(sys.argv[2]))])
    run_cells(study, Records(folder / "records.jsonl"), place(), workers=2)

"""A study for the tests of the runner: its cells write down when they begin, and wait, fail or die if asked to.

Run as a program it runs itself: ``python counting_study.py FOLDER CELLS``; the last cell ends when FOLDER/held is gone.
"""

import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from experiments.records import Records  # noqa: E402
from experiments.runner import Place, Study, one_by_one, run_cells  # noqa: E402

from calibrant.errors import InputError  # noqa: E402


class Counting:
    def __init__(self, log, settings):
        self.log, self.settings = Path(log), settings

    def study(self):
        return Study(
            name="counting",
            title="A study that counts",
            folder=ROOT,
            grid=lambda: self.settings,
            quick_grid=lambda: self.settings[:2],
            prepare=self.prepare,
            numbers=lambda records: {str(each["cell"]["seed"]): each["numbers"]["square"] for each in records},
            page=lambda records, *, images: f"{len(records)} records, {images}",
        )

    def prepare(self, place, _cells, *, quick):  # noqa: ARG002  # as every study
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
        while settings.get("held") and Path(settings["held"]).exists():
            time.sleep(0.01)
        if settings.get("does") == "raise":
            raise RuntimeError("out of memory")
        if (
            settings.get("does") == "die"
            and self.log.read_text(encoding="utf-8").split().count(str(settings["seed"])) == 1
        ):
            os._exit(9)
        return {"square": float("nan") if settings.get("does") == "nan" else settings["seed"] ** 2}


def place(data=None):
    return Place(data, "cpu", "a commit")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    cells = [{"seed": seed, "wait": 0.1, "held": ""} for seed in range(int(sys.argv[2]))]
    counting = Counting(folder / "begun", [*cells[:-1], cells[-1] | {"held": str(folder / "held")}])
    run_cells(counting.study(), Records(folder / "records.jsonl"), place(), workers=2)

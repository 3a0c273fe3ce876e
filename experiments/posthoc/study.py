"""Every calibrator on one public network's CIFAR-100 predictions: which map is best, and how many rows does it need?

    python experiments/posthoc/study.py densenet-bc-100-cifar-100-probs.npz

The file holds ``predictions`` (10,000 x 100 probabilities on the test set) and ``ground_truth``. For each of five seeds
the rows are dealt into halves: one calibrates, the other judges (as ``calibrant compare`` does). Then ever fewer of the
calibrating rows are used. Every finished cell is a line of ``records.jsonl``; what is there is not done again. The page
``docs/comparison.md`` is written from the records. With ``board`` or ``size`` after the file only that half is done.
"""

import json
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from page import write_page

from calibrant import catalogue
from calibrant.calibrators import Chain, HistogramBinning, IsotonicRegression, TemperatureScaling
from calibrant.calibrators.base import Calibrator
from calibrant.comparison import compare
from calibrant.errors import CalibrantError, CalibrantWarning
from calibrant.evidence import Difference
from calibrant.metrics import nll
from calibrant.predictions import Predictions

FOLDER = Path(__file__).parent
RECORDS = FOLDER / "records.jsonl"
SEEDS = range(5)
SIZES = (100, 200, 500, 1000, 2000, 5000)
# Left out of the question of rows: slow, or the same maps fitted by a paper's protocol.
NOT_BY_SIZE = {"auto", "chain", "ms_odir", "dirichlet_odir"}


def halves(file: Path, seed: int) -> tuple[Predictions, Predictions]:
    """Calibration and test rows."""
    with np.load(file, allow_pickle=False) as stored:
        rows = Predictions.from_probs(stored["predictions"], stored["ground_truth"])
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    return rows[order[: len(rows) // 2]], rows[order[len(rows) // 2 :]]


def methods() -> list[Calibrator]:
    """All with their usual options, the papers' criteria for the temperature, and two chains."""
    usual = [method for name, method in catalogue.calibrators.items() if name != "chain"]
    criteria = ("focal", "ece-neural-clamping", "ece-overconfidence", "ece-meta-regularization")
    chains = (Chain((TemperatureScaling(), IsotonicRegression())), Chain((TemperatureScaling(), HistogramBinning())))
    return [*usual, *(TemperatureScaling(criterion=each) for each in criteria), *chains]


def board_records(file: Path, seed: int) -> Iterator[dict[str, object]]:
    """One record a method: its numbers on the test half."""
    calibration, test = halves(file, seed)
    board = compare(calibration, test, methods(), seed=seed, progress=say)
    for entry in board.methods:
        yield {
            "kind": "board",
            "seed": seed,
            "method": entry.name,
            "failure": entry.failure,
            "notes": list(entry.notes),
            "seconds": entry.seconds,
            "changed": entry.changed,
            "values": {name: round(each.value, 6) for name, each in entry.metrics.items()},
            # Difference, its interval and its corrected p-value.
            "against": {
                rival: {name: _numbers(changes[name]) for name in ("nll", "ece", "auroc")}
                for rival, changes in entry.differences.items()
            },
        }


def _numbers(change: Difference) -> list[float]:
    return [round(each, 6) for each in (change.value, change.low, change.high, change.corrected_p)]


def size_records(file: Path, seed: int, size: int) -> Iterator[dict[str, object]]:
    """One record a method: its log-loss on the test half when fitted on so many rows."""
    calibration, test = halves(file, seed)
    before = nll(test)
    for name, method in catalogue.calibrators.items():
        if name in NOT_BY_SIZE:
            continue
        say(f"{size} rows: {name}", seed, len(SEEDS))
        record: dict[str, object] = {"kind": "size", "seed": seed, "size": size, "method": name}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CalibrantWarning)
                record["gain"] = round(before - nll(method.fit(calibration[:size]).transform(test)), 6)
        except CalibrantError as error:
            record["failure"] = str(error)
        yield record


def say(text: str, done: int, of: int) -> None:
    """Where we are, for the person who waits."""
    print(f"\r{time.strftime('%H:%M:%S')}  {done}/{of}  {text:60}", end="", file=sys.stderr, flush=True)


def known() -> list[dict[str, object]]:
    """The records there are."""
    return [json.loads(line) for line in RECORDS.read_text().splitlines()] if RECORDS.exists() else []


def main(file: Path, kinds: tuple[str, ...]) -> None:
    """Do what is missing, then write the page."""
    done = {(record["kind"], record["seed"], record.get("size")) for record in known()}
    tasks = [("board", seed, None) for seed in SEEDS]
    tasks += [("size", seed, size) for seed in SEEDS for size in SIZES]
    for kind, seed, size in tasks:
        if (kind, seed, size) in done or kind not in kinds:
            continue
        records = list(board_records(file, seed) if size is None else size_records(file, seed, size))
        # One write a task: a kill leaves whole tasks only.
        with RECORDS.open("a", encoding="utf-8") as stream:
            stream.write("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    write_page(known())


if __name__ == "__main__":
    main(Path(sys.argv[1]), tuple(sys.argv[2:]) or ("board", "size"))

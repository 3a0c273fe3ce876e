"""Train the papers' networks on CIFAR-100 with five losses each, side by side on one accelerator, and judge them.

    python experiments/training/study.py train DATA OUT --network resnet110
    python experiments/training/study.py judge OUT --network resnet110

The first goes on where it stopped, if it was stopped. The second writes a line for each run into records.jsonl, and
docs/training-study.md from them.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from page import write_page

from calibrant import catalogue
from calibrant.calibrators import HistogramBinning, StructuredVectorScaling, TemperatureScaling
from calibrant.datasets import CIFAR100
from calibrant.evidence import difference, estimate
from calibrant.files import load
from calibrant.metrics import AUROC, ECE, NLL, Accuracy, Brier
from calibrant.predictions import Predictions
from calibrant.training import RECIPES, EpochRecord, Recipe, Run, Speed, train_runs
from calibrant.training.folder import RunFolder

RECORDS = Path(__file__).parent / "records.jsonl"
SEED = 0
METHODS = (TemperatureScaling(), StructuredVectorScaling(), HistogramBinning())
MEASURED = (Accuracy(), NLL(), ECE(), Brier(), AUROC())
# Losses, and the alpha of mixup, by the name of the run's folder.
SETS: dict[str, tuple[Recipe, dict[str, tuple[str, float]]]] = {
    "resnet110": (
        Recipe(epochs=120, batch_size=512, learning_rate=0.4, warmup=4, nesterov=True, weight_decay=5e-4),
        {
            "ce": ("ce", 0.0),
            "focal": ("focal(gamma=3)", 0.0),
            "label_smoothing": ("label_smoothing(smoothing=0.05)", 0.0),
            "inverse_focal": ("inverse_focal(gamma=2)", 0.0),
            "mixup": ("ce", 0.2),
        },
    ),
    # The settings of "Do Not Be Afraid of Overconfidence", with its coefficients for CIFAR-100.
    "resnet32": (
        RECIPES["overconfidence"],
        {
            "ce": ("ce", 0.0),
            "focal": ("focal(gamma=5)", 0.0),
            "label_smoothing": ("label_smoothing(smoothing=0.09)", 0.0),
            "inverse_focal": ("inverse_focal(gamma=2)", 0.0),
            "mixup": ("ce", 0.2),
        },
    ),
}


def train(data: Path, out: Path, network: str, epochs: int | None) -> None:
    """Train one network with each of its losses; a line an epoch says how long it took."""
    torch.backends.cudnn.benchmark = True
    recipe, losses = SETS[network]
    recipe = recipe.changed({} if epochs is None else {"epochs": epochs}).changed({"seed": SEED})
    runs = [
        Run(out / f"{network}-{name}", network, catalogue.losses.parse(text), recipe.changed({"mixup": mixup}))
        for name, (text, mixup) in losses.items()
    ]
    start = time.perf_counter()

    def told(run: Run, record: EpochRecord) -> None:
        test = record.held_out.get("test")
        words = f"test accuracy {test.accuracy:.4f} ece {test.ece:.4f}" if test else ""
        since = time.perf_counter() - start
        print(f"{since:7.1f} s {run.folder.name} epoch {record.epoch} loss {record.loss:.4f} {words}", flush=True)

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    speed = Speed(judge_every=10, checkpoint_seconds=60)
    train_runs(runs, CIFAR100().read(data), device=device, speed=speed, after_epoch=told)


def judge(out: Path, network: str) -> None:
    """Write a record for each run of a network, in place of older ones of the same network."""
    records = [record for record in _records() if record["network"] != network]
    compared: dict[str, Predictions] = {}
    for name in SETS[network][1]:
        folder = RunFolder(out / f"{network}-{name}")
        calibration, test = (load(folder.path / f"{part}.npz") for part in ("calibration", "test"))
        assert isinstance(calibration, Predictions)
        assert isinstance(test, Predictions)
        document = json.loads((folder.path / "settings.json").read_text(encoding="utf-8"))
        fitted = {method.name: method.fit(calibration) for method in METHODS}
        mended = {name: map_.transform(test) for name, map_ in fitted.items()}
        compared[name] = mended["temperature"]
        records.append(
            {
                "network": network,
                "run": name,
                "loss": document["settings"]["loss"],
                "recipe": document["settings"]["recipe"],
                "split": document["settings"]["split"],
                "ran_on": document["ran_on"],
                "seconds": round(sum(epoch.seconds for epoch in folder.records()), 1),
                "none": _estimates(test),
                **{name: _estimates(predictions) for name, predictions in mended.items()},
                "T": round(float(fitted["temperature"].temperature), 4),
                "to_ce": _differences(compared["ce"], mended["temperature"]),
            }
        )
    RECORDS.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    write_page(records)


def _estimates(test: Predictions) -> dict[str, list[float]]:
    """Each number with the ends of its interval."""
    found = estimate(test, MEASURED, seed=SEED)
    return {name: [round(value, 6) for value in (each.value, each.low, each.high)] for name, each in found.items()}


def _differences(ce: Predictions, other: Predictions) -> dict[str, list[float]]:
    """To the cross-entropy, both after a temperature: the difference, the ends of its interval, and p."""
    found = difference(ce, other, MEASURED, resamples=2000, seed=SEED)
    return {
        name: [round(value, 6) for value in (each.value, each.low, each.high, each.p)] for name, each in found.items()
    }


def _records() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()] if RECORDS.exists() else []


def main() -> None:
    """Read the arguments and do what they say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    training.add_argument("data", type=Path)
    judging = commands.add_parser("judge")
    for command in (training, judging):
        command.add_argument("out", type=Path)
        command.add_argument("--network", choices=sorted(SETS), required=True)
    training.add_argument("--epochs", type=int)
    given = parser.parse_args()
    if given.command == "train":
        train(given.data, given.out, given.network, given.epochs)
    else:
        judge(given.out, given.network)


if __name__ == "__main__":
    sys.exit(main())

"""Train the papers' networks on CIFAR-100 with five losses each, side by side on one accelerator, and judge them.

    python experiments/training/study.py train DATA OUT --network resnet110 --epochs 140
    python experiments/training/study.py judge OUT --network resnet110

The first goes on where it stopped, if it was stopped. The second writes a line for each run into records.jsonl, which
``page.py`` makes docs/training-study.md of.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import torch

from calibrant.calibrators import HistogramBinning, StructuredVectorScaling, TemperatureScaling
from calibrant.catalogue import find_loss
from calibrant.datasets import CIFAR100
from calibrant.metrics import accuracy, ace, auroc, brier, ece, nll, sce
from calibrant.predictions import Predictions
from calibrant.sources import load
from calibrant.training import RECIPES, EpochRecord, Recipe, Run, Speed, train_runs
from calibrant.training.folder import RunFolder

HERE = Path(__file__).parent
SEED = 0
# Losses, and the alpha of mixup, by the name of the run's folder.
SETS: dict[str, tuple[Recipe, dict[str, tuple[str, float]]]] = {
    "resnet110": (
        Recipe(epochs=140, batch_size=512, learning_rate=0.4, warmup=5, nesterov=True, weight_decay=5e-4),
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
        Run(out / f"{network}-{name}", network, find_loss(text), recipe.changed({"mixup": mixup}))
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
    """Write a record for each run of a network, in place of older ones of the same run."""
    kept = [record for record in _records() if record["network"] != network]
    for name in SETS[network][1]:
        folder = RunFolder(out / f"{network}-{name}")
        calibration, test = (load(folder.path / f"{part}.npz") for part in ("calibration", "test"))
        assert isinstance(calibration, Predictions)
        assert isinstance(test, Predictions)
        document = json.loads((folder.path / "settings.json").read_text(encoding="utf-8"))
        record = {
            "network": network,
            "run": name,
            "loss": folder.settings().loss,
            "recipe": document["settings"]["recipe"],
            "ran_on": document["ran_on"],
            "seconds": sum(epoch.seconds for epoch in folder.records()),
            "before": _numbers(test),
        }
        for method in (TemperatureScaling(), StructuredVectorScaling(), HistogramBinning()):
            fitted = method.fit(calibration)
            record[method.name] = _numbers(fitted.transform(test))
            if method.name == "temperature":
                record["T"] = float(fitted.temperature)
        kept.append(record)
    (HERE / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in kept), encoding="utf-8")


def _numbers(test: Predictions) -> dict[str, float]:
    measured = (accuracy, nll, ece, ace, sce, brier, auroc)
    return {metric.__name__: round(float(metric(test)), 6) for metric in measured}


def _records() -> list[dict[str, object]]:
    path = HERE / "records.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


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

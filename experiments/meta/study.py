"""Thirteen ways to train ResNet-18 on CIFAR-100, three seeds each, side by side on one accelerator; then diagnosed.

    python experiments/meta/study.py train DATA OUT [--seed 0 --seed 1 --seed 2] [--only NAME] [--epochs 60]
    python experiments/meta/study.py diagnose OUT

The division (8:1:1), the losses and their options are those of "Towards Unbiased Calibration using Meta-Regularization"
(Table 1); the schedule is shorter. The first goes on where it stopped, if it was stopped. The second writes a line for
each run into records.jsonl, what ``calibrant diagnose`` finds into diagnosis.json, and docs/meta-study.md from both.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from page import write_page

from calibrant.calibrators import TemperatureScaling
from calibrant.catalogue import find_any_loss
from calibrant.datasets import CIFAR100
from calibrant.diagnosis import DiagnosedRun, diagnose, read_runs
from calibrant.metrics import ACE, AUROC, ECE, MCE, NLL, SCE, Accuracy
from calibrant.predictions import Predictions
from calibrant.training import RECIPES, EpochRecord, Run, Speed, train_runs

HERE = Path(__file__).parent
MEASURED = (Accuracy(), NLL(), ECE(), MCE(), ACE(), SCE(), AUROC())
NETWORK, SPLIT, EPOCHS, BATCH = "resnet18", "8:1:1", 60, 256
# The loss and the alpha of mixup, by the name of the run's folder.
WAYS = {
    "ce": ("ce", 0.0),
    "focal": ("focal(gamma=1)", 0.0),
    "flsd": ("flsd", 0.0),
    "ls-05": ("label_smoothing(smoothing=0.05)", 0.0),
    "ls-10": ("label_smoothing(smoothing=0.1)", 0.0),
    "mixup": ("ce", 1.0),
    "mmce": ("mmce", 0.0),
    "inverse-focal": ("inverse_focal(gamma=2)", 0.0),
    "ce-dece": ("meta_l2(objective=dece)", 0.0),
    "ce-sece": ("meta_l2(objective=sece)", 0.0),
    "flg-dece": ("meta_focal(objective=dece)", 0.0),
    "flg-sece": ("meta_focal(objective=sece)", 0.0),
    "flg-sece-alone": ("meta_focal(objective=sece,cross_entropy=0)", 0.0),
}


def train(data: Path, out: Path, seeds: list[int], only: list[str], epochs: int) -> None:
    """Train all that is missing; a line an epoch says how long it took."""
    torch.backends.cudnn.benchmark = True
    recipe = RECIPES["meta-regularization"].changed({"epochs": epochs, "batch_size": BATCH})
    runs = [
        Run(out / f"{name}-{seed}", NETWORK, find_any_loss(text), recipe.changed({"seed": seed, "mixup": mixup}))
        for seed in seeds
        for name, (text, mixup) in WAYS.items()
        if not only or name in only
    ]
    start = time.perf_counter()

    def told(run: Run, record: EpochRecord) -> None:
        test = record.held_out.get("test")
        words = f"test accuracy {test.accuracy:.4f} ece {test.ece:.4f} " if test else ""
        since = time.perf_counter() - start
        print(f"{since:7.1f} s {run.folder.name} {record.epoch} {words}{dict(record.learned)}", flush=True)

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    speed = Speed(judge_every=10, checkpoint_seconds=60)
    train_runs(runs, CIFAR100().read(data), split=SPLIT, device=device, speed=speed, after_epoch=told)


def judge(out: Path) -> None:
    """Measure every finished run, diagnose all together, and write what is found."""
    runs = read_runs(sorted(path.parent for path in out.glob("*/weights.safetensors")))
    records = [_measured(run) for run in runs]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (HERE / "records.jsonl").write_text(lines, encoding="utf-8")
    found = diagnose(runs, progress=lambda what, done, of: print(what, done, of, flush=True)).as_dict()
    (HERE / "diagnosis.json").write_text(json.dumps(found) + "\n", encoding="utf-8")
    write_page(records, found)


def _measured(run: DiagnosedRun) -> dict[str, Any]:
    test = run.test
    name, _, seed = run.path.name.rpartition("-")
    fitted = TemperatureScaling().fit(run.calibration)
    return {
        "run": name,
        "seed": int(seed),
        "loss": run.settings.loss,
        "mixup": run.settings.recipe.mixup,
        "epochs": run.settings.recipe.epochs,
        "batch_size": run.settings.recipe.batch_size,
        "seconds": round(sum(record.seconds for record in run.records), 1),
        "none": _numbers(test),
        "ts": _numbers(fitted.transform(test)),
        "T": float(fitted.temperature),
        "learned": [dict(record.learned, epoch=record.epoch) for record in run.records if record.learned],
    }


def _numbers(predictions: Predictions) -> dict[str, float]:
    return {metric.name: round(float(metric(predictions)), 6) for metric in MEASURED}


def main() -> None:
    """Read the arguments and do what they say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    training.add_argument("data", type=Path)
    training.add_argument("out", type=Path)
    training.add_argument("--seed", type=int, action="append")
    training.add_argument("--only", action="append", choices=WAYS, default=[])
    training.add_argument("--epochs", type=int, default=EPOCHS)
    commands.add_parser("diagnose").add_argument("out", type=Path)
    given = parser.parse_args()
    if given.command == "train":
        train(given.data, given.out, given.seed or [0, 1, 2], given.only, given.epochs)
    else:
        judge(given.out)


if __name__ == "__main__":
    sys.exit(main())

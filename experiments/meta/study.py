"""Thirteen ways to train ResNet-18 on CIFAR-100, three seeds each, side by side on one accelerator; then judged.

    python experiments/meta/study.py train DATA OUT [--seed 0 --seed 1 --seed 2] [--only NAME] [--epochs 40]
    python experiments/meta/study.py judge OUT
    python experiments/meta/study.py shift DATA OUT
    python experiments/meta/study.py confidence DATA OUT

The division (8:1:1), the losses and their options are those of "Towards Unbiased Calibration using Meta-Regularization"
(Table 1); the schedule is shorter. The first goes on where it stopped, if it was stopped. The others read its folders,
``judge`` without their weights too; each replaces its own lines in records.jsonl, draws its figures, and writes
docs/meta-study.md anew. ``shift`` and ``confidence`` want an accelerator.
"""

import argparse
import sys
import time
from pathlib import Path

import torch
from confidences import confidence_lines
from judged import diagnosed, figures_of, run_lines, way_lines
from records import keep
from shifted import panel_of, shift_figure, shift_lines

from calibrant import catalogue
from calibrant.datasets import CIFAR100
from calibrant.diagnosis import read_runs
from calibrant.training import RECIPES, EpochRecord, Run, Speed, train_runs

NETWORK, SPLIT, EPOCHS, BATCH = "resnet18", "8:1:1", 40, 256
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
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
        Run(
            out / f"{name}-{seed}",
            NETWORK,
            catalogue.parse_any_loss(text),
            recipe.changed({"seed": seed, "mixup": mixup}),
        )
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

    speed = Speed(judge_every=10, checkpoint_seconds=60)
    train_runs(runs, CIFAR100().read(data), split=SPLIT, device=DEVICE, speed=speed, after_epoch=told)


def main() -> None:
    """Read the arguments and do what they say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command in ("train", "judge", "shift", "confidence"):
        arguments = commands.add_parser(command)
        if command != "judge":
            arguments.add_argument("data", type=Path)
        arguments.add_argument("out", type=Path)
        if command == "train":
            arguments.add_argument("--seed", type=int, action="append")
            arguments.add_argument("--only", action="append", choices=WAYS, default=[])
            arguments.add_argument("--epochs", type=int, default=EPOCHS)
    given = parser.parse_args()
    if given.command == "train":
        train(given.data, given.out, given.seed or [0, 1, 2], given.only, given.epochs)
        return
    # In the order of the page, which is also that of the tables and figures.
    runs = read_runs([path for way in WAYS for path in sorted(given.out.glob(f"{way}-[0-9]"))])
    if given.command == "judge":
        keep(run_lines(runs), about="run")
        found = diagnosed(runs)
        keep(way_lines(found), about="way")
        figures_of(found)
    elif given.command == "shift":
        panel, ways = panel_of(runs, CIFAR100().read(given.data), DEVICE)
        keep(shift_lines(panel, ways), about="shift")
        shift_figure(panel)
    else:
        plain = [run for run in runs if run.path.name.startswith("ce-")]
        keep(
            confidence_lines([run.path for run in plain], CIFAR100().read(given.data), SPLIT, DEVICE),
            about="confidence",
        )


if __name__ == "__main__":
    sys.exit(main())

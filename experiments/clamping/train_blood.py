"""Train ResNet-32 on the blood cells, five seeds side by side, for the tables of Neural Clamping.

python experiments/clamping/train_blood.py bloodcells_28.npz OUT
"""

import sys
from pathlib import Path

import torch

from calibrant.datasets import BloodMNIST
from calibrant.losses import CrossEntropyLoss
from calibrant.training import RECIPES, EpochRecord, Run, Speed, train_runs

SEEDS = range(5)
EPOCHS = 60


def main(data: Path, out: Path) -> None:
    """Train them; a line for every tenth epoch of each."""
    recipe = RECIPES["default"].changed({"epochs": EPOCHS})
    runs = [
        Run(out / f"blood-{seed}", "resnet32", CrossEntropyLoss(), recipe.changed({"seed": seed})) for seed in SEEDS
    ]

    def told(run: Run, record: EpochRecord) -> None:
        if test := record.held_out.get("test"):
            print(f"{run.folder.name} epoch {record.epoch} accuracy {test.accuracy:.4f} ece {test.ece:.4f}", flush=True)

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_runs(
        runs, BloodMNIST().read(data), split="official", device=device, speed=Speed(judge_every=10), after_epoch=told
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

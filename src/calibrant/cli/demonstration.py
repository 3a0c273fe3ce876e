"""What ``calibrant demo`` does once torch may be loaded."""

from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress

from calibrant.atomic import atomic_binary, atomic_path, save_tensors
from calibrant.cli.clamp_case import ClampRequest
from calibrant.cli.clamp_folder import ClampFolder
from calibrant.cli.clamp_method import MethodText
from calibrant.cli.clamping import run_clamping
from calibrant.cli.comparison import ComparisonRequest, run_comparison
from calibrant.cli.evaluation import Request, run_evaluation
from calibrant.cli.writing import Reports
from calibrant.datasets import Examples, load_digits, load_resnet110
from calibrant.files import save
from calibrant.losses import CrossEntropyLoss
from calibrant.models import DigitsCNN
from calibrant.predictions import Predictions
from calibrant.training import Recipe, Session, TrainingData, predict, train_together

__all__ = ["clamp_digits", "mend_resnet110", "train_and_mend_digits"]

# So few that the network learns them by heart and becomes visibly overconfident.
TRAINING_IMAGES = 100
CALIBRATION_IMAGES = 500
EPOCHS = 100
CLASSES = tuple("0123456789")
# A few instead of the whole path, for the sake of time.
STRENGTHS = "1,0.1,0.01"


def train_and_mend_digits(out: Path, seed: int) -> None:
    """Train a small network on few digits, judge it, and mend it."""
    console = Console()
    digits = load_digits()
    order = torch.randperm(len(digits.images), generator=torch.Generator().manual_seed(seed))
    sizes = [TRAINING_IMAGES, CALIBRATION_IMAGES, len(order) - TRAINING_IMAGES - CALIBRATION_IMAGES]
    training, calibration, test = order.split(sizes)
    console.print(f"Training a small network on {len(training)} of {len(order):,} hand-written digits …")
    torch.manual_seed(seed)
    model = DigitsCNN()
    data = TrainingData(Examples(digits.images[training], digits.labels[training]), {}, CLASSES)
    recipe = Recipe(epochs=EPOCHS, batch_size=32, learning_rate=0.05, weight_decay=0.0, seed=seed)
    session = Session(model, CrossEntropyLoss(), data.on(torch.device("cpu")), recipe)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("training", total=EPOCHS)
        train_together([session], after_epoch=lambda _session, _record: progress.advance(task))
    out.mkdir(parents=True, exist_ok=True)
    for part, rows in (("calibration", calibration), ("test", test)):
        images, labels = digits.images[rows], digits.labels[rows]
        logits = predict(model, images)
        save(Predictions.from_logits(logits, labels, class_names=CLASSES), out / f"digits-{part}.npz")
        with atomic_binary(out / f"digits-{part}-images.npz") as file:
            np.savez_compressed(file, inputs=images.numpy(), labels=labels.numpy())
    with atomic_path(out / "digits-weights.safetensors") as file:
        save_tensors({name: values.contiguous() for name, values in model.state_dict().items()}, file)
    judged = out / "digits-test.npz"
    console.print(f"Judging it: calibrant evaluate {judged}", style="bold")
    run_evaluation(Request(judged, reports=Reports(out / "report.json", out / "report.md", out), seed=seed))
    _mend(out / "digits-calibration.npz", judged, out, seed)


def clamp_digits(out: Path, seed: int) -> None:
    """Calibrate the same small network at both ends."""
    calibration, test = (out / f"digits-{part}-images.npz" for part in ("calibration", "test"))
    weights, folder = out / "digits-weights.safetensors", out / "clamped"
    Console().print(
        "\nThe digits again, at both ends of the network: calibrant clamp --model calibrant.models:DigitsCNN "
        f"--weights {weights} --data {calibration} --test {test} --strength {STRENGTHS} -o {folder}",
        style="bold",
    )
    ClampFolder(folder).forget()  # of another seed, or another version
    run_clamping(
        ClampRequest(
            "calibrant.models:DigitsCNN",
            calibration,
            test,
            folder,
            weights=weights,
            method=MethodText(strength=STRENGTHS, seed=seed),
            device="cpu",
            reports=Reports(figures=folder / "figures"),
        )
    )


def mend_resnet110(out: Path, seed: int) -> None:
    """Mend a larger network, whose predictions come with the package."""
    console = Console()
    console.print(
        "\nA larger network: a ResNet-110 on CIFAR-100, trained by calibrant train on an accelerator. Its predictions "
        "come with the package."
    )
    out.mkdir(parents=True, exist_ok=True)
    bundled = load_resnet110()
    for part in ("calibration", "test"):
        save(getattr(bundled, part), out / f"{part}.npz")
    _mend(out / "calibration.npz", out / "test.npz", out, seed)


def _mend(calibration: Path, test: Path, out: Path, seed: int) -> None:
    Console().print(f"\nMending it: calibrant compare {calibration} {test}", style="bold")
    reports = Reports(out / "leaderboard.json", out / "leaderboard.md", out)
    run_comparison(ComparisonRequest(calibration, test, reports=reports, seed=seed))

"""``calibrant demo``: evaluation, comparison and clamping of two networks, with everything written to a folder."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from calibrant.cli.clamp import ClampFolder, Method, clamp
from calibrant.cli.compare import compare
from calibrant.cli.evaluate import evaluate
from calibrant.cli.options import ReportOptions, Seed, option

if TYPE_CHECKING:
    from rich.console import Console

    from calibrant.report import Page

EXAMPLES = """\
calibrant demo
calibrant demo --out /tmp/demo --seed 1"""

_STRENGTHS = "1,0.1,0.01"  # a few instead of the whole path, to save time


def demo(
    out: Annotated[Path, option("FOLDER", "Folder for predictions, figures and reports.")] = Path("demo"),
    seed: Seed = 0,
) -> None:
    """Show evaluation, comparison and clamping on two networks.

    Trains a small network on digits, evaluates it and compares calibration methods; does the same for the stored
    predictions of a ResNet-110 on CIFAR-100; then clamps the small network. Takes about a minute.
    """
    from calibrant.atomic import atomic_text
    from calibrant.cli.output import standard_output
    from calibrant.report import to_html_of_several

    console = standard_output()
    _save_digits(console, out, seed)
    digits = _shown(console, out, out / "digits-calibration.npz", out / "digits-test.npz", seed)
    resnet110 = out / "resnet110"
    _save_resnet110(console, resnet110)
    larger = _shown(console, resnet110, resnet110 / "calibration.npz", resnet110 / "test.npz", seed)
    digits["Neural Clamping"] = _clamped(console, out, seed)
    pages = {"ResNet-110 on CIFAR-100": larger, "A small network on digits": digits}
    with atomic_text(out / "report.html") as stream:
        stream.write(to_html_of_several("Calibrant demo", pages))
    console.print(f"\nOpen in a browser: {out / 'report.html'}", style="bold")
    files = (resnet110 / "test.npz", resnet110 / "calibration.npz", out / "digits-test.npz", out / "clamped")
    console.print(f"Or the same in the studio: calibrant serve {' '.join(map(str, files))} --open", style="bold")


def _save_digits(console: "Console", out: Path, seed: int) -> None:
    """Train a small network on few digits; save its weights, and images and predictions of the others."""
    import numpy as np
    from rich.progress import Progress

    from calibrant.atomic import atomic_binary, atomic_path, save_tensors
    from calibrant.files import save
    from calibrant.predictions import Predictions
    from calibrant.training import DIGITS, DIGITS_EPOCHS, predict, train_on_digits

    console.print("Training a small network on 100 of 1,797 hand-written digits …")
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("training", total=DIGITS_EPOCHS)
        model, *parts = train_on_digits(seed, after_epoch=lambda: progress.advance(task))
    out.mkdir(parents=True, exist_ok=True)
    for part, (images, labels) in zip(("calibration", "test"), parts, strict=True):
        save(Predictions.from_logits(predict(model, images), labels, class_names=DIGITS), out / f"digits-{part}.npz")
        with atomic_binary(out / f"digits-{part}-images.npz") as file:
            np.savez_compressed(file, inputs=images.numpy(), labels=labels.numpy())
    with atomic_path(out / "digits-weights.safetensors") as file:
        save_tensors({name: values.contiguous() for name, values in model.state_dict().items()}, file)


def _save_resnet110(console: "Console", out: Path) -> None:
    """Save the predictions of a larger network, which come with the package."""
    from calibrant.datasets import load_resnet110
    from calibrant.files import save

    text = "a ResNet-110 on CIFAR-100, trained by calibrant train on an accelerator. The package has its predictions."
    console.print(f"\nA larger network: {text}")
    out.mkdir(parents=True, exist_ok=True)
    for part, predictions in load_resnet110()._asdict().items():
        save(predictions, out / f"{part}.npz")


def _shown(console: "Console", out: Path, calibration: Path, test: Path, seed: int) -> "dict[str, Page]":
    """Evaluate the test predictions, and compare calibration methods on them."""
    command = f"calibrant evaluate {test}"
    console.print(f"Evaluate it: {command}", style="bold")
    reports = ReportOptions(out / "report.json", out / "report.md", figures=out)
    evaluated = _with_origin(evaluate([test], seed=seed, reports=reports), command, test)
    command = f"calibrant compare {calibration} {test}"
    console.print(f"\nCompare calibration methods: {command}", style="bold")
    reports = ReportOptions(out / "comparison.json", out / "comparison.md", figures=out)
    compared = _with_origin(compare(calibration, test, seed=seed, reports=reports), command, calibration, test)
    return {"evaluation": evaluated, "methods": compared}


def _clamped(console: "Console", out: Path, seed: int) -> "Page":
    """Clamp the small network."""
    images, test_images = (out / f"digits-{part}-images.npz" for part in ("calibration", "test"))
    weights, folder = out / "digits-weights.safetensors", out / "clamped"
    command = (
        f"calibrant clamp --model calibrant.models:DigitsCNN --weights {weights} --data {images} --test {test_images} "
        f"--strength {_STRENGTHS} -o {folder}"
    )
    console.print(f"\nThe digits again, calibrated inside the network: {command}", style="bold")
    ClampFolder(folder).delete_results()  # the fit of another seed, or another version
    chosen, reports = Method(strength=_STRENGTHS), ReportOptions(figures=folder / "figures")
    network = ("calibrant.models:DigitsCNN", folder, images, test_images, weights)
    page = clamp(*network, chosen=chosen, seed=seed, device="cpu", reports=reports)
    return _with_origin(page, command, images, test_images, weights)


def _with_origin(page: "Page", command: str, *files: Path) -> "Page":
    from calibrant.report.page import Origin

    return replace(page, origin=Origin.of(command, files))

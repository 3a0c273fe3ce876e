"""Draws every figure of the library for the gallery of the site, by the commands that the gallery shows.

``make site`` runs it in the package's environment, on data that come with the package. Figures are left in a folder.
"""

import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

RESNET110 = "demo/resnet110/calibration.npz demo/resnet110/test.npz"
FOLDER = "images/gallery"  # of the figures in the site
_COLUMNS = 80  # of a command
_SMALLER = 2  # figures are saved for print; this many of their pixels make one of the page


class Figure(NamedTuple):
    """A figure that a command draws."""

    file: str  # where the command leaves it
    function: str  # draws it, in calibrant.plots or calibrant.plots.diagnosis
    shows: str

    @property
    def path(self) -> str:
        """Where it lies in the site."""
        return f"{FOLDER}/{Path(self.file).parent.name}-{Path(self.file).name}"


class Section(NamedTuple):
    """Figures of one command; those of later sections may read what it wrote."""

    title: str
    page: str  # explains them
    command: str  # of a shell, or Python
    figures: tuple[Figure, ...]


SECTIONS = (
    Section(
        "Clamping",
        "clamping.md",
        "calibrant demo",
        (
            Figure(
                "demo/clamped/figures/delta.png",
                "plot_delta",
                "What Neural Clamping adds to every image, and images before and after.",
            ),
        ),
    ),
    Section(
        "Evaluation",
        "tutorial.md",
        "calibrant evaluate demo/resnet110/test.npz --figures evaluation",
        (
            Figure(
                "evaluation/reliability.png",
                "plot_reliability",
                "How often predictions are correct at each confidence.",
            ),
            Figure("evaluation/density.png", "plot_density", "The confidence of correct and of wrong predictions."),
            Figure(
                "evaluation/risk_coverage.png",
                "plot_risk_coverage",
                "The error rate if only the most confident samples are answered.",
            ),
            Figure(
                "evaluation/bins_sweep.png",
                "plot_bins_sweep",
                "The ECE over the number of bins, above that of a calibrated model.",
            ),
        ),
    ),
    Section(
        "Risks",
        "files.md",
        """\
import torch

from calibrant import PlattScaling, Predictions
from calibrant.plots import plot_decisions, plot_risk, save_figure

generator = torch.Generator().manual_seed(0)
log_odds = 1.5 * torch.randn(6000, generator=generator) - 2
ill = torch.rand(6000, generator=generator) < (0.8 * log_odds - 0.8).sigmoid()
patients = Predictions.from_binary_logits(log_odds, ill.long(), class_names=["well", "ill"])
calibration, test = patients[:2000], patients[2000:]
calibrated = PlattScaling().fit(calibration).transform(test)
save_figure(plot_risk(test, other=calibrated).figure, "risk/risk.png")
save_figure(plot_decisions(test, other=calibrated).figure, "risk/decisions.png")
""",
        (
            Figure("risk/risk.png", "plot_risk", "How often the positive class of two occurs at each probability."),
            Figure("risk/decisions.png", "plot_decisions", "The net benefit of acting from each probability."),
        ),
    ),
    Section(
        "Classes and slices",
        "files.md",
        "calibrant evaluate demo/digits-test.npz --by labels --figures slices",
        (
            Figure("slices/classwise.png", "plot_classwise", "Reliability of the probability of each class."),
            Figure(
                "slices/by_labels.png",
                "plot_slices",
                "Reliability of each slice, the worst first; here a slice is the samples of one label.",
            ),
        ),
    ),
    Section(
        "Comparison",
        "comparison.md",
        f"calibrant compare {RESNET110} --figures comparison",
        (
            Figure(
                "comparison/comparison.png",
                "plot_comparison",
                "Metrics of each calibration method, and which differences are beyond noise.",
            ),
            Figure(
                "comparison/before_and_after.png",
                "plot_reliability",
                "Reliability before and after the recommended method.",
            ),
        ),
    ),
    Section(
        "Over time",
        "scale.md",
        """\
import torch

from calibrant import Predictions
from calibrant.plots import plot_trend, save_figure
from calibrant.scale import EvaluationState
from calibrant.scale.state import Design, sample_keys
from calibrant.scale.trend import measure_trend

generator = torch.Generator().manual_seed(0)
states = {}
for day in range(1, 15):
    logits = 2 * torch.randn(4000, 4, generator=generator)
    noise = -(-torch.rand(4000, 4, generator=generator).log()).log()
    labels = (logits / (1.3 if day < 9 else 1.6) + noise).argmax(1)
    samples = Predictions.from_logits(logits, labels)
    states[f"day {day}"] = EvaluationState(Design.of(samples))
    states[f"day {day}"].add(samples, sample_keys(0, f"day {day}", 0, len(samples)))
save_figure(plot_trend(measure_trend(states)), "trend/trend.png")
""",
        (Figure("trend/trend.png", "plot_trend", "Metrics over time; diamonds mark changes beyond chance."),),
    ),
    Section(
        "Without labels",
        "shift.md",
        """\
import torch

from calibrant import Predictions, measure_shift
from calibrant.plots import save_figures, shift_figures

generator = torch.Generator().manual_seed(0)


def draw(shares):
    labels = torch.tensor(shares).multinomial(3000, replacement=True, generator=generator)
    logits = 4 * torch.eye(4)[labels] + 2 * torch.randn(3000, 4, generator=generator)
    return Predictions.from_logits(logits, labels, class_names=["cat", "deer", "dog", "fox"])


shift = measure_shift(draw([0.3, 0.3, 0.3, 0.1]), draw([0.1, 0.28, 0.3, 0.32]), labelled=True)
save_figures(shift_figures(shift), "shift", formats=["png"])
""",
        (
            Figure("shift/proportions.png", "plot_proportions", "Class proportions, estimated without labels."),
            Figure(
                "shift/confidence.png",
                "plot_distribution",
                "Confidence of new samples beside that of the reference, reweighted by class.",
            ),
        ),
    ),
    Section(
        "Several sets",
        "neural-clamping-study.md",
        """\
from calibrant import EnsembleTemperatureScaling, TemperatureScaling
from calibrant.datasets import load_resnet110
from calibrant.plots import plot_bins_sweeps, save_figure

calibration, test = load_resnet110()
maps = {"temperature": TemperatureScaling(), "ets": EnsembleTemperatureScaling()}
sets = {"uncalibrated": test}
for name, method in maps.items():
    sets[name] = method.fit(calibration).transform(test)
save_figure(plot_bins_sweeps(sets).figure, "sets/bins_sweeps.png")
""",
        (Figure("sets/bins_sweeps.png", "plot_bins_sweeps", "The ECE of several sets over the number of bins."),),
    ),
    Section(
        "Confidence",
        "confidence.md",
        "calibrant confidence --model calibrant.models:DigitsCNN --weights demo/digits-weights.safetensors "
        "--data demo/digits-calibration-images.npz --test demo/digits-test-images.npz --method trust_score "
        "--device cpu -o confidence --figures confidence",
        (
            Figure(
                "confidence/trust_score_and_softmax.png",
                "plot_risk_coverage",
                "The error rate at every coverage, by two confidences.",
            ),
        ),
    ),
    Section(
        "Training",
        "training.md",
        "calibrant train --dataset digits --model digits_cnn --loss ce --loss 'focal(gamma=1)' --loss 'focal(gamma=3)' "
        "--loss meta_focal --split 8:1:1 --seed 0 --seed 1 --epochs 4 --batch-size 32 --learning-rate 0.02 --trace "
        "--device cpu --out runs",
        (),
    ),
    Section(
        "Shifted images",
        "diagnose.md",
        """\
import numpy as np
from calibrant.datasets import load_digits

digits = load_digits()
images = (16 * digits.images).numpy().astype(np.uint8)
sets = {"moved": np.roll(images, 1, axis=3), "turned": np.rot90(images, axes=(2, 3))}
for name, moved in sets.items():
    np.savez(f"{name}.npz", images=moved.transpose(0, 2, 3, 1), labels=digits.labels.numpy())
""",
        (),
    ),
    Section(
        "Diagnosis",
        "diagnose.md",
        "calibrant diagnose runs --corrupt contrast,gaussian_noise --severity 1,3,5 --shift moved.npz "
        "--shift turned.npz --device cpu --figures diagnosis",
        (
            Figure(
                "diagnosis/calibratability.png",
                "plot_calibratability",
                "The ECE of each loss, uncalibrated and after each map.",
            ),
            Figure(
                "diagnosis/two_sided.png",
                "plot_two_sided",
                "The ECE that a temperature leaves of each loss, and how well confidence separates errors.",
            ),
            Figure(
                "diagnosis/densities.png",
                "plot_densities",
                "The confidence of correct and of wrong predictions, before and after a temperature.",
            ),
            Figure(
                "diagnosis/coefficients.png",
                "plot_coefficients",
                "The ECE over the coefficient in which losses differ.",
            ),
            Figure(
                "diagnosis/validation_sizes.png",
                "plot_validation_sizes",
                "The ECE over the number of calibration samples.",
            ),
            Figure(
                "diagnosis/epochs.png",
                "plot_over_epochs",
                "The ECE, the least ECE of any temperature, and that temperature, over the epochs.",
            ),
            Figure(
                "diagnosis/learned_loss.png",
                "plot_learned_loss",
                "What a meta-learned loss has learned, over the epochs.",
            ),
            Figure(
                "diagnosis/learned_epochs.png",
                "plot_learned_epochs",
                "Top logits of training samples, by the epoch in which they were learned.",
            ),
            Figure("diagnosis/shift.png", "plot_shift", "ECE, accuracy and AUROC over the severity of corruptions."),
            Figure(
                "diagnosis/shifted_sets.png",
                "plot_shifted_sets",
                "Accuracy and ECE on shifted sets that have no severities.",
            ),
        ),
    ),
)


def page() -> str:
    """Return the part of the gallery that shows these figures."""
    first = "Every figure that the library draws, on data that come with it, below the command that draws it."
    parts = [f"{first} Commands read what those above them have written. Click on a figure to enlarge it.\n"]
    for section in SECTIONS:
        block = f"python\n{section.command}"
        if section.command.startswith("calibrant "):
            lines = textwrap.wrap(section.command, _COLUMNS, break_on_hyphens=False, break_long_words=False)
            block = "console\n$ " + " \\\n    ".join(lines) + "\n"
        parts.append(f"## [{section.title}]({section.page})\n\n```{block}```\n")
        for figure in section.figures:
            name = figure.function.removeprefix("plot_").replace("_", " ")
            parts.append(
                f"**`{figure.function}`**: {figure.shows}\n\n[![{name.capitalize()}]({figure.path})]({figure.path})\n"
            )
    return "\n".join(parts)


def draw(folder: Path) -> None:
    """Run every command in a folder, and leave small copies of the figures where the site expects them."""
    from PIL import Image  # comes with matplotlib

    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    for made in ("risk", "sets", "trend"):  # figures of Python sections; commands make their own folders
        (folder / made).mkdir(exist_ok=True)
    for section in SECTIONS:
        print(f"Gallery: {section.title.lower()}", flush=True)
        command = [sys.executable, "-c", section.command]
        if section.command.startswith("calibrant "):
            command = [sys.executable, "-m", *shlex.split(section.command)]
        done = subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"this command of the gallery failed: {section.command}\n{done.stdout}{done.stderr}")
        for figure in section.figures:
            with Image.open(folder / figure.file) as drawn:
                drawn.reduce(_SMALLER).save(folder / figure.path, optimize=True)


if __name__ == "__main__":
    draw(Path(sys.argv[1]).resolve())

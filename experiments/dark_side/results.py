"""What the records of the dark-side study say: numbers to check, and the page with its figure."""

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from experiments.numbers import Estimate, Number, minus, pooled
from experiments.page import interval, number_by_number, page, provenance, save
from experiments.published import findings, read_published
from experiments.records import Record

__all__ = ["numbers_of", "page_of"]

PUBLISHED = Path(__file__).parent / "published.toml"


def numbers_of(records: Sequence[Record]) -> dict[str, Number]:
    """Return the drawn classifiers' numbers, the counts of bins, and AUROC of ConfidNet minus that of the softmax.

    Args:
        records: Successful ones.
    """
    measured: dict[str, Number] = {}
    for record in records:
        cell, numbers = record["cell"], record["numbers"]
        if cell["what"] == "bins":
            measured[f"bins.{cell['map']}"] = _plain(100 * numbers["overconfident_bins"], "bins with samples")
        elif cell["what"] == "hypothetical":
            measured[f"hypothetical.{cell['panel']}.ece"] = _plain(numbers["ece"], "1 draw")
            measured[f"hypothetical.{cell['panel']}.auroc"] = _plain(100 * numbers["auroc"], "1 draw")
    for (inputs, samples), heads in _heads(records).items():
        differences = [minus(_percent(one["auroc"]), _percent(one["softmax"])) for one in heads]
        measured[f"confidnet.{inputs}.{samples} - softmax"] = pooled(differences)
    return measured


def page_of(records: Sequence[Record], *, images: Path | None) -> str:
    """Return the page, and draw its figure where a folder is given.

    Args:
        records: Successful ones.
        images: Folder of the figure; None draws none.
    """
    entries = findings(read_published(PUBLISHED), numbers_of(records))
    toys = [record for record in records if record["cell"]["what"] == "hypothetical"]
    if images is not None:
        _draw(toys, images / "dark-side-hypothetical.png")
    introduction = f"""
Fig. 1a to c of "On the Dark Side of Calibration" shows three hypothetical classifiers with an accuracy of one
half. The paper prints their numbers, but not how they were made. Ours were **built to have those numbers**; that they
agree shows only that such classifiers exist. Confidences of right predictions have a Beta(q + d, q) distribution, those
of wrong ones its mirror image, and d = 1 is calibrated. ECE of the draws has 15 bins.

{provenance(records)}

![Densities of the confidence of right and wrong predictions](images/dark-side-hypothetical.png)
"""
    lines = ["| panel | d | q | ECE | AUROC | equation 9 |", "|---" * 6 + "|"]
    for record in toys:
        one = record["numbers"]
        lines.append(
            f"| {record['cell']['panel']} | {one['d']:.3f} | {one['q']:.3f} | {one['ece']:.3f} | "
            f"{100 * one['auroc']:.1f} % | {one['equation_9']:.3f} |"
        )
    text = f"""
Equation 9 of the paper equates the ECE with α − β − γ; the last column has that. It is not the ECE here, nor need it
be: some bins of each are underconfident, which the equation excludes.

## Overconfident in every bin?

Equations 7 and 9 assume that no bin is underconfident. Of our own ResNet-110 on CIFAR-100, 100 bins:

{_bins(records)}

## A learned confidence needs samples

ConfidNet learns from a network's features which of its predictions are right. Here are heads behind that ResNet-110,
fitted on samples that the network was not trained on. They learn from its 64 features, or from the ten highest
log-probabilities, sorted, where no class has to be learned. AUROC on the 10,000 test images in percent; in brackets the
95 % interval of seeds and test images.

{_learned(records)}
"""
    title = "Calibration without separation, separation without calibration"
    return page(title, "dark-side", introduction, ["\n".join(lines), text, number_by_number(entries)])


def _bins(records: Sequence[Record]) -> str:
    lines = ["| map | bins not underconfident | ECE | confidence − accuracy | equation 9 |", "|---" * 5 + "|"]
    for record in records:
        if record["cell"]["what"] == "bins":
            one = record["numbers"]
            lines.append(
                f"| {record['cell']['map']} | {100 * one['overconfident_bins']:.0f} % | {one['ece']:.4f} | "
                f"{one['confidence_minus_accuracy']:+.4f} | {one['equation_9']:.4f} |"
            )
    return "\n".join(lines)


def _learned(records: Sequence[Record]) -> str:
    lines = ["| learned from | samples | wrong among them | AUROC | minus the softmax's |", "|---" * 5 + "|"]
    numbers = numbers_of(records)
    for (inputs, samples), heads in _heads(records).items():
        auroc = pooled([_percent(one["auroc"]) for one in heads])
        wrong = mean(one["wrong"] for one in heads)
        lines.append(
            f"| {inputs} | {samples:,} | {wrong:,.0f} | {interval(auroc, 1)} | "
            f"{interval(numbers[f'confidnet.{inputs}.{samples} - softmax'], 1, signed=True)} |"
        )
    return "\n".join(lines)


def _heads(records: Sequence[Record]) -> dict[tuple[str, int], list[Any]]:
    """Return the numbers of ConfidNet's heads, by what they learn from and from how many samples."""
    by_head = defaultdict[tuple[str, int], list[Any]](list)
    for record in records:
        if (cell := record["cell"])["what"] == "confidnet":
            by_head[cell["inputs"], cell["samples"]].append(record["numbers"])
    return dict(sorted(by_head.items()))


def _percent(estimate: Sequence[float]) -> Estimate:
    value, low, high = estimate
    return 100 * value, 100 * low, 100 * high


def _plain(value: float, about: str) -> Number:
    return Number(value, math.nan, math.nan, about)


def _draw(toys: Sequence[Record], path: Path) -> None:
    from scipy.stats import beta

    from calibrant.plots.layout import SIZES, bare_axes, name_axes, new_figure, theme_named

    theme = theme_named("light")
    figure = new_figure(theme, width=9.6, height=3.2)
    at = np.linspace(0.005, 0.995, 400)
    for place, record in enumerate(toys):
        d, q = record["numbers"]["d"], record["numbers"]["q"]
        ax = figure.add_subplot(1, len(toys), place + 1)
        bare_axes(ax, theme)
        ax.plot(at, beta.pdf(at, q + d, q), color=theme.under, linewidth=1.8, label="right")
        ax.plot(at, beta.pdf(at, q, q + d), color=theme.over, linewidth=1.8, linestyle="--", label="wrong")
        ax.set_ylim(0, 4.2)
        ax.set_title(
            f"{record['cell']['panel']}: ECE {record['numbers']['ece']:.2f}, "
            f"AUROC {100 * record['numbers']['auroc']:.1f} %",
            loc="left", color=theme.ink, fontsize=SIZES["label"],
        )  # fmt: skip
        name_axes(ax, theme, "Confidence", "Density" if place == 0 else "")
        if place == 0:
            ax.legend(frameon=False, fontsize=SIZES["note"], labelcolor=theme.ink)
    save(figure, path)

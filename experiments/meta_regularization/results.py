"""What the records of the meta-regularisation study say: numbers to check, and the page with its figure."""

import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from experiments.numbers import Number, pooled
from experiments.page import claims, interval, joined, number_by_number, provenance
from experiments.published import findings, read_published
from experiments.records import Record

__all__ = ["numbers_of", "page_of"]

PUBLISHED = Path(__file__).parent / "published.toml"
RULES = {"last": "the last", "best": "best error", "best-nll": "best log-loss"}
COLUMNS = {
    "accuracy": ("error", 100, 2),
    "nll": ("log-loss", 1, 4),
    "ece": ("ECE", 100, 2),
    "mce": ("MCE", 100, 1),
    "ace": ("ACE", 100, 2),
    "sce": ("classwise ECE", 100, 3),
}


def numbers_of(records: Sequence[Record]) -> dict[str, Number]:
    """Return every number and difference that the paper's are held against, by length, method, rule and metric.

    Args:
        records: Successful ones.
    """
    found: dict[str, Number] = {}
    groups: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault(f"{record['cell']['length']}.{record['cell']['method']}", []).append(record["numbers"])
    for group, runs in groups.items():
        for rule in RULES:
            for row in ("none", "TS", "TS (grid)"):
                for metric in COLUMNS:
                    values = [run["rules"][rule]["rows"][row][metric] for run in runs]
                    found[f"{group}.{rule}.{row}.{metric}"] = _pooled(values, metric)
    for group in groups:
        length, _, method = group.partition(".")
        for other, rule, metric in product({"Focal", "CE"} - {method}, RULES, COLUMNS):
            first, second = (found.get(f"{length}.{each}.{rule}.none.{metric}") for each in (method, other))
            if first and second:
                found[f"{group} - {other}.{rule}.{metric}"] = _minus(first, second)
    return found


def page_of(records: Sequence[Record], *, images: Path | None) -> str:
    """Return the page, and draw its figure where a folder is given.

    Args:
        records: Successful ones.
        images: Folder of the figure; None draws none.
    """
    numbers = numbers_of(records)
    entries = findings(read_published(PUBLISHED), numbers)
    lengths = sorted({(each["cell"]["epochs"], each["cell"]["batch_size"]) for each in records})
    recipe = "; ".join(f"{epochs} epochs, batch {batch}" for epochs, batch in lengths)
    side_by_side = sorted({(each["together"], round(each["seconds"] / 60)) for each in records if "together" in each})
    times = "; ".join(f"{n} networks together in {minutes} minutes" for n, minutes in side_by_side)
    parts = [
        f"""
# Meta-regularisation, Table 1 on CIFAR-100

<!-- Written by `python -m experiments table meta-regularization` from its records.jsonl. -->

ResNet-18, data divided 8:1:1, {recipe}; the paper's recipe is 350 epochs, batch 128. A tenth of the training images
tunes the learned losses, another selects the epoch (every tenth is evaluated) and fits the temperature.
Not in the paper, so chosen here: γ-Net learns by Adam at 1e-4 times the share of its highest rate that the network's
rate has, unless a name says otherwise; its objective is SECE or DECE plus twice the cross-entropy. Error, ECE, MCE, ACE
and classwise ECE in percent, 15 bins. In brackets the 95 % interval: of the test images, and of the seeds where there
are several. **A verdict from one seed is about those networks alone**, not about the losses. {provenance(records)}
Trained: {times}.
"""
    ]
    parts += [
        claims(entries),
        _outcome(records, numbers),
        _table(records, numbers),
        _gammas(records),
        number_by_number(entries),
    ]
    if images is not None:
        _draw(records, images / "meta-regularization-epochs.png")
    parts.append(
        "## Over the epochs\n\nThe network's rate falls at three and five sevenths of the epochs.\n\n"
        "![Test ECE, test log-loss and mean γ over the epochs](images/meta-regularization-epochs.png)"
    )
    return joined(parts)


def _outcome(records: Sequence[Record], numbers: dict[str, Number]) -> str:
    """Return what became of γ-Net, in sentences, for every learned loss that has focal loss beside it."""
    lines = ["## γ-Net", ""]
    for length, method in dict.fromkeys((each["cell"]["length"], each["cell"]["method"]) for each in records):
        runs = _runs(records, length, method)
        if f"{length}.{method} - Focal.best.ece" not in numbers or "gamma_mean" not in runs[0]["epochs"][-1]:
            continue
        parts = []
        for rule, words in RULES.items():
            difference = numbers[f"{length}.{method} - Focal.{rule}.ece"]
            parts.append(
                f"{words} {interval(numbers[f'{length}.{method}.{rule}.none.ece'], 2)}, which is "
                f"{interval(difference, 2, signed=True)} against focal loss with γ = 1"
            )
        gammas = ", ".join(f"{run['epochs'][-1]['gamma_mean']:.2f}" for run in runs)
        log_losses = " against ".join(
            f"{numbers[f'{length}.{each}.best.TS.nll'].value:.4f}" for each in (method, "Focal")
        )
        lines.append(
            f"- {method}: ECE by epoch kept: {'; '.join(parts)}. Mean γ at the last epoch: {gammas}. Log-loss after a "
            f"temperature, by best error: {log_losses}."
        )
    return "\n".join(lines) if len(lines) > 2 else ""


def _table(records: Sequence[Record], numbers: dict[str, Number]) -> str:
    heads = [
        "loss",
        "length",
        "seeds",
        "epoch kept",
        *(name for name, _, _ in COLUMNS.values()),
        "ECE at T",
        "ECE at T (grid)",
    ]
    lines = ["## Table 1", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    groups = dict.fromkeys((each["cell"]["length"], each["cell"]["method"]) for each in records)
    for rule, words in RULES.items():
        for length, method in groups:
            runs = _runs(records, length, method)
            epochs = "/".join(str(run["rules"][rule]["epoch"]) for run in runs)
            cells = [
                interval(numbers[f"{length}.{method}.{rule}.none.{metric}"], digits)
                for metric, (_, _, digits) in COLUMNS.items()
            ]
            cells += [interval(numbers[f"{length}.{method}.{rule}.{row}.ece"], 2) for row in ("TS", "TS (grid)")]
            lines.append(f"| {method} | {length} | {len(runs)} | {words}: {epochs} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _gammas(records: Sequence[Record]) -> str:
    lines = ["## γ over the epochs", "", "Mean ± standard deviation over the calibration samples.", ""]
    for record in records:
        told = [each for each in record["numbers"]["epochs"] if "gamma_mean" in each]
        if told:
            picked = told[:: max(1, len(told) // 8)]
            words = "; ".join(f"{each['epoch']}: {each['gamma_mean']:.2f} ± {each['gamma_std']:.2f}" for each in picked)
            lines.append(
                f"- {record['cell']['method']}, {record['cell']['length']}, seed {record['cell']['seed']}: {words}."
            )
    return "\n".join(lines) if len(lines) > 4 else ""


def _runs(records: Sequence[Record], length: str, method: str) -> list[dict[str, Any]]:
    own = [each for each in records if (each["cell"]["length"], each["cell"]["method"]) == (length, method)]
    return [each["numbers"] for each in sorted(own, key=lambda each: each["cell"]["seed"])]


def _pooled(estimates: Sequence[Sequence[float]], metric: str) -> Number:
    """Return the mean over seeds; its interval has the test images' error and the seeds'. Accuracy becomes error."""
    _, scale, _ = COLUMNS[metric]
    ends = [tuple(scale * end for end in one) for one in estimates]
    if metric == "accuracy":
        ends = [(100 - value, 100 - high, 100 - low) for value, low, high in ends]
    return pooled(ends)


def _minus(first: Number, second: Number) -> Number:
    """Return the difference of two networks' numbers, as if they were independent, which makes the interval wide."""
    down = math.hypot(first.value - first.low, second.high - second.value)
    up = math.hypot(first.high - first.value, second.value - second.low)
    value = first.value - second.value
    about = "1 seed, test images" if first.about == "test images" else first.about
    return Number(value, value - down, value + up, about)


def _draw(records: Sequence[Record], path: Path) -> None:
    from calibrant.plots.layout import SIZES, bare_axes, horizontal_lines, name_axes, new_figure, theme_named

    theme = theme_named("light")
    figure = new_figure(theme, width=9.6, height=3.9)
    looks = [(theme.muted, ":"), (theme.ink, "--"), (theme.under, "-"), (theme.over, "-."), (theme.band, "-")]
    panels = (("test_ece", 100, "Test ECE, %"), ("test_nll", 1, "Test log-loss"), ("gamma_mean", 1, "Mean γ"))
    for place, (name, scale, words) in enumerate(panels):
        ax = figure.add_subplot(1, len(panels), place + 1)
        bare_axes(ax, theme)
        horizontal_lines(ax, theme)
        for number, record in enumerate(records):
            told = [each for each in record["numbers"]["epochs"] if name in each]
            colour, line = looks[number % len(looks)]
            label = f"{record['cell']['method']}, seed {record['cell']['seed']}"
            if told:
                x, y = [each["epoch"] for each in told], [scale * each[name] for each in told]
                ax.plot(x, y, color=colour, linestyle=line, linewidth=1.8, label=label)
        name_axes(ax, theme, "Epoch", words)
        ax.set_ylim(bottom=0)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=4,
        frameon=False,
        fontsize=SIZES["note"],
        labelcolor=theme.ink,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})

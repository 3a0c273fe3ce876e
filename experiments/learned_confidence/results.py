"""What the records of Table 4 say: numbers to check, and the page with its figure."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from experiments.numbers import Number, over_seeds, pooled
from experiments.page import claims, interval, number_by_number, page, provenance, save, table
from experiments.published import findings, read_published
from experiments.records import Record

__all__ = ["numbers_of", "page_of"]

PUBLISHED = Path(__file__).parent / "published.toml"
DATA = {"cifar100": "VGG-16 on CIFAR-100", "cifar10": "VGG-16 on CIFAR-10", "digits": "Small CNN on digits"}
ROWS = ("Baseline", "TS", "CFN", "CFN (held-out samples)")
METRICS = {"ece": "ECE", "auroc": "AUROC", "aupr_error": "AUPR of errors"}
FIGURE = """
## Error against order

Left is a lower calibration error, above a confidence that separates right from wrong better. Crosses are 95 %
intervals.

![AUROC against ECE of the softmax, a temperature and learned confidences](images/learned-confidence.png)
"""
Runs: TypeAlias = dict[int, Any]  # numbers by seed


def numbers_of(records: Sequence[Record]) -> dict[str, Number]:
    """Return every number in percent, and its difference to the softmax's, by data set, row and metric.

    The differences are those of the same test samples, drawn for both at once.

    Args:
        records: Successful ones.
    """
    numbers: dict[str, Number] = {}
    for data, runs in _groups(records).items():
        numbers[f"{data}.accuracy"] = over_seeds([100 * run["accuracy"] for run in runs.values()])
        for kind, ending, rows in (("rows", "", ROWS), ("differences", " - Baseline", ROWS[1:])):
            for row in rows:
                for metric in METRICS:
                    number = pooled([[100 * end for end in run[kind][row][metric]] for run in runs.values()])
                    numbers[f"{data}.{row}{ending}.{metric}"] = number
    return numbers


def page_of(records: Sequence[Record], *, images: Path | None) -> str:
    """Return the page, and draw its figure where a folder is given.

    Args:
        records: Successful ones.
        images: Folder of the figure; None draws none.
    """
    groups, numbers = _groups(records), numbers_of(records)
    entries = findings(read_published(PUBLISHED), numbers)
    names = ("epochs", "head_epochs", "fine_tune_epochs")
    lengths = {tuple(record["cell"][name] for name in names) for record in records}
    trained = "; ".join(
        f"the network for {network} epochs, the head for {head}, both for up to {both} more"
        for network, head, both in sorted(lengths)
    )
    introduction = f"""
Singh et al. (2021), Table 4: a network's confidence (Baseline) beside that of a head which learns the probability of
the true class from the network's features (CFN), and which the paper finds better in order and in error. Trained were
{trained}; the paper has 500 epochs of the head.

CFN learns from the augmented images that the network was trained on, and a tenth of the training images, which neither
saw, chooses its epoch. CFN (held-out samples) learns from that tenth instead; TS is a temperature fitted on it. All in
percent; ECE has 15 bins. In brackets the 95 % interval: of the test images, and of the seeds where there are several; a
difference is that of the same images, drawn for both at once. **A verdict from one seed is about those networks
alone.** {provenance(records)}
"""
    if images is not None:
        _draw(groups, numbers, images / "learned-confidence.png")
    tables = [_table(data, runs, numbers) for data, runs in groups.items()]
    parts = [claims(entries), *tables, FIGURE, number_by_number(entries)]
    return page("A confidence that is learned: ConfidNet", "learned-confidence", introduction, parts)


def _table(data: str, runs: Runs, numbers: Mapping[str, Number]) -> str:
    heads = ["confidence", *METRICS.values(), *(f"{words} minus the baseline's" for words in METRICS.values())]
    rows = []
    for row in ROWS:
        cells = [row, *(interval(numbers[f"{data}.{row}.{metric}"], 2) for metric in METRICS)]
        differences = [numbers.get(f"{data}.{row} - Baseline.{metric}") for metric in METRICS]
        rows.append([*cells, *(interval(number, 2, signed=True) if number else "" for number in differences)])
    wrong = {part: [run["wrong"][part] for run in runs.values()] for part in ("training", "calibration")}
    seen, held_out = (", ".join(f"{count:,}" for count in counts) for counts in wrong.values())
    epochs = ", ".join(str(run["epoch"]["CFN"]) for run in runs.values())
    tuned = ", ".join(str(run["fine_tuned"]) for run in runs.values())
    accuracy = interval(numbers[f"{data}.accuracy"], 2)
    below = (
        f"{len(runs)} {'seed' if len(runs) == 1 else 'seeds'}, accuracy {accuracy}. Wrong predictions to learn from: "
        f"{seen} of the training images, {held_out} of the held-out ones. Chosen epoch of CFN: {epochs}; epochs of "
        f"fine-tuning that were kept: {tuned}."
    )
    return f"{table(DATA[data], heads, rows)}\n\n{below}"


def _groups(records: Sequence[Record]) -> dict[str, Runs]:
    """Return the numbers of each data set by seed."""
    groups: dict[str, Runs] = {}
    for record in records:
        groups.setdefault(record["cell"]["data"], {})[record["cell"]["seed"]] = record["numbers"]
    return groups


def _draw(groups: Mapping[str, Runs], numbers: Mapping[str, Number], path: Path) -> None:
    from calibrant.plots.layout import SIZES, bare_axes, name_axes, new_figure, theme_named

    theme = theme_named("light")
    figure = new_figure(theme, width=max(6.4, 4.6 * len(groups)), height=3.8)
    for place, data in enumerate(groups, start=1):
        ax = figure.add_subplot(1, len(groups), place)
        bare_axes(ax, theme)
        crosses = {row: [numbers[f"{data}.{row}.{metric}"] for metric in ("ece", "auroc")] for row in ROWS}
        for row, (x, y) in crosses.items():
            colour = theme.under if row.startswith("CFN") else theme.muted
            ax.plot([x.low, x.high], [y.value] * 2, color=colour, linewidth=1.2)
            ax.plot([x.value] * 2, [y.low, y.high], color=colour, linewidth=1.2)
        ax.set_xlim(left=0)
        middle = sum(ax.get_xlim()) / 2
        for row, (x, y) in crosses.items():
            side, shift = ("left", 4) if x.value < middle else ("right", -4)
            ax.annotate(
                row, (x.value, y.value), xytext=(shift, 4), textcoords="offset points", ha=side,
                fontsize=SIZES["note"], color=theme.ink,
            )  # fmt: skip
        ax.set_title(DATA[data], loc="left", color=theme.ink, fontsize=SIZES["label"])
        name_axes(ax, theme, "ECE in percent", "AUROC in percent" if place == 1 else "")
    save(figure, path)

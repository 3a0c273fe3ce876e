"""What the records of the study of overconfidence say: numbers to check, and the page with its figures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calibrant import catalogue
from calibrant.diagnosis.over_seeds import two_sample
from experiments.numbers import Estimate, Number, minus, over_seeds, pooled
from experiments.overconfidence.figures import figure_numbers, figure_sections
from experiments.overconfidence.pools import (
    DATA,
    FAMILIES,
    Groups,
    Runs,
    choices,
    draw_epochs,
    draw_pools,
    has_curves,
    order,
    pool_numbers,
    pools_of,
    title_of,
)
from experiments.overconfidence.training_sizes import draw_sizes, size_numbers, size_table
from experiments.page import claims, interval, number_by_number, page, provenance, save, table
from experiments.published import Finding, Published, findings, read_published
from experiments.records import Record

__all__ = ["draw_losses", "groups_of", "loss_curve", "numbers_of", "page_of"]

PUBLISHED = Path(__file__).parent / "published.toml"
ROWS = ("none", "TS (grid)", "TS", "HB", "HB (equal mass)", "SVS")
METRICS = {"accuracy": 100, "nll": 1, "ece": 100, "auroc": 100}
MARKS = {"higher": " ▲", "lower": " ▼", "alike": ""}
# The curves of Fig. 6a.
CURVES = (
    "focal(gamma=3)",
    "focal(gamma=1)",
    "ce",
    "inverse_focal(gamma=1)",
    "inverse_focal(gamma=2)",
    "inverse_focal(gamma=3)",
)
BEFORE_AND_AFTER = """
## Before and after

The paper's claim: losses that lower the calibration error leave more of it after a map. The temperature is that of the
lowest log-loss; lines are 95 % intervals. Losses of which there are several seeds, where there are such; networks that
were trained on all samples.

![ECE by loss, uncalibrated and after a temperature](images/overconfidence.png)
"""
POOLS = """
## The coefficients

Fig. 1a to c of the paper: the ECE by the coefficient of each family, here also after the paper's temperature, TS
(grid), and after that of the lowest log-loss, TS. Cross-entropy is at 0, its uncalibrated ECE the dashed line. Hollow
marks are networks with less than half its accuracy. Lines are 95 % intervals; most coefficients have one seed.

![ECE by coefficient, before and after a temperature](images/overconfidence-pools.png)
"""
TRAINING_SIZES = """
Fig. 1d: the uncalibrated ECE by the coefficient on CIFAR-10, trained on part of the samples. Filled marks are the
lowest of their line, upright lines 95 % intervals. The interval of the best coefficient is one of the test samples:
there is one network per coefficient.

![ECE by coefficient for each number of training samples](images/overconfidence-training-sizes.png)

"""
EPOCHS = """
Fig. 4: the optimal ECE, at the temperature that is best on the test samples, every ten epochs with label smoothing.
Lines are means over seeds, areas reach from the lowest to the highest.

![Optimal ECE over epochs by the coefficient of label smoothing](images/overconfidence-epochs.png)
"""
TEXTS = """

The paper says of its network for texts that it has 8 layers, and no more. With the cross-entropy ours needs a
temperature of {ours:.1f}, the paper's one of {theirs:.1f}. The coefficients are the paper's, chosen for its network on
its test samples: what is refuted here is refuted of these coefficients with this network.{pools}"""
FIGURE = """
## The losses

Fig. 6a of the paper: what a sample costs by the probability of its class. Where a sample is nearly certain, focal loss
is flat, and inverse focal loss steeper than the cross-entropy.

![Focal loss, cross-entropy and inverse focal loss by probability](images/overconfidence-losses.png)
"""


def numbers_of(records: Sequence[Record]) -> dict[str, Number]:
    """Return every number and difference that the paper's are held against, by data set, method, row and metric.

    A difference to the cross-entropy is taken seed by seed, over the seeds that both have.

    Args:
        records: Successful ones.
    """
    numbers: dict[str, Number] = {}
    groups = groups_of(records)
    for (data, method), runs in groups.items():
        for name in ("TS (grid)", "TS"):
            if temperatures := [run["T"][name] for run in runs.values() if name in run["T"]]:
                numbers[f"{data}.{method}.{name}.T"] = over_seeds(temperatures)
        for row in ROWS:
            for metric in METRICS:
                ours = {seed: _estimate(run, row, metric) for seed, run in runs.items() if row in run["rows"]}
                if not ours:
                    continue
                number = pooled(list(ours.values()))
                numbers[f"{data}.{method}.{row}.{metric}"] = number._replace(low=max(number.low, 0.0))
                baseline = groups.get((data, "CE"), {}) if method != "CE" else {}
                differences = [
                    minus(ours[seed], _estimate(baseline[seed], row, metric))
                    for seed in sorted(ours.keys() & baseline.keys())
                    if row in baseline[seed]["rows"]
                ]
                if differences:
                    number = pooled(differences)
                    about = "1 seed, test samples" if len(differences) == 1 else number.about
                    numbers[f"{data}.{method} - CE.{row}.{metric}"] = number._replace(about=about)
    return numbers | pool_numbers(groups, numbers) | size_numbers(groups, numbers) | figure_numbers(groups)


def page_of(records: Sequence[Record], *, images: Path | None) -> str:
    """Return the page, and draw its figures where a folder is given.

    Args:
        records: Successful ones.
        images: Folder of the figures; None draws none.
    """
    numbers = numbers_of(records)
    entries = findings(read_published(PUBLISHED), numbers)
    introduction = f"""
Wang et al. (2021), Tables 1 and 2: what label smoothing, the L1 norm of the logits and focal loss do to the calibration
error, and what is left of it after a map fitted on held-out samples. ResNet-32 on images, an 8-layer CNN on texts; a
tenth of the training samples fits the maps. TS (grid) and HB are the paper's: the temperature of a grid with the lowest
ECE, and 15 bins of equal width; TS is the temperature with the lowest log-loss. Accuracy and ECE in percent, 15 bins.
In brackets the 95 % interval: of the test samples, and of the seeds where there are several; ▲ and ▼ are the paper's
two-sample t-test over seeds against the cross-entropy. **A verdict from one seed is about those networks alone.** The
authors' code takes no gradient through the weight of focal loss, which "weight detached" stands for.
{provenance(records)}{_earlier(records)}
"""
    groups = groups_of(records)
    of_pools, of_figures, of_tables = list[Finding](), list[Finding](), list[Finding]()
    pooled_ids, figure_ids = pool_numbers(groups, numbers) | size_numbers(groups, numbers), figure_numbers(groups)
    sizes = size_table(groups, numbers)
    for entry in entries:
        is_of_pool, is_of_figure = entry.published.id in pooled_ids, entry.published.id in figure_ids
        (of_pools if is_of_pool else of_figures if is_of_figure else of_tables).append(entry)
    has_pools, has_epochs = any(pool.data in DATA for pool in pools_of(groups, numbers)), has_curves(groups)
    has_errors = any(data in DATA for data, _ in groups)
    if images is not None:
        draw_losses(images / "overconfidence-losses.png")
        if has_errors:
            _draw_errors(groups, numbers, images / "overconfidence.png")
        if has_pools:
            draw_pools(groups, numbers, images / "overconfidence-pools.png")
        if sizes:
            draw_sizes(groups, numbers, images / "overconfidence-training-sizes.png")
        if has_epochs:
            draw_epochs(groups, images / "overconfidence-epochs.png")
    tables = [
        _table(data, groups, numbers) + (_about_texts(entries, numbers) if data == "newsgroups" else "")
        for data in dict.fromkeys(data for data, _ in groups)
    ]
    of_sizes = TRAINING_SIZES + sizes if sizes else ""
    verdicts = claims(of_pools, "What holds of the coefficients")
    pools = [POOLS * has_pools, of_sizes, EPOCHS * has_epochs, verdicts]
    figures = figure_sections(groups, of_figures, images)
    parts = [
        claims(of_tables),
        BEFORE_AND_AFTER * has_errors,
        *pools,
        *figures,
        *tables,
        number_by_number(entries),
        FIGURE,
    ]
    return page("Overconfidence: regularised losses before and after a map", "overconfidence", introduction, parts)


def _earlier(records: Sequence[Record]) -> str:
    n = sum("TS (grid)" not in record["numbers"]["rows"] for record in records)
    return (
        f" {n} of the networks are those of [an earlier study](training-study.md), without the paper's maps "
        "and their ECE on calibration samples, for which their other seeds stand."
        if n
        else ""
    )


def groups_of(records: Sequence[Record]) -> dict[tuple[str, str], Runs]:
    """Return the numbers of each data set and method by seed: cross-entropy, then each family by its coefficient."""
    groups: dict[tuple[str, str], Runs] = {}
    for record in records:
        cell = record["cell"]
        data = (
            f"{cell['data']}, {cell['train_samples']:,} training samples" if "train_samples" in cell else cell["data"]
        )
        groups.setdefault((data, cell["method"]), {})[cell["seed"]] = record["numbers"]
    names = list(dict.fromkeys(data for data, _ in groups))
    return dict(sorted(groups.items(), key=lambda group: (names.index(group[0][0]), order(group[0][1]))))


def _estimate(run: Mapping[str, Any], row: str, metric: str) -> Estimate:
    value, low, high = (METRICS[metric] * end for end in run["rows"][row][metric])
    return value, low, high


def _table(data: str, all_groups: Groups, numbers: Mapping[str, Number]) -> str:
    groups = {method: runs for (name, method), runs in all_groups.items() if name == data}
    rows = [row for row in ROWS if any(row in run["rows"] for runs in groups.values() for run in runs.values())]
    heads = ["loss", "seeds", "accuracy", *("ECE" if row == "none" else f"ECE, {row}" for row in rows), "T"]
    lines = []
    for method, runs in groups.items():
        cells = [method, str(len(runs)), interval(numbers[f"{data}.{method}.none.accuracy"], 2)]
        for row in rows:
            number = numbers.get(f"{data}.{method}.{row}.ece")
            mark = MARKS[two_sample(*(_errors(group, row) for group in (groups.get("CE", {}), runs))).side]
            cells.append(interval(number, 2) + mark if number else "")
        temperature = numbers.get(f"{data}.{method}.TS (grid).T") or numbers[f"{data}.{method}.TS.T"]
        lines.append([*cells, interval(temperature, 2)])
    return table(title_of(data), heads, lines) + choices(data, all_groups, numbers)


def _about_texts(entries: Sequence[Finding], numbers: Mapping[str, Number]) -> str:
    """Say how the network for texts differs from the paper's, where there are records of it."""
    best = [number for family in FAMILIES if (number := numbers.get(f"newsgroups.{family} best - CE.none.ece"))]
    lower = sum(number.high < 0 for number in best)
    pools = (
        f"\nOf {len(best)} losses with the best coefficient of our own pools {lower} have a lower ECE than the "
        "cross-entropy beyond noise."
    )
    for entry in entries:
        if (
            entry.published.id == "newsgroups.CE.TS (grid).T"
            and entry.number
            and isinstance(entry.published, Published)
        ):
            ours, theirs = entry.number.value, entry.published.value
            return TEXTS.format(ours=ours, theirs=theirs, pools=pools if best else "")
    return ""


def _errors(runs: Runs, row: str) -> list[float]:
    return [run["rows"][row]["ece"][0] for run in runs.values() if row in run["rows"]]


def _draw_errors(groups: Groups, numbers: Mapping[str, Number], path: Path) -> None:
    from calibrant.plots.layout import SIZES, bare_axes, name_axes, new_figure, theme_named

    theme = theme_named("light")
    panels = [data for data in dict.fromkeys(data for data, _ in groups) if data in DATA]
    repeated = {data: max(len(runs) for (name, _), runs in groups.items() if name == data) > 1 for data in panels}
    losses = {
        data: [method for (name, method), runs in groups.items() if name == data and len(runs) > repeated[data]]
        for data in panels
    }
    figure = new_figure(theme, width=6.4, height=sum(0.9 + 0.34 * len(losses[data]) for data in panels))
    axes = figure.subplots(
        len(panels), 1, squeeze=False, gridspec_kw={"height_ratios": [2 + len(losses[data]) for data in panels]}
    )
    for ax, data in zip(axes[:, 0], panels, strict=True):
        bare_axes(ax, theme)
        order = sorted(losses[data], key=lambda method: numbers[f"{data}.{method}.none.ece"].value)
        for row, colour, shift, words in (
            ("none", theme.over, 0.1, "uncalibrated"),
            ("TS", theme.under, -0.1, "after a temperature"),
        ):
            shown = [numbers[f"{data}.{method}.{row}.ece"] for method in order]
            places = [place + shift for place in range(len(order))]
            ax.hlines(
                places, [number.low for number in shown], [number.high for number in shown], color=colour, linewidth=1.4
            )
            ax.scatter([number.value for number in shown], places, color=colour, s=26, label=words, zorder=2)
        ax.set_yticks(range(len(order)), order)
        ax.set_ylim(-0.6, len(order) - 0.4)
        ax.set_xlim(left=0)
        ax.set_title(title_of(data), loc="left", color=theme.ink, fontsize=SIZES["label"])
        name_axes(ax, theme, "ECE, %" if data == panels[-1] else "", "")
    axes[0, 0].legend(frameon=False, fontsize=SIZES["note"], labelcolor=theme.ink, loc="lower right")
    save(figure, path)


def loss_curve(loss: str, probabilities: Tensor) -> Tensor:
    """Return what a sample of two classes costs at each probability of its class, (n,).

    Args:
        loss: Name and options, as on the command line.
        probabilities: Between 0 and 1, (n,).
    """
    name, _, options = loss.rstrip(")").partition("(")
    rowwise = catalogue.losses.parse(f"{name}({options + ',' if options else ''}reduction=none)")
    logits = torch.stack([probabilities.log(), torch.log1p(-probabilities)], dim=1)
    curve: Tensor = rowwise(logits, torch.zeros(len(logits), dtype=torch.int64))
    return curve


def draw_losses(path: Path) -> None:
    """Draw Fig. 6a: focal loss, cross-entropy and inverse focal loss by the probability of the true class."""
    from calibrant.plots.layout import SIZES, bare_axes, name_axes, new_figure, theme_named

    theme = theme_named("light")
    figure = new_figure(theme, width=6.4, height=4.2)
    ax = figure.add_subplot()
    bare_axes(ax, theme, lines=True)
    x = torch.linspace(0.02, 0.998, 400, dtype=torch.float64)
    colours = (theme.under, theme.under, theme.ink, theme.over, theme.over, theme.over)
    lines = ("-", ":", "-", ":", "--", "-")
    for loss, colour, line in zip(CURVES, colours, lines, strict=True):
        label = loss.replace("_", " ").replace("(gamma=", ", γ = ").rstrip(")").replace("ce", "cross-entropy")
        ax.plot(x.numpy(), loss_curve(loss, x).numpy(), color=colour, linestyle=line, linewidth=1.8, label=label)
    name_axes(ax, theme, "Probability of the true class", "Loss")
    ax.set_ylim(0, 5)
    ax.legend(frameon=False, fontsize=SIZES["note"], labelcolor=theme.ink)
    save(figure, path)

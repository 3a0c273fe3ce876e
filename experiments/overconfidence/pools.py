"""Pools of coefficients (Fig. 1a to c) and optimal ECE over epochs (Fig. 4): numbers to check, text and figures."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from textwrap import fill
from typing import Any, NamedTuple, TypeAlias

from experiments.numbers import Number, minus, over_seeds
from experiments.page import plain_table, save

__all__ = [
    "DATA",
    "FAMILIES",
    "Groups",
    "Runs",
    "choices",
    "draw_epochs",
    "draw_pools",
    "failed",
    "has_curves",
    "order",
    "pool_numbers",
    "pools_of",
    "title_of",
]

DATA = {
    "cifar100": "CIFAR-100",
    "cifar10": "CIFAR-10",
    "svhn": "SVHN",
    "newsgroups": "20 Newsgroups",
    "digits": "digits",
}
FAMILIES = {"LS": "Label smoothing, ε", "L1": "L1 norm, α", "Focal": "Focal loss, γ"}
METHOD = re.compile(r"(?P<family>\D+?\d?) \((?P<value>[\d.]+)\)(?P<form>.*)")
SMOOTHED = ("CE", "LS (0.01)", "LS (0.05)", "LS (0.09)")  # of the curves over epochs
# Epochs after which the optimal ECE of label smoothing rises, Section 5.1.
RISES = {"cifar100": 100, "newsgroups": 50, "cifar10": 10, "svhn": 10}
Runs: TypeAlias = dict[int, dict[str, Any]]  # numbers by seed
Groups: TypeAlias = Mapping[tuple[str, str], Runs]  # by data set and method


class Pool(NamedTuple):
    """The methods of one family on one data set, by coefficient, and those among them that learned something."""

    data: str
    family: str
    methods: list[str]
    learned: list[str]


def order(method: str) -> tuple[int, str, float, str]:
    """Return a key that sorts the cross-entropy first, then each family by its coefficient."""
    parts = METHOD.fullmatch(method)
    if parts is None:
        return 0, method, 0.0, ""
    place = list(FAMILIES).index(parts["family"]) if parts["family"] in FAMILIES else len(FAMILIES)
    return 1 + place, parts["family"], float(parts["value"]), parts["form"]


def title_of(data: str) -> str:
    """Return the name of a data set as a reader knows it, with the number of training samples where it has one."""
    name, comma, size = data.partition(",")
    return f"{DATA[name]}{comma}{size}"


def failed(data: str, method: str, numbers: Mapping[str, Number]) -> bool:
    """Say whether a network has less than half the accuracy of the cross-entropy's, where there is one."""
    baseline = numbers.get(f"{data}.CE.none.accuracy")
    return baseline is not None and 2 * numbers[f"{data}.{method}.none.accuracy"].value < baseline.value


def pools_of(groups: Groups, numbers: Mapping[str, Number]) -> list[Pool]:
    """Return every pool of which two or more coefficients have records."""
    pools = []
    for data in dict.fromkeys(data for data, _ in groups):
        for family in FAMILIES:
            methods = sorted((m for name, m in groups if name == data and _is_of(m, family)), key=order)
            if len(methods) > 1:
                learned = [method for method in methods if not failed(data, method, numbers)]
                pools.append(Pool(data, family, methods, learned))
    return pools


def _is_of(method: str, family: str) -> bool:
    parts = METHOD.fullmatch(method)
    return parts is not None and parts["family"] == family and not parts["form"]


def pool_numbers(groups: Groups, numbers: Mapping[str, Number]) -> dict[str, Number]:
    """Return the differences that the paper's claims about Fig. 1 and Fig. 4 are held against.

    The best coefficient is that of the lowest uncalibrated ECE on the test samples, as in the paper, which leaves out
    those that fail to learn. Seeds are not paired: most coefficients have one, and it may lack the paper's maps.

    Args:
        groups: Numbers of the records.
        numbers: Those of each method.
    """
    measured: dict[str, Number] = {}

    def subtract(name: str, data: str, first: str, second: str, rows: Sequence[str]) -> None:
        for row in rows:
            ends = [numbers.get(f"{data}.{method}.{row}.ece") for method in (first, second)]
            if ends[0] is not None and ends[1] is not None:
                about = _seeds(groups, data, row, first, second)
                measured[f"{data}.{name}.{row}.ece"] = Number(*minus(ends[0][:3], ends[1][:3]), about)

    for data, family, methods, learned in pools_of(groups, numbers):
        for method in methods if (data, "CE") in groups else ():
            accuracy, (value, low, high, _) = (numbers[f"{data}.{name}.none.accuracy"] for name in (method, "CE"))
            half, about = (
                minus(accuracy[:3], (value / 2, low / 2, high / 2)),
                _seeds(groups, data, "none", method, "CE"),
            )
            measured[f"{data}.{method} - half of CE.none.accuracy"] = Number(*half, about)
        if len(learned) < 2:
            continue
        best = lowest(data, learned, numbers, "none.ece")
        place = learned.index(best)
        beside = [learned[neighbour] for neighbour in (place - 1, place + 1) if 0 <= neighbour < len(learned)]
        steep = max(beside, key=lambda method: numbers[f"{data}.{method}.none.ece"].value)
        subtract(f"{family} best - CE", data, best, "CE", ("none", "TS (grid)", "TS", "HB"))
        subtract(f"{family} next - best", data, steep, best, ("none",))
        subtract(f"{family} largest - smallest", data, learned[-1], learned[0], ("none", "TS (grid)", "TS"))
    return measured | _epoch_numbers(groups)


def _seeds(groups: Groups, data: str, row: str, first: str, second: str) -> str:
    """Say how many seeds of two methods were compared."""
    ours, theirs = (sum(row in run["rows"] for run in groups[data, method].values()) for method in (first, second))
    return f"{ours} seed{'s' * (ours > 1)} against {theirs}, test samples"


def _epoch_numbers(groups: Groups) -> dict[str, Number]:
    numbers: dict[str, Number] = {}
    for data, method in groups:
        curves, plain = (_curves(groups.get((data, name), {})) for name in (method, "CE"))
        if rises := [curve[max(curve)] - curve[RISES[data]] for curve in curves.values() if RISES.get(data) in curve]:
            numbers[f"{data}.{method}.rise.optimal_ece"] = over_seeds(rises)
        shared = sorted(curves.keys() & plain.keys())
        last = [curves[seed][max(curves[seed])] - plain[seed][max(plain[seed])] for seed in shared]
        if last and method != "CE":
            numbers[f"{data}.{method} - CE.last.optimal_ece"] = over_seeds(last)
    return numbers


def _curves(runs: Runs) -> dict[int, dict[int, float]]:
    """Return the optimal ECE in percent by seed and epoch; networks without epochs are left out."""
    return {
        seed: {entry["epoch"]: 100 * entry["optimal_ece"] for entry in run["epochs"]}
        for seed, run in runs.items()
        if run.get("epochs")
    }


def lowest(data: str, methods: Sequence[str], numbers: Mapping[str, Number], what: str) -> str:
    """Return the method with the lowest value of a number, such as ``none.ece``, among those that have it."""
    known = [method for method in methods if f"{data}.{method}.{what}" in numbers]
    return min(known, key=lambda method: numbers[f"{data}.{method}.{what}"].value)


def choices(data: str, groups: Groups, numbers: Mapping[str, Number]) -> str:
    """Return which coefficient each rule chooses from the pools of a data set, and what is wrong with the first rule.

    Args:
        data: Name in the records.
        groups: Numbers of the records.
        numbers: Those of each method.
    """
    pools = [pool for pool in pools_of(groups, numbers) if pool.data == data]
    rules = {
        "ECE": "none.ece",
        "ECE, TS (grid)": "TS (grid).ece",
        "ECE, TS": "TS.ece",
        "log-loss": "none.nll",
        "log-loss, TS": "TS.nll",
    }
    known = {
        rule: what
        for rule, what in rules.items()
        if all(any(f"{data}.{method}.{what}" in numbers for method in pool.methods) for pool in pools)
    }
    if not pools:
        return ""
    heads = ["pool", *(f"lowest {rule}" for rule in known), "lowest ECE, calibration samples"]
    rows = [
        [
            ", ".join(pool.methods),
            *(lowest(data, pool.methods, numbers, what) for what in known.values()),
            min(
                (mean(errors), method)
                for method in pool.methods
                for errors in [_calibration_errors(groups[data, method])]
                if errors
            )[1],
        ]
        for pool in pools
    ]
    lines = [plain_table(heads, rows), *(_about_failures(pool, numbers) for pool in pools), _against_ce(pools, numbers)]
    return "\n\n".join(["", *(line for line in lines if line)])


def _calibration_errors(runs: Runs) -> list[float]:
    return [run["calibration_ece"] for run in runs.values() if "calibration_ece" in run]


def _about_failures(pool: Pool, numbers: Mapping[str, Number]) -> str:
    """Say of a pool whose lowest ECE is that of a network that has learned nothing what else could be chosen."""
    data = pool.data
    best = lowest(data, pool.methods, numbers, "none.ece")
    if best in pool.learned or not pool.learned:
        return ""
    value = {name: numbers[f"{data}.{name}.none.accuracy"].value for name in (*pool.methods, "CE")}
    others = [method for method in pool.methods if method not in pool.learned]
    learned = lowest(data, pool.learned, numbers, "none.ece")
    log_loss = lowest(data, pool.methods, numbers, "none.nll")
    error = numbers[f"{data}.{best}.none.ece"].value
    return fill(
        f"**{best} has the lowest ECE of its pool, {error:.2f} %, and an accuracy of {value[best]:.1f} %, where the "
        f"cross-entropy has {value['CE']:.1f} %: chosen by ECE alone, a network that has learned next to nothing "
        "wins.** The paper leaves out coefficients that fail. Without those of less than half the accuracy of the "
        f"cross-entropy ({', '.join(others)}) the lowest ECE is that of {learned}, with an accuracy of "
        f"{value[learned]:.1f} %. The lowest log-loss of the whole pool is that of {log_loss}, with "
        f"{value[log_loss]:.1f} %.",
        120,
    )


def _against_ce(pools: Sequence[Pool], numbers: Mapping[str, Number]) -> str:
    """Say how many coefficients have a lower log-loss after a temperature than the cross-entropy."""
    data = pools[0].data
    plain = numbers.get(f"{data}.CE.TS.nll")
    log_losses = {
        method: numbers[f"{data}.{method}.TS.nll"].value
        for pool in pools
        for method in pool.methods
        if f"{data}.{method}.TS.nll" in numbers
    }
    if plain is None or not log_losses:
        return ""
    lower = sum(value < plain.value for value in log_losses.values())
    first = min(log_losses, key=lambda method: log_losses[method])
    return fill(
        f"After a temperature (TS) {lower or 'none'} of the {len(log_losses)} coefficients have a lower log-loss than "
        f"the cross-entropy, {plain.value:.3f}; the lowest is that of {first}, {log_losses[first]:.3f}. "
        "Both are those of the test samples, and means over the seeds there are.",
        120,
    )


def draw_pools(groups: Groups, numbers: Mapping[str, Number], path: Path) -> None:
    """Draw Fig. 1a to c: the ECE before and after a temperature by coefficient, a row of panels per data set.

    The cross-entropy is at coefficient 0, and its uncalibrated ECE a dashed line. Hollow marks: networks that failed.
    """
    from calibrant.plots.layout import SIZES, bare_axes, name_axes, new_figure, theme_named

    theme = theme_named("light")
    pools = {(pool.data, pool.family): pool for pool in pools_of(groups, numbers) if pool.data in DATA}
    panels = list(dict.fromkeys(data for data, _ in pools))
    figure = new_figure(theme, width=9.6, height=0.6 + 2.9 * len(panels))
    axes = figure.subplots(len(panels), len(FAMILIES), squeeze=False, sharey="row")
    looks = (
        ("none", theme.over, "o", -0.16, "uncalibrated"),
        ("TS (grid)", theme.ink, "s", 0.0, "TS (grid), lowest ECE"),
        ("TS", theme.under, "D", 0.16, "TS, lowest log-loss"),
    )
    for line, data in zip(axes, panels, strict=True):
        for ax, family in zip(line, FAMILIES, strict=True):
            bare_axes(ax, theme, lines=True)
            pool = pools.get((data, family))
            if pool is None:
                ax.set_axis_off()
                continue
            methods = ["CE"] * ((data, "CE") in groups) + pool.methods
            for row, colour, marker, shift, words in looks:
                shown = [(x, numbers.get(f"{data}.{method}.{row}.ece")) for x, method in enumerate(methods)]
                places, known = zip(*((x + shift, number) for x, number in shown if number is not None), strict=True)
                values = [number.value for number in known]
                ax.vlines(
                    places, [number.low for number in known], [number.high for number in known], color=colour, lw=1.3
                )
                ax.plot(places, values, color=colour, lw=0.8, alpha=0.5)
                fills = [theme.background if failed(data, methods[round(x)], numbers) else colour for x in places]
                ax.scatter(places, values, s=24, marker=marker, color=fills, edgecolor=colour, label=words, zorder=3)
            if methods[0] == "CE":
                ax.axhline(numbers[f"{data}.CE.none.ece"].value, **theme.dashes, zorder=1)
            names = ["0\n(CE)" if method == "CE" else f"{order(method)[2]:g}" for method in methods]
            ax.set_xticks(range(len(methods)), names)
            name_axes(ax, theme, FAMILIES[family], f"{title_of(data)}: ECE, %" if ax is line[0] else "")
        line[0].set_ylim(bottom=0)
    handles, labels = next(ax for ax in axes.flat if ax.has_data()).get_legend_handles_labels()
    figure.legend(
        handles, labels, frameon=False, fontsize=SIZES["note"], labelcolor=theme.ink, loc="outside upper left", ncols=3
    )
    save(figure, path)


def has_curves(groups: Groups) -> bool:
    """Say whether any network trained with label smoothing has its optimal ECE by epoch."""
    return bool(_smoothed(groups))


def _smoothed(groups: Groups) -> dict[str, list[str]]:
    """Return those of the curves of Fig. 4 for which there are records, by data set, all of whose samples trained."""
    names: dict[str, list[str]] = {}
    for data, method in groups:
        if data in DATA and method in SMOOTHED and _curves(groups[data, method]):
            names.setdefault(data, []).append(method)
    return {data: methods for data, methods in names.items() if len(methods) > 1}


def draw_epochs(groups: Groups, path: Path) -> None:
    """Draw Fig. 4: the optimal ECE over epochs with label smoothing, means over seeds and what lies between seeds."""
    from calibrant.plots.layout import SIZES, bare_axes, name_axes, new_figure, theme_named

    theme = theme_named("light")
    shown = _smoothed(groups)
    figure = new_figure(theme, width=3.2 * max(len(shown), 2), height=3.4)
    axes = figure.subplots(1, len(shown), squeeze=False)[0]
    colours = (theme.ink, theme.under, theme.muted, theme.over)
    looks = dict(zip(SMOOTHED, zip(colours, ("--", "-.", ":", "-"), strict=True), strict=True))
    handles = {}
    for ax, (data, methods) in zip(axes, shown.items(), strict=True):
        bare_axes(ax, theme, lines=True)
        for method in methods:
            curves = list(_curves(groups[data, method]).values())
            epochs = sorted(set.intersection(*(set(curve) for curve in curves)))
            ends: list[Callable[..., float]] = [min, mean, max]
            low, middle, high = ([end([curve[epoch] for curve in curves]) for epoch in epochs] for end in ends)
            colour, line = looks[method]
            (handles[method],) = ax.plot(epochs, middle, color=colour, linestyle=line, linewidth=1.8)
            ax.fill_between(epochs, low, high, color=colour, alpha=0.12, linewidth=0)
        ax.set_ylim(bottom=0)
        ax.set_title(title_of(data), loc="left", color=theme.ink, fontsize=SIZES["label"])
        name_axes(ax, theme, "Epoch", "Optimal ECE, %" if ax is axes[0] else "")
    known = [method for method in SMOOTHED if method in handles]
    figure.legend(
        [handles[method] for method in known], known, frameon=False, fontsize=SIZES["note"], labelcolor=theme.ink,
        loc="outside upper left", ncols=len(known), handlelength=3,
    )  # fmt: skip
    save(figure, path)

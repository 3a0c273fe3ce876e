"""Fig. 1d: the best coefficient by the number of training samples: numbers to check, table and figure."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from experiments.numbers import Number
from experiments.overconfidence.pools import FAMILIES, Groups, Pool, order, pools_of, title_of
from experiments.page import interval, plain_table, save

__all__ = ["best_coefficients", "draw_sizes", "size_numbers", "size_table"]

_DRAWS = 4_000
_NORMAL = 1.96  # half the width of a 95 % interval in standard deviations


class Best(NamedTuple):
    """The coefficient of a pool with the lowest uncalibrated ECE, and that of each draw of the pool's errors."""

    pool: Pool
    coefficient: float
    draws: Tensor


def best_coefficients(groups: Groups, numbers: Mapping[str, Number]) -> dict[str, dict[int, Best]]:
    """Return the best coefficients on CIFAR-10 by family and number of training samples, the fewest first.

    Args:
        groups: Numbers of the records.
        numbers: Those of each method.
    """
    best: dict[str, dict[int, Best]] = {family: {} for family in FAMILIES}
    for pool in pools_of(groups, numbers):
        name, _, size = pool.data.partition(", ")
        if name == "cifar10" and size and len(pool.learned) > 1:
            n = int(size.split()[0].replace(",", ""))
            best[pool.family][n] = _best(pool, numbers, seed=n)  # of other networks: their noise is independent
    return {family: dict(sorted(sizes.items())) for family, sizes in best.items() if len(sizes) > 1}


def _best(pool: Pool, numbers: Mapping[str, Number], *, seed: int) -> Best:
    """Return the best coefficient and how it varies if each ECE is drawn from its interval over the test samples."""
    errors = [numbers[f"{pool.data}.{method}.none.ece"] for method in pool.learned]
    values = torch.tensor([error.value for error in errors], dtype=torch.float64)
    widest = [max(error.high - error.value, error.value - error.low) for error in errors]  # either end may be cut at 0
    deviations = torch.tensor(widest, dtype=torch.float64) / _NORMAL
    noise = torch.randn(_DRAWS, len(errors), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    coefficients = torch.tensor([order(method)[2] for method in pool.learned], dtype=torch.float64)
    return Best(pool, float(coefficients[values.argmin()]), coefficients[(values + noise * deviations).argmin(1)])


def _interval(draws: Tensor) -> tuple[float, float]:
    low, high = draws.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high


def size_numbers(groups: Groups, numbers: Mapping[str, Number]) -> dict[str, Number]:
    """Return by how much the best coefficient changes from each number of training samples to the next.

    Args:
        groups: Numbers of the records.
        numbers: Those of each method.
    """
    measured = {}
    for family, sizes in best_coefficients(groups, numbers).items():
        for (fewer, before), (more, after) in pairwise(sizes.items()):
            low, high = _interval(after.draws - before.draws)
            name = f"cifar10.{family} best, {more:,} - {fewer:,} training samples.coefficient"
            measured[name] = Number(after.coefficient - before.coefficient, low, high, "1 seed, test samples")
    return measured


def size_table(groups: Groups, numbers: Mapping[str, Number]) -> str:
    """Return the best coefficients by the number of training samples, with their ECE and accuracy; "" without any.

    Args:
        groups: Numbers of the records.
        numbers: Those of each method.
    """
    lines = []
    for family, sizes in best_coefficients(groups, numbers).items():
        for size, (pool, coefficient, draws) in sizes.items():
            method = next(method for method in pool.learned if order(method)[2] == coefficient)
            low, high = _interval(draws)
            accuracy, error = (numbers[f"{pool.data}.{method}.none.{metric}"] for metric in ("accuracy", "ece"))
            best = f"{coefficient:g} ({low:g} … {high:g})"
            lines.append([FAMILIES[family], f"{size:,}", best, interval(error, 2), interval(accuracy, 2)])
    heads = ["coefficient", "training samples", "lowest ECE at", "ECE there", "accuracy there"]
    return plain_table(heads, lines) if lines else ""


def draw_sizes(groups: Groups, numbers: Mapping[str, Number], path: Path) -> None:
    """Draw the ECE by the coefficient, a panel per family and a line per number of training samples.

    Args:
        groups: Numbers of the records.
        numbers: Those of each method.
        path: File of the figure.
    """
    from calibrant.plots.layout import SIZES, bare_axes, name_axes, new_figure, theme_named

    theme = theme_named("light")
    families = best_coefficients(groups, numbers)
    figure = new_figure(theme, width=9.6, height=3.6)
    axes = figure.subplots(1, len(families), squeeze=False, sharey=True)[0]
    looks = ((theme.over, "o", "-"), (theme.under, "D", "--"), (theme.ink, "s", ":"))
    for ax, (family, sizes) in zip(axes, families.items(), strict=True):
        bare_axes(ax, theme, lines=True)
        for (colour, marker, line), (pool, coefficient, _) in zip(looks, sizes.values(), strict=False):
            x = [order(method)[2] for method in pool.methods]
            shown = [numbers[f"{pool.data}.{method}.none.ece"] for method in pool.methods]
            ends = [number.low for number in shown], [number.high for number in shown]
            ax.vlines(x, *ends, color=colour, linewidth=1.3)
            label = title_of(pool.data).partition(", ")[2]
            ax.plot(x, [number.value for number in shown], color=colour, linestyle=line, linewidth=1.4, label=label)
            fills = [colour if value == coefficient else theme.background for value in x]
            ax.scatter(
                x, [number.value for number in shown], color=fills, edgecolor=colour, marker=marker, s=30, zorder=3
            )
        name_axes(ax, theme, FAMILIES[family], "ECE, %" if ax is axes[0] else "")
    axes[0].set_ylim(bottom=0)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, frameon=False, fontsize=SIZES["note"], labelcolor=theme.ink, loc="outside upper left", ncols=3
    )
    save(figure, path)

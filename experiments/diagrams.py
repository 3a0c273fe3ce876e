"""Figures that several studies draw from what their records count: reliability, densities, logits by learned epoch."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from experiments.page import save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_densities", "draw_key", "draw_learned", "draw_reliability"]

_SQUARE = 2.3  # inches, side of a panel
_COLUMNS = 4


def draw_reliability(panels: Mapping[str, Sequence[Sequence[float]]], path: Path, *, columns: int = _COLUMNS) -> None:
    """Draw accuracy by mean confidence of bins, a panel per network; a dot's area is its share of the samples.

    Args:
        panels: Count, mean confidence and accuracy of each bin, by title.
        path: Of the figure.
        columns: Panels beside one another, at most.
    """
    from calibrant.plots.layout import percent_ticks, theme_named

    theme = theme_named("light")
    figure, axes = _panels(list(panels), columns, ("Confidence, %", "Accuracy, %"), height=1.16 * _SQUARE)
    for ax, bins in zip(axes, panels.values(), strict=True):
        counts, confidence, accuracy = zip(*bins, strict=True)
        sizes = [8 + 300 * count / sum(counts) for count in counts]
        ax.plot((0, 1), (0, 1), color=theme.muted, linewidth=1, linestyle=(0, (4, 2)))
        ax.vlines(confidence, confidence, accuracy, color=theme.over, linewidth=1.6 if len(counts) < 40 else 0.9)
        ax.scatter(confidence, accuracy, s=sizes, color=theme.under, linewidth=0, clip_on=False, zorder=3)
        ax.set(xlim=(0, 1.02), ylim=(0, 1.02), aspect="equal", xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter(percent_ticks())
    save(figure, path)


def draw_densities(panels: Mapping[str, Mapping[str, Sequence[int]]], path: Path, *, columns: int = _COLUMNS) -> None:
    """Draw how confidences of right and of wrong predictions are spread, each as a share of its own.

    Args:
        panels: Numbers of ``right`` and ``wrong`` predictions in bins of equal width, by title.
        path: Of the figure.
        columns: Panels beside one another, at most.
    """
    from calibrant.plots.layout import percent_ticks, theme_named

    theme = theme_named("light")
    figure, axes = _panels(list(panels), columns, ("Confidence, %", "Share of its kind, log scale"))
    looks = (("wrong", theme.over, "--"), ("right", theme.under, "-"))
    for ax, counts in zip(axes, panels.values(), strict=True):
        for kind, colour, line in looks:
            n, total = len(counts[kind]), max(sum(counts[kind]), 1)
            shares = [count / total for count in counts[kind]]
            edges = [place / n for place in range(n + 1)]
            ax.stairs(shares, edges, color=colour, linestyle=line, linewidth=1.5, label=kind)
        ax.set_yscale("log")
        ax.set(xlim=(0, 1), ylim=(5e-4, 1), xticks=(0, 0.5, 1))
        ax.xaxis.set_major_formatter(percent_ticks())
    draw_key(figure, "outside upper left", len(looks))
    save(figure, path)


def draw_learned(panels: Mapping[str, Mapping[str, Any]], path: Path, *, columns: int = _COLUMNS) -> None:
    """Draw how the largest logits of training samples are spread, by the epochs since which they are right.

    Args:
        panels: Edges and counts of each part (:func:`experiments.evaluation.logits_by_learned_epoch`), by title.
        path: Of the figure.
        columns: Panels beside one another, at most.
    """
    from calibrant.plots.layout import SIZES, theme_named

    theme = theme_named("light")
    figure, axes = _panels(list(panels), columns, ("Largest logit", "Training samples"), height=3.0)
    shades = ((theme.under, 1.0), (theme.under, 0.65), (theme.under, 0.4), (theme.under, 0.2))
    for ax, values in zip(axes, panels.values(), strict=True):
        base = [0.0] * (len(values["edges"]) - 1)
        named = sorted(values["parts"].items(), key=lambda part: _first_epoch(part[0]))
        looks = [*shades[: len(named) - 1], (theme.over, 1.0)]
        for (name, counts), (colour, alpha) in zip(named, looks, strict=True):
            top = [low + count for low, count in zip(base, counts, strict=True)]
            words = "never" if name == "never" else f"since epoch {name}"
            ax.stairs(top, values["edges"], baseline=base, fill=True, color=colour, alpha=alpha, label=words)
            base = top
        ax.legend(frameon=False, fontsize=SIZES["note"] - 2, labelcolor=theme.ink, loc="best", handlelength=1)
        ax.set_ylim(bottom=0, top=1.45 * max(base))
    save(figure, path)


def _first_epoch(name: str) -> float:
    """Return the first epoch of a part of training samples, such as 12 of "12 to 40"; "never" is after all."""
    return math.inf if name == "never" else int(name.split(maxsplit=1)[0])


def _panels(
    titles: Sequence[str], columns: int, names: tuple[str, str], height: float = _SQUARE
) -> tuple["Figure", list["Axes"]]:
    """Return a figure with a titled panel for each name; axes are named at its left and lower edges."""
    from calibrant.plots.layout import SIZES, bare_axes, name_axes, new_figure, theme_named

    theme = theme_named("light")
    columns = min(columns, len(titles))
    lines = -(-len(titles) // columns)
    figure = new_figure(theme, width=max(0.5 + _SQUARE * columns, 4.0), height=0.5 + height * lines)
    axes = []
    for place, title in enumerate(titles):
        ax = figure.add_subplot(lines, columns, place + 1)
        bare_axes(ax, theme, lines=True)
        ax.set_title(title, loc="left", color=theme.ink, fontsize=SIZES["note"])
        is_lowest = place + columns >= len(titles)
        name_axes(ax, theme, names[0] if is_lowest else "", names[1] if place % columns == 0 else "")
        axes.append(ax)
    return figure, axes


def draw_key(figure: "Figure", where: Literal["outside upper left", "outside lower center"], columns: int) -> None:
    """Draw the key of the lines of a figure's first panel outside its panels."""
    from calibrant.plots.layout import SIZES, theme_named

    handles, labels = figure.axes[0].get_legend_handles_labels()
    looks = {"frameon": False, "fontsize": SIZES["note"], "labelcolor": theme_named("light").ink}
    figure.legend(handles, labels, loc=where, ncols=columns, handlelength=3, **looks)

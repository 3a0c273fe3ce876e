"""How confident the right and the wrong answers are, as two densities."""

import math

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter
from torch import Tensor

from calibrant.diagrams.density import ConfidenceDensity
from calibrant.plots.layout import (
    Corner,
    bare_axes,
    horizontal_lines,
    key,
    name_axes,
    new_axes,
    percent,
    percent_ticks,
    title,
)
from calibrant.plots.marks import OVER_HATCH
from calibrant.plots.style import Look, ThemeName, theme_named

__all__ = ["plot_density"]


def plot_density(diagram: ConfidenceDensity, *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """Draw the densities of confidence of right and of wrong answers; each has area 1.

    Right answers are plain under a solid line, wrong ones hatched under a dashed line.

    Args:
        diagram: From :func:`calibrant.diagrams.confidence_density`.
        ax: Where to draw; a figure of its own unless given.
        theme: "light" or "dark"; the figure behind the axes takes its background too.

    Returns:
        The axes.
    """
    colours = theme_named(theme)
    ax = new_axes(colours, width=6.2, height=4.3) if ax is None else ax
    bare_axes(ax, colours)
    horizontal_lines(ax, colours)
    right: Look = {"facecolor": colours.under_tint, "edgecolor": colours.under}
    wrong: Look = {"facecolor": colours.over_tint, "edgecolor": colours.over, "hatch": OVER_HATCH}
    handles: list[Artist] = []
    for density, median, count, name, fill, dashes in (
        (diagram.right, diagram.median_right, diagram.n_right, "right", right, "-"),
        (diagram.wrong, diagram.median_wrong, diagram.n_wrong, "wrong", wrong, (0, (4, 1.6))),
    ):
        if count:
            t, height = diagram.confidence.numpy(), density.numpy()
            ax.fill_between(t, 0, height, alpha=0.55, linewidth=0, zorder=2, **fill)
            ax.plot(t, height, color=fill["edgecolor"], linewidth=2, linestyle=dashes, zorder=3)
            note = f"{count:,} {name}, median confidence {percent(median)}"
            handles.append(Patch(alpha=0.8, linewidth=0, label=note, **fill))
    key(ax, colours, handles, place=_free_corner(diagram.confidence, diagram.right + diagram.wrong))
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1.05 * float(max(diagram.right.max(), diagram.wrong.max())))
    ax.xaxis.set_major_formatter(percent_ticks())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda height, _: f"{height:g}"))
    name_axes(ax, colours, "Confidence, %", "Density")
    told_apart = "" if math.isnan(diagram.auroc) else f"AUROC {percent(diagram.auroc)}  ·  "
    n = diagram.n_right + diagram.n_wrong
    title(ax, colours, "Confidence of right and wrong answers", f"{told_apart}n = {n:,}")
    return ax


def _free_corner(t: Tensor, height: Tensor) -> Corner:
    """Top corner on the side where the densities are lower."""
    return "upper left" if height[t < 0.5].max() < height[t > 0.5].max() else "upper right"

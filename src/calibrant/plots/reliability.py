"""The reliability diagram: accuracy against confidence."""

import numpy as np
from matplotlib.axes import Axes

from calibrant.diagrams.reliability import ReliabilityDiagram
from calibrant.plots.comparison import draw_comparison
from calibrant.plots.layout import Corner, bare_axes, key, name_axes, new_axes, percent, percent_ticks, title
from calibrant.plots.marks import band_handle, curve_handle, draw_band, draw_bars, draw_diagonal, gap_handles
from calibrant.plots.strip import STRIP_FLOOR, STRIP_SHARE, draw_strip
from calibrant.plots.style import Theme, ThemeName, theme_named

__all__ = ["plot_reliability"]

_MANY_BINS = 25


def plot_reliability(
    diagram: ReliabilityDiagram,
    *,
    other: ReliabilityDiagram | None = None,
    labels: tuple[str, str] = ("before", "after"),
    ax: Axes | None = None,
    theme: ThemeName = "light",
) -> Axes:
    """Draw accuracy against confidence: bars, their gaps, what chance allows, and the curve without bins.

    Overconfident gaps are hatched and stand on the bar; underconfident ones are dark, dotted and part of it. The strip
    below shows the share of rows in every bin. With ``other``, both sets are drawn as curves with a dot a bin.

    Args:
        diagram: From :func:`calibrant.diagrams.reliability`.
        other: A second set to compare with.
        labels: Names of the two sets.
        ax: Where to draw; a figure of its own unless given.
        theme: "light" or "dark"; the figure behind the axes takes its background too.

    Returns:
        The axes.
    """
    colours = theme_named(theme)
    ax = new_axes(colours, width=5.2, height=6.1) if ax is None else ax
    bare_axes(ax, colours)
    draw_diagonal(ax, colours)
    draw_band(ax, diagram.bins, colours)
    if other is None:
        draw_bars(ax, diagram.bins, colours)
        _draw_curve(ax, diagram, colours)
        draw_strip(ax, [diagram], colours)
        curve = [] if diagram.curve.accuracy.isnan().all() else [curve_handle(colours)]
        handles = [*curve, *gap_handles(diagram.bins, colours), band_handle(colours)]
        key(ax, colours, handles, place=_free_corner(diagram), floor=STRIP_SHARE)
        numbers = f"accuracy {percent(diagram.accuracy)}  ·  mean confidence {percent(diagram.confidence)}"
        title(ax, colours, f"Reliability: ECE {percent(diagram.ece)}", f"{numbers}  ·  n = {diagram.n:,}")
    else:
        draw_comparison(ax, (diagram, other), labels, colours)
    _frame(ax, colours)
    return ax


def _draw_curve(ax: Axes, diagram: ReliabilityDiagram, theme: Theme) -> None:
    curve, bins = diagram.curve, diagram.bins
    ax.plot(
        curve.confidence.numpy(), curve.accuracy.numpy(), color=theme.ink, linewidth=2, solid_capstyle="round", zorder=4
    )
    ax.plot(
        bins.confidence.numpy(), bins.accuracy.numpy(), linestyle="none", marker="o", clip_on=False, zorder=5,
        markersize=4.5 if len(bins.count) <= _MANY_BINS else 3,
        markerfacecolor=theme.background, markeredgecolor=theme.ink, markeredgewidth=1.1,
    )  # fmt: skip


def _free_corner(diagram: ReliabilityDiagram) -> Corner:
    """Top left, unless bars of low confidence reach up there."""
    bins = diagram.bins
    reach = np.maximum(bins.accuracy.numpy(), bins.confidence.numpy())
    return "lower right" if (reach[bins.low.numpy() < 0.5] > 0.72).any() else "upper left"


def _frame(ax: Axes, theme: Theme) -> None:
    ax.set(xlim=(0, 1), ylim=(STRIP_FLOOR, 1), aspect="equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(np.linspace(0, 1, 6))
        axis.set_major_formatter(percent_ticks())
    ax.spines["left"].set_bounds(0, 1)
    name_axes(ax, theme, "Confidence, %", "Accuracy, %")
    # Centred on the panel, not on panel and strip.
    ax.yaxis.set_label_coords(-0.11, (1 + STRIP_SHARE) / 2)

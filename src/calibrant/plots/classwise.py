"""Reliability class by class, as small multiples."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from calibrant.diagrams.classwise import ClassReliability, ClasswiseDiagram
from calibrant.plots.layout import bare_axes, new_figure, percent, percent_ticks
from calibrant.plots.lollipops import draw_lollipops, lollipop_handles
from calibrant.plots.marks import draw_diagonal
from calibrant.plots.style import SIZES, Theme, ThemeName, theme_named

__all__ = ["plot_classwise"]

_COLUMNS = 4
_LONGEST_NAME = 20
_NARROWEST, _HEAD = 6.4, 0.7  # inches that the key needs across, and title and key down


def plot_classwise(diagram: ClasswiseDiagram, *, figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw a small reliability diagram for each class, the worst first.

    Args:
        diagram: From :func:`calibrant.diagrams.classwise_reliability`.
        figure: Where to draw; a new one unless given.
        theme: "light" or "dark"; the figure takes its background too.

    Returns:
        The figure: a row with title and key, then a panel for each class.
    """
    colours = theme_named(theme)
    columns = min(_COLUMNS, len(diagram.classes))
    rows = math.ceil(len(diagram.classes) / columns)
    side = min(3.2, max(2.3, _NARROWEST / columns))
    if figure is None:
        figure = new_figure(colours, width=max(_NARROWEST, side * columns) + 0.6, height=(side + 0.2) * rows + 1.3)
    grid = figure.add_gridspec(rows + 1, columns, height_ratios=[_HEAD / side] + [1.0] * rows)
    _head(figure.add_subplot(grid[0, :]), diagram, colours)
    for place, of in enumerate(diagram.classes):
        ax = figure.add_subplot(grid[place // columns + 1, place % columns])
        below = place + columns < len(diagram.classes)
        _panel(ax, of, colours, label_x=not below, label_y=place % columns == 0)
    figure.supxlabel("Probability of the class, %", color=colours.muted, fontsize=SIZES["label"])
    figure.supylabel("Rows that are of the class, %", color=colours.muted, fontsize=SIZES["label"])
    return figure


def _head(ax: Axes, diagram: ClasswiseDiagram, theme: Theme) -> None:
    """Title on the left, key under it."""
    ax.axis("off")
    shown = len(diagram.classes)
    which = f"the {shown} worst of {diagram.n_classes} classes" if shown < diagram.n_classes else f"{shown} classes"
    heading = ax.text(
        0, 1, "Reliability by class", color=theme.ink, fontsize=SIZES["title"], fontweight="bold", va="top"
    )
    detail = ax.annotate(
        f"{which}  ·  classwise ECE {percent(diagram.sce, 2)}  ·  n = {diagram.n:,}", (0, 1), xytext=(0, -19),
        textcoords="offset points", color=theme.muted, fontsize=SIZES["detail"], va="top",
    )  # fmt: skip
    handles = lollipop_handles([of.bins for of in diagram.classes], theme)
    below = ax.transAxes + ScaledTranslation(0, -38 / 72, ax.figure.dpi_scale_trans)
    legend = ax.legend(
        handles=handles, loc="upper left", ncols=len(handles), fontsize=SIZES["note"], labelcolor=theme.ink,
        frameon=False, borderaxespad=0, borderpad=0, handlelength=1.2, columnspacing=1.6,
        bbox_to_anchor=(0, 1), bbox_transform=below,
    )  # fmt: skip
    for artist in (heading, detail, legend):
        artist.set_in_layout(False)  # the panels need not make room: this row has its own


def _panel(ax: Axes, of: ClassReliability, theme: Theme, *, label_x: bool, label_y: bool) -> None:
    bare_axes(ax, theme)
    draw_diagonal(ax, theme)
    draw_lollipops(ax, of.bins, theme)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    for axis, labelled in ((ax.xaxis, label_x), (ax.yaxis, label_y)):
        axis.set_ticks(np.linspace(0, 1, 3))
        axis.set_major_formatter(percent_ticks())
        axis.set_tick_params(labelleft=labelled, labelbottom=labelled)
    name = of.name if len(of.name) <= _LONGEST_NAME else of.name[: _LONGEST_NAME - 1] + "…"
    ax.set_title(name, loc="left", color=theme.ink, fontsize=SIZES["label"], fontweight="bold", pad=18)
    ax.annotate(
        f"error {percent(of.error, 2)}  ·  {of.rows:,} rows", (0, 1), xycoords="axes fraction", xytext=(0, 5),
        textcoords="offset points", color=theme.muted, fontsize=SIZES["note"], va="bottom",
    )  # fmt: skip

"""On shifted sets that have no severities: ECE, accuracy and AUROC beside those on the clean rows."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from calibrant.diagnosis import ShiftPanel, ShiftRow, ShiftSummary
from calibrant.diagnosis.fitting import RAW, TEMPERATURE
from calibrant.errors import InputError
from calibrant.plots.diagnosis.looks import MapLook, map_looks
from calibrant.plots.diagnosis.panels import shortened
from calibrant.plots.diagnosis.ranges import known, seeds_words
from calibrant.plots.head import draw_head
from calibrant.plots.layout import bare_axes, new_figure
from calibrant.plots.metric_axes import metric_axis
from calibrant.plots.style import SIZES, Look, Theme, ThemeName, theme_named

__all__ = ["plot_shifted_sets"]

_LINE, _SET, _HEAD, _FOOT = 0.27, 0.5, 0.8, 0.6  # inches: a candidate, a set beside these, the head, below
_WIDTH = 9.6
_METRICS = ("ece", "accuracy", "auroc")
_LANES = {RAW: -0.16, TEMPERATURE: 0.16}
_LONGEST_NAME = 28


def plot_shifted_sets(panel: ShiftPanel, *, figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw three panels a set, a line a candidate: the clean rows first, on the same axes.

    A mark is the mean over runs, on the range from the lowest to the highest. The maps were fitted on clean rows.

    Args:
        panel: From :func:`calibrant.diagnosis.shift_panel`.
        figure: Where to draw; a new one unless given.
        theme: "light" or "dark"; the figure takes its background too.

    Returns:
        The figure.

    Raises:
        InputError: If all sets have severities.
    """
    sets = [each for each in panel.sets if each.severity is None]
    if len(sets) < 2:  # the clean rows and another
        raise InputError("a shifted set must have no severities to be drawn beside the clean rows; there is none.")
    colours = theme_named(theme)
    names = list(dict.fromkeys(row.candidate for row in panel.rows))
    looks = map_looks((RAW, TEMPERATURE), colours, oracle=False)
    titles = shortened([each.shift for each in sets], _LONGEST_NAME)
    body = _LINE * len(names)
    if figure is None:
        figure = new_figure(colours, width=_WIDTH, height=_HEAD + (body + _SET) * len(sets) + _FOOT)
    grid = figure.add_gridspec(1 + len(sets), len(_METRICS), height_ratios=[_HEAD / body] + [1.0] * len(sets))
    handles: list[Line2D] = [look.handle(lined=False) for look in looks]
    handles.append(
        Line2D([], [], label="accuracy, the same for both", linestyle="none", color=colours.ink, **_either_mark())
    )
    detail = f"{seeds_words(len(row.metrics['ece'].values) for row in panel.rows)}; maps fitted on clean rows"
    draw_head(figure.add_subplot(grid[0, :]), colours, "Under natural shift", detail, handles)
    for column, metric in enumerate(_METRICS):
        shared: Axes | None = None
        for line, each in enumerate(sets):
            ax = figure.add_subplot(grid[1 + line, column], sharex=shared)
            shared = shared or ax
            _frame(ax, names if not column else [], len(names), colours)
            _draw(ax, [row for row in panel.rows if _is_of(row, each)], names, metric, looks, colours)
            ax.tick_params(labelbottom=line == len(sets) - 1)
            if not column:
                words = f"{titles[each.shift]}, {each.n:,} row{'s' * (each.n != 1)}"
                ax.set_title(words, loc="left", color=colours.ink, fontsize=SIZES["label"], fontweight="bold", pad=5)
        assert shared is not None, "there are sets"
        axis = metric_axis(metric)
        axis.set_ticks(shared.xaxis, 4)
        ends = known(end for row in panel.rows if row.severity is None and row.map in _LANES
                     for end in (row.metrics[metric].lowest, row.metrics[metric].highest)) or [0.0, 1.0]  # fmt: skip
        room = 0.06 * (max(ends) - min(ends)) or 0.01
        shared.set_xlim(0 if metric == "ece" else min(ends) - room, max(ends) + room)
        words = f"← better    {axis.words}" if metric == "ece" else f"{axis.words}    better →"
        ax.set_xlabel(words, color=colours.muted, fontsize=SIZES["label"])
    return figure


def _is_of(row: ShiftRow, of: ShiftSummary) -> bool:
    return (row.shift, row.source, row.severity) == (of.shift, of.source, of.severity) and row.map in _LANES


def _draw(
    ax: Axes, rows: Sequence[ShiftRow], names: Sequence[str], metric: str, looks: Sequence[MapLook], theme: Theme
) -> None:
    for row in rows:
        found, look = row.metrics[metric], next(look for look in looks if look.name == row.map)
        mark, colour, lane = look.mark, look.line["color"], _LANES[row.map]
        if metric == "accuracy":  # a temperature keeps every answer, so that there is one
            mark, colour, lane = _either_mark(), theme.ink, 0.0
        if math.isnan(found.mean) or (metric == "accuracy" and row.map != RAW):
            continue
        y = names.index(row.candidate) + lane
        ax.hlines(y, found.lowest, found.highest, color=colour, linewidth=1.4, zorder=2)
        ax.plot(found.mean, y, linestyle="none", color=colour, zorder=3, **mark)


def _either_mark() -> Look:
    return {"marker": "D", "markersize": 4.6, "markeredgewidth": 0}


def _frame(ax: Axes, names: Sequence[str], lines: int, theme: Theme) -> None:
    bare_axes(ax, theme)
    ax.hlines([place + 0.5 for place in range(lines - 1)], 0, 1, transform=ax.get_yaxis_transform(),
              color=theme.faint, linewidth=0.8, zorder=0)  # fmt: skip
    ax.set_yticks(range(lines), list(shortened(names, _LONGEST_NAME).values()) or [""] * lines)
    ax.set_ylim(lines - 0.5, -0.5)
    ax.tick_params(axis="y", length=0, labelcolor=theme.ink)
    ax.spines["left"].set_visible(False)

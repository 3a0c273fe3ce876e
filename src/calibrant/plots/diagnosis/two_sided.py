"""Both sides of the verdict at once: the ECE that temperature scaling leaves, and how well errors are separated."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from calibrant.diagnosis import Diagnosis, Verdict
from calibrant.diagnosis.fitting import RAW, TEMPERATURE
from calibrant.plots.diagnosis.labels import NamedPoint, name_points
from calibrant.plots.diagnosis.panels import shortened
from calibrant.plots.diagnosis.ranges import percents_across, seeds_words
from calibrant.plots.dots import dot_look
from calibrant.plots.head import draw_head
from calibrant.plots.layout import bare_axes, name_axes, new_figure, percent_ticks
from calibrant.plots.style import SIZES, Look, Theme, ThemeName, theme_named

__all__ = ["plot_two_sided"]

_WIDTH, _HEIGHT, _HEAD = 8.2, 6.0, 0.8  # inches
_LONGEST_NAME = 26
_ROOM = 0.14  # of the span of AUROC, above and below


def plot_two_sided(diagnosis: Diagnosis, *, figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw a point a candidate: ECE after temperature scaling across, AUROC of the network as it is upwards.

    Upper left is better. Lines through a point are its range over runs. An upright triangle is better than the
    reference beyond noise on one side and not worse on the other, an inverted one the reverse; a diamond is better on
    one side and worse on the other; a hollow circle cannot be told from it. A candidate without one of the numbers is
    named above the map and is not on it.

    Args:
        diagnosis: From :func:`calibrant.diagnosis.diagnose`.
        figure: Where to draw; a new one unless given.
        theme: "light" or "dark"; the figure takes its background too.

    Returns:
        The figure.
    """
    colours = theme_named(theme)
    points = _points(diagnosis)
    shown = [each for each in points if not math.isnan(each.x) and not math.isnan(each.y)]
    if figure is None:
        figure = new_figure(colours, width=_WIDTH, height=_HEIGHT)
    grid = figure.add_gridspec(2, 1, height_ratios=(_HEAD, _HEIGHT - _HEAD))
    names = shortened([each.name for each in points], _LONGEST_NAME)
    missing = [names[each.name] for each in points if each not in shown]
    _draw_head(figure.add_subplot(grid[0]), diagnosis, missing, colours)
    ax = figure.add_subplot(grid[1])
    bare_axes(ax, colours)
    verdicts = {each.candidate: each for each in diagnosis.verdicts}
    for each in shown:
        look = _reference_look(colours) if each.name == diagnosis.reference else _look(verdicts[each.name], colours)
        ax.hlines(each.y, each.left, each.right, color=look["color"], linewidth=1.2, alpha=0.7, zorder=2)
        ax.vlines(each.x, each.low, each.high, color=look["color"], linewidth=1.2, alpha=0.7, zorder=2)
        ax.plot(each.x, each.y, linestyle="none", zorder=4, **look)
        if each.name == diagnosis.reference:
            dashes: Look = {"color": colours.muted, "linewidth": 1, "linestyle": (0, (4, 3)), "zorder": 1}
            ax.axvline(each.x, **dashes)
            ax.axhline(each.y, **dashes)
    _frame(ax, shown, colours)
    better = ax.annotate(
        "↖ better", (0, 1), xycoords="axes fraction", xytext=(6, -4), textcoords="offset points",
        va="top", color=colours.under, fontsize=SIZES["label"], fontweight="bold",
    )  # fmt: skip
    better.set_in_layout(False)
    figure.draw_without_rendering()
    named = [each._replace(name=names[each.name]) for each in shown]
    name_points(ax, named, colours, taken=[better.get_window_extent()])
    return figure


def _points(diagnosis: Diagnosis) -> list[NamedPoint]:
    found = []
    for able, fine in zip(diagnosis.calibratability, diagnosis.refinement, strict=True):
        ece = able.ece[TEMPERATURE]
        auroc = next(row.metrics["auroc"] for row in fine.rows if row.map == RAW)
        found.append(
            NamedPoint(able.candidate, ece.mean, auroc.mean, ece.lowest, ece.highest, auroc.lowest, auroc.highest)
        )
    return found


def _look(verdict: Verdict, theme: Theme) -> Look:
    """By shape and colour, of the two sides that the map shows."""
    sides = {verdict.ece_after_temperature.side, verdict.auroc.side}
    if {"better", "worse"} <= sides:
        return _mixed_look(theme)
    return dot_look("better" if "better" in sides else "worse" if "worse" in sides else "alike", theme)


def _mixed_look(theme: Theme) -> Look:
    return {"marker": "D", "markersize": 6, "markeredgewidth": 0, "color": theme.muted}


def _reference_look(theme: Theme) -> Look:
    return {"marker": "s", "markersize": 7, "markeredgewidth": 0, "color": theme.ink}


def _frame(ax: Axes, points: Sequence[NamedPoint], theme: Theme) -> None:
    by_factors = percents_across(ax, [end for each in points for end in (each.left, each.right)])
    low, high = min((each.low for each in points), default=0.5), max((each.high for each in points), default=1.0)
    room = _ROOM * (high - low) or 0.01
    ax.set_ylim(low - room, high + room)
    ax.yaxis.set_major_locator(MaxNLocator(6))
    ax.yaxis.set_major_formatter(percent_ticks())
    words = "ECE after temperature scaling, %" + ("  (by factors)" if by_factors else "")
    name_axes(ax, theme, words, "AUROC of right against wrong answers, as it is, %")


def _draw_head(ax: Axes, diagnosis: Diagnosis, missing: Sequence[str], theme: Theme) -> None:
    kinds: list[tuple[str, Look]] = [("reference (dashed lines)", _reference_look(theme))]
    if diagnosis.verdicts:
        kinds.append(("better", dot_look("better", theme)))
        kinds.append(("worse", dot_look("worse", theme)))
        kinds.append(("better and worse", _mixed_look(theme)))
        kinds.append(("cannot be told from it", dot_look("alike", theme)))
    handles = [Line2D([], [], label=words, linestyle="none", **look) for words, look in kinds]
    parts = [f"{seeds_words(len(each.seeds) for each in diagnosis.candidates)}  ·  {diagnosis.n:,} test rows"]
    if missing:
        parts.append(f"not to be had for {', '.join(missing)}")
    draw_head(ax, theme, "What temperature scaling leaves, and how errors are separated", "  ·  ".join(parts), handles)

"""Dots with intervals, one below the other: the marks of a leaderboard."""

import math
from collections.abc import Callable
from typing import NamedTuple

from matplotlib.axes import Axes

from calibrant.diagrams.leaderboard import Dot, DotSide
from calibrant.plots.style import SIZES, Look, Theme

__all__ = ["Panel", "dot_look", "draw_dots"]

# Dots worse than a good one (a third of the way down) by more than this many times its distance from the best stand
# at the edge: what matters is the difference between the good ones.
_FAR = 3


class Panel(NamedTuple):
    """What one panel shows: a dot a line from the top, and the rival's, where a line is drawn through."""

    dots: list[Dot]
    rival: Dot | None
    number: Callable[[float], str]  # how to write what stands at the edge
    high_is_good: bool = False
    floor: float = -math.inf


def draw_dots(ax: Axes, panel: Panel, theme: Theme) -> None:
    """Draw the dots, and set the limits so that those that matter have room."""
    low, high = _limits(panel)
    ax.set_xlim(low, high)
    if panel.rival is not None and low <= panel.rival.value <= high:
        ax.axvline(panel.rival.value, color=theme.muted, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    for place, dot in enumerate(panel.dots):
        if math.isnan(dot.value):
            continue
        look = dot_look(dot.side, theme)
        if low <= dot.value <= high:
            if not math.isnan(dot.low):
                ax.hlines(place, max(dot.low, low), min(dot.high, high), color=look["color"], linewidth=1.6, zorder=2)
            ax.plot(dot.value, place, linestyle="none", zorder=3, **look)
        else:
            _at_the_edge(ax, panel.number(dot.value), place, theme, look["color"], right=dot.value > high)


def dot_look(side: DotSide, theme: Theme) -> Look:
    """By shape and colour: better points up, worse down, alike is hollow."""
    if side == "alike":
        return {"marker": "o", "markersize": 5, "color": theme.muted, "markerfacecolor": theme.background,
                "markeredgewidth": 1.2}  # fmt: skip
    better = side == "better"
    return {"marker": "^" if better else "v", "markersize": 7, "markeredgewidth": 0,
            "color": theme.under if better else theme.over}  # fmt: skip


def _limits(panel: Panel) -> tuple[float, float]:
    """Room for every interval, except of dots that are far worse than a good one."""
    sign = -1 if panel.high_is_good else 1
    known = [dot for dot in panel.dots if not math.isnan(dot.value)]
    if not known:
        return 0.0, 1.0
    # Ends as they would be if low were good.
    ends = [sorted(sign * end for end in _ends(dot)) for dot in known]
    values = [sign * dot.value for dot in known]
    best, good = min(end[0] for end in ends), sorted(values)[len(values) // 3]
    furthest = good + _FAR * (good - best)
    if panel.rival is not None and not math.isnan(panel.rival.value):
        furthest = max(furthest, sign * panel.rival.value)
    worst = max(end[1] for value, end in zip(values, ends, strict=True) if value <= furthest)
    room = 0.06 * (worst - best) or 0.01
    low, high = sorted((sign * (best - room), sign * (worst + room)))
    return max(low, panel.floor), high


def _ends(dot: Dot) -> tuple[float, float]:
    return (dot.value, dot.value) if math.isnan(dot.low) else (min(dot.low, dot.value), max(dot.high, dot.value))


def _at_the_edge(ax: Axes, text: str, place: int, theme: Theme, colour: str, *, right: bool) -> None:
    """The number with an arrow that points to where it would be."""
    ax.annotate(
        f"{text} ▸" if right else f"◂ {text}", (1 if right else 0, place), xycoords=("axes fraction", "data"),
        xytext=(-2 if right else 2, 0), textcoords="offset points", ha="right" if right else "left", va="center",
        color=colour, fontsize=SIZES["note"], bbox={"facecolor": theme.background, "edgecolor": "none", "pad": 0.6},
    )  # fmt: skip

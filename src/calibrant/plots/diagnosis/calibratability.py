"""Calibratability: the ECE of every candidate as it is, after each map, and at the best temperature there is."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from calibrant.diagnosis import Calibratability, Diagnosis, Spread
from calibrant.diagnosis.calibratability import ORACLE
from calibrant.diagnosis.fitting import RAW, TEMPERATURE
from calibrant.plots.diagnosis.looks import MapLook, map_looks
from calibrant.plots.diagnosis.panels import shortened
from calibrant.plots.diagnosis.ranges import percents_across, seeds_words
from calibrant.plots.head import draw_head
from calibrant.plots.layout import bare_axes, new_figure
from calibrant.plots.style import SIZES, Theme, ThemeName, theme_named

__all__ = ["plot_calibratability"]

_LANE, _GAP, _HEAD, _FOOT = 0.115, 0.16, 0.8, 0.95  # inches: a mark's lane, between candidates, the head, below
_NAMES, _KEY = 2.5, 1.62  # inches across: of the names, and of an entry of the key
_LONGEST_NAME = 28


def plot_calibratability(diagnosis: Diagnosis, *, figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw a line a candidate, with a mark for the network as it is and for what each map makes of it.

    A mark is the mean over runs, on the range from the lowest to the highest. The columns on the right give the place
    of each candidate by its mean, as it is and after temperature scaling: where they differ, the raw ECE is no guide to
    what can be had. Places are of means, without regard to noise.

    Args:
        diagnosis: From :func:`calibrant.diagnosis.diagnose`.
        figure: Where to draw; a new one unless given.
        theme: "light" or "dark"; the figure takes its background too.

    Returns:
        The figure.

    Reference:
        Wang, Feng & Zhang (2021), Rethinking Calibration of Deep Neural Networks: Do Not Be Afraid of Overconfidence,
        Table 2.
    """
    colours = theme_named(theme)
    rows, looks = diagnosis.calibratability, map_looks(diagnosis.maps, colours)
    body = (len(looks) * _LANE + _GAP) * len(rows)
    if figure is None:
        figure = new_figure(colours, width=_NAMES + _KEY * len(looks), height=_HEAD + body + _FOOT)
    grid = figure.add_gridspec(2, 2, height_ratios=(_HEAD / (body + _FOOT - 0.3), 1), width_ratios=(1, 0.2))
    _draw_head(figure.add_subplot(grid[0, :]), diagnosis, looks, colours)
    ax = figure.add_subplot(grid[1, 0])
    _draw_marks(ax, rows, looks, colours, reference=diagnosis.reference)
    if len(rows) > 1:
        _draw_places(figure.add_subplot(grid[1, 1], sharey=ax), rows, colours)
    return figure


def _draw_marks(
    ax: Axes, rows: Sequence[Calibratability], looks: Sequence[MapLook], theme: Theme, *, reference: str
) -> None:
    bare_axes(ax, theme)
    step = _LANE / (len(looks) * _LANE + _GAP)
    ax.hlines([place + 0.5 for place in range(len(rows) - 1)], 0, 1, transform=ax.get_yaxis_transform(),
              color=theme.faint, linewidth=0.8, zorder=0)  # fmt: skip
    for place, row in enumerate(rows):
        for lane, look in enumerate(looks):
            found, y = _spread(row, look.name), place + step * (lane - (len(looks) - 1) / 2)
            if math.isnan(found.mean):
                continue
            ax.hlines(y, found.lowest, found.highest, color=look.line["color"], linewidth=1.4, zorder=2)
            ax.plot(found.mean, y, linestyle="none", color=look.line["color"], zorder=3, **look.mark)
            if row.candidate == reference and look.name == TEMPERATURE:
                ax.axvline(found.mean, color=theme.muted, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    names = shortened([row.candidate for row in rows], _LONGEST_NAME)
    drawn = [_spread(row, look.name) for row in rows for look in looks]
    by_factors = percents_across(ax, [end for each in drawn for end in (each.lowest, each.highest)])
    words = "← better    ECE, %" + ("  (by factors)" if by_factors else "")
    ax.set_xlabel(words, color=theme.muted, fontsize=SIZES["label"])
    ax.set_yticks(range(len(rows)), list(names.values()))
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0, labelcolor=theme.ink)
    ax.spines["left"].set_visible(False)


def _draw_places(ax: Axes, rows: Sequence[Calibratability], theme: Theme) -> None:
    """Two columns of numbers: 1 is the lowest mean."""
    bare_axes(ax, theme)
    ax.set(xlim=(0, 1), xticks=[])
    ax.tick_params(labelleft=False, length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    for x, name, words in ((0.2, RAW, "as it is"), (0.75, TEMPERATURE, "after TS")):
        ax.annotate(words, (x, 1), xycoords="axes fraction", xytext=(0, 3), textcoords="offset points", ha="center",
                    va="bottom", color=theme.muted, fontsize=SIZES["note"])  # fmt: skip
        for line, place in enumerate(_places([row.ece[name].mean for row in rows])):
            ax.text(x, line, place, ha="center", va="center", color=theme.ink, fontsize=SIZES["label"])
    ax.set_title("place by ECE", color=theme.muted, fontsize=SIZES["note"], pad=17)


def _places(values: Sequence[float]) -> list[str]:
    """The place of each value, 1 for the lowest.

    Example:
        >>> _places([0.2, 0.1, float("nan"), 0.2])
        ['2', '1', '–', '2']
    """
    return ["–" if math.isnan(value) else str(1 + sum(other < value for other in values)) for value in values]


def _spread(row: Calibratability, name: str) -> Spread:
    return row.optimal_ece if name == ORACLE else row.ece[name]


def _draw_head(ax: Axes, diagnosis: Diagnosis, looks: Sequence[MapLook], theme: Theme) -> None:
    names = shortened([row.candidate for row in diagnosis.calibratability], _LONGEST_NAME)
    failed = sum(len(row.failures) for row in diagnosis.calibratability)
    parts = [
        seeds_words(len(each.seeds) for each in diagnosis.candidates),
        f"{diagnosis.n:,} test rows",
        f"dashed line: {names[diagnosis.reference]} after temperature scaling",
        *([f"{failed} fit{'s' * (failed > 1)} failed"] if failed else []),
    ]
    handles: list[Line2D] = [look.handle(lined=False) for look in looks]
    draw_head(ax, theme, "Calibratability: what post-hoc maps leave of the error", "  ·  ".join(parts), handles)

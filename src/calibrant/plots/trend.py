"""Draw metrics over time: a panel each, with the periods in which they changed."""

import itertools

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from calibrant.errors import without_middle
from calibrant.plots import layout
from calibrant.plots.layout import Look, Theme, ThemeName
from calibrant.scale.trend import Trend

_HEAD, _PANEL, _MOST_NAMES, _LONGEST = 0.75, 1.9, 12, 14
_ACROSS = 92  # characters that have room below a panel


def plot_trend(trend: Trend, *, name: str = "", figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw every metric over the periods with its 95 % interval, and the level since the last change as a dashed line.

    A diamond marks a period in which a metric changed beyond chance.
    """
    colours, panels = layout.theme_named(theme), len(trend.metrics)
    figure = layout.open_figure(figure, colours, width=8.4, height=_HEAD + _PANEL * panels + 0.4)
    grid = figure.add_gridspec(1 + panels, 1, height_ratios=(_HEAD / _PANEL, *[1] * panels))
    handles = [
        Line2D([], [], label="value and 95 % interval", **_dot(colours)),
        Line2D([], [], label="changed beyond chance", linestyle="none", **_diamond(colours)),
        Line2D([], [], label="mean since the last change", **colours.dashes),
    ]
    n = sum(period.n for period in trend.periods)
    parts = [without_middle(name, 32), f"{len(trend.periods)} periods", f"{n:,} samples"]
    head = figure.add_subplot(grid[0])
    layout.draw_head(head, colours, "Over time", layout.DOT.join(filter(None, parts)), handles)
    first: Axes | None = None
    for row, metric in enumerate(trend.metrics, start=1):
        ax = figure.add_subplot(grid[row], sharex=first)
        first = first or ax
        layout.bare_axes(ax, colours, lines=True)
        _draw(ax, trend, metric, colours)
        axis = layout.metric_axis(metric)
        axis.set_ticks(ax.yaxis, 4)
        layout.name_axes(ax, colours, "", axis.words)
        ax.tick_params(labelbottom=row == panels)
    assert first is not None
    longest = min(_LONGEST, max(len(period.name) for period in trend.periods))
    step = -(-len(trend.periods) // min(_MOST_NAMES, int(_ACROSS / (longest + 2))))
    places = range(0, len(trend.periods), step)
    first.set_xticks(places, [without_middle(trend.periods[place].name, _LONGEST) for place in places])
    first.set_xlim(-0.5, len(trend.periods) - 0.5)
    return figure


def _draw(ax: Axes, trend: Trend, metric: str, theme: Theme) -> None:
    estimates = [period.metrics[metric] for period in trend.periods]
    places, values = range(len(estimates)), [one.value for one in estimates]
    ax.vlines(places, [one.low for one in estimates], [one.high for one in estimates], color=theme.muted, linewidth=1.6)
    ax.plot(places, values, linestyle="none", zorder=3, **_dot(theme, line=False))
    changed = [trend.periods.index(period) for period in trend.changed(metric)]
    ax.plot(changed, [values[place] for place in changed], linestyle="none", zorder=4, **_diamond(theme))
    levels = trend.levels(metric)
    for start, end in itertools.pairwise([0, *changed, len(values)]):
        ax.hlines(levels[start], start - 0.4, end - 0.6, zorder=1, **theme.dashes)


def _dot(theme: Theme, *, line: bool = True) -> Look:
    look: Look = {"marker": "o", "markersize": 5.5, "markerfacecolor": theme.ink, "markeredgecolor": theme.background}
    return {**look, "color": theme.muted, "linewidth": 1.6} if line else look


def _diamond(theme: Theme) -> Look:
    return {"marker": "D", "markersize": 8, "markerfacecolor": theme.over, "markeredgecolor": theme.background}

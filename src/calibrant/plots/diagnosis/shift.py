"""Diagnosis under shift: over the severity of corruptions, and on shifted sets beside the clean samples."""

import math
from collections.abc import Iterable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

from calibrant.diagnosis import ShiftLevel, ShiftPanel, Spread
from calibrant.diagnosis.evaluated import TEMPERATURE, UNCALIBRATED
from calibrant.diagnosis.shift import ShiftSource
from calibrant.errors import InputError
from calibrant.plots import layout
from calibrant.plots.diagnosis import panels
from calibrant.plots.diagnosis.panels import MapLook
from calibrant.plots.layout import DOT, Look, ThemeName
from calibrant.text import counted

_HEIGHTS = {"ece": 1.1, "accuracy": 0.85, "auroc": 0.85}  # inches of the three panels over severity
_ROOM = 0.08  # margin at both ends, as a share of the span of an axis
_LINE, _SET, _HEAD, _FOOT = 0.27, 0.5, 0.8, 0.6  # inches: a candidate, a set besides these, the head, below
_WIDTH = 9.6
_LANES = {UNCALIBRATED: -0.16, TEMPERATURE: 0.16}
_LONGEST_NAME = 28
_SAME = "accuracy, the same for both"  # a temperature keeps every prediction


def plot_shift(
    panel: ShiftPanel, *, source: ShiftSource = "corruption", figure: Figure | None = None, theme: ThemeName = "light"
) -> Figure:
    """Draw three panels for each candidate over severity, means over corruptions; severity 0 is the clean samples.

    The maps were fitted on clean samples. The gap above a candidate is its mean confidence minus its accuracy at the
    highest severity: above 0 it is overconfident. Temperature scaling leaves the accuracy unchanged.

    Raises:
        InputError: If no set of this source has a severity.
    """
    of_source, levels = panel.levels_by_source.get(source, {}), dict[str, dict[str, list[ShiftLevel]]]()
    for (candidate, name, _), level in of_source.items():
        if name in _LANES:
            levels.setdefault(candidate, {}).setdefault(name, []).append(level)
    if not levels:
        raise InputError(f"a set of source {source!r} must have severities to be drawn over them; none has.")
    colours = layout.theme_named(theme)
    looks = panels.map_looks((UNCALIBRATED, TEMPERATURE), colours, oracle=False)
    grid = panels.panel_grid(list(levels), colours, figure=figure, heights=tuple(_HEIGHTS.values()))
    shifts = list(dict.fromkeys(name for level in of_source.values() for name in level.shifts))[1:]
    over = f"mean over {len(shifts)} corruptions" if len(shifts) > 1 else str(shifts[0]).replace("_", " ")
    accuracy: Look = {"color": colours.ink, "linewidth": 1.6}
    handles: list[Line2D] = [look.handle(lined=True) for look in looks]
    handles.append(Line2D([], [], label=_SAME, **accuracy))
    detail = f"{over}; {_seeds(panel)}{DOT}gap: confidence − accuracy, points{DOT}{panels.TS}"
    layout.draw_head(grid.head, colours, "Under corruption", detail, handles)
    first: dict[str, Axes] = {}
    of_maps: list[tuple[str, Look, Look | None]] = [(look.name, look.line, look.mark) for look in looks]
    for place, by_map in enumerate(levels.values()):
        for line, metric in enumerate(_HEIGHTS):
            ax = grid.add(place, line, detail=_gaps(by_map), sharey=first.get(metric))
            first.setdefault(metric, ax)
            _draw_severities(ax, by_map, metric, [(UNCALIBRATED, accuracy, None)] if metric == "accuracy" else of_maps)
            ax.tick_params(labelleft=grid.is_left(place), labelbottom=line == len(_HEIGHTS) - 1)
            if grid.is_left(place):
                layout.name_axes(ax, colours, y=layout.metric_axis(metric).words)
    drawn = [level for by_map in levels.values() for of_map in by_map.values() for level in of_map]
    for metric, ax in first.items():
        spreads = [level.metrics[metric] for level in drawn]
        if metric == "ece":
            ax.set_ylim(0, panels.room_above(spread.highest for spread in spreads))
        else:
            ax.set_ylim(*_limits(spreads, _ROOM))
    grid.name_axes("Severity")
    grid.figure.align_ylabels()
    return grid.figure


def _seeds(panel: ShiftPanel) -> str:
    return panels.seeds_words(any(len(row.metrics["ece"].values) > 1 for row in panel.rows))


def _limits(spreads: Iterable[Spread], margin: float) -> tuple[float, float]:
    """Return limits around all ranges, with this share of the span at both ends."""
    ends = panels.known(end for spread in spreads for end in (spread.lowest, spread.highest)) or [0.0, 1.0]
    room = margin * (max(ends) - min(ends)) or 0.01
    return min(ends) - room, max(ends) + room


def _draw_severities(
    ax: Axes, by_map: Mapping[str, Sequence[ShiftLevel]], metric: str, lines: Sequence[tuple[str, Look, Look | None]]
) -> None:
    for name, line, mark in lines:
        if levels := by_map.get(name):
            band = panels.band_of([level.metrics[metric] for level in levels])
            panels.draw_range(ax, [float(level.severity) for level in levels], band, line, mark)
    severities = [level.severity for level in by_map[UNCALIBRATED]]
    ax.xaxis.set_major_locator(FixedLocator(severities))
    ax.set_xlim(severities[0] - 0.25, severities[-1] + 0.25)
    layout.percent_axis(ax.yaxis, 4 if metric == "ece" else 3)


def _gaps(by_map: Mapping[str, Sequence[ShiftLevel]]) -> str:
    """Write the gaps at the highest severity, uncalibrated and after temperature scaling."""
    last = [by_map[name][-1].metrics["gap"].mean for name in (UNCALIBRATED, TEMPERATURE) if name in by_map]
    gaps = [f"{100 * gap:+.1f}" if math.isfinite(gap) else "–" for gap in last]
    severity = by_map[UNCALIBRATED][-1].severity
    return f"gap at {severity}: {', after TS '.join(gaps)}".replace("-", "−")


def plot_shifted_sets(panel: ShiftPanel, *, figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw three panels for each set, with a row for each candidate: the clean samples first, on the same axes.

    A mark is the mean over runs, on the range from the lowest to the highest. The maps were fitted on clean samples.

    Raises:
        InputError: If all sets have severities.
    """
    sets = panel.sets_without_severity
    if len(sets) < 2:  # the clean samples and another
        raise InputError("a shifted set must have no severities to be drawn beside the clean samples; there is none.")
    colours = layout.theme_named(theme)
    names = list(dict.fromkeys(row.candidate for row in panel.rows))
    looks = {look.name: look for look in panels.map_looks((UNCALIBRATED, TEMPERATURE), colours, oracle=False)}
    titles = panels.shortened([summary.shift for summary in sets], _LONGEST_NAME)
    short, body = list(panels.shortened(names, _LONGEST_NAME).values()), _LINE * len(names)
    figure = layout.open_figure(figure, colours, width=_WIDTH, height=_HEAD + (body + _SET) * len(sets) + _FOOT)
    metrics = tuple(_HEIGHTS)
    grid = figure.add_gridspec(1 + len(sets), len(metrics), height_ratios=[_HEAD / body] + [1.0] * len(sets))
    accuracy = MapLook(
        UNCALIBRATED, _SAME, {"marker": "D", "markersize": 4.6, "markeredgewidth": 0}, {"color": colours.ink}
    )
    handles: list[Line2D] = [look.handle(lined=False) for look in (*looks.values(), accuracy)]
    detail = f"{_seeds(panel)}; maps fitted on clean samples"
    layout.draw_head(figure.add_subplot(grid[0, :]), colours, "Under natural shift", detail, handles)
    for column, metric in enumerate(metrics):
        shared: Axes | None = None
        for line, summary in enumerate(sets):
            ax = figure.add_subplot(grid[1 + line, column], sharex=shared)
            shared = shared or ax
            layout.row_axes(ax, colours, short if not column else [""] * len(names))
            for (candidate, name), row in panel.rows_of(summary).items():
                y, spread = names.index(candidate), row.metrics[metric]
                if metric != "accuracy" and name in _LANES:
                    panels.draw_mark(ax, y + _LANES[name], spread, looks[name])
                elif metric == "accuracy" and name == UNCALIBRATED:
                    panels.draw_mark(ax, y, spread, accuracy)
            ax.tick_params(labelbottom=line == len(sets) - 1)
            if not column:
                words = f"{titles[summary.shift]}, {counted(summary.n, 'sample')}"
                layout.bold_title(ax, colours, words, pad=5)
        assert shared is not None, "there are sets"
        axis = layout.metric_axis(metric)
        axis.set_ticks(shared.xaxis, 4)
        drawn = [row.metrics[metric] for row in panel.rows if row.severity is None and row.map in _LANES]
        low, high = _limits(drawn, 0.06)
        shared.set_xlim(0 if metric == "ece" else low, high)
        words = f"← better    {axis.words}" if metric == "ece" else f"{axis.words}    better →"
        layout.name_axes(ax, colours, words)
    return figure

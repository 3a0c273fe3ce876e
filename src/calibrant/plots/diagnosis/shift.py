"""Under rising corruption: ECE, accuracy and AUROC, as networks are and after temperature scaling."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator

from calibrant.diagnosis import ShiftLevel, ShiftPanel
from calibrant.diagnosis.fitting import RAW, TEMPERATURE
from calibrant.diagnosis.shifted_sets import ShiftSource
from calibrant.errors import InputError
from calibrant.plots.diagnosis.looks import MapLook, map_looks
from calibrant.plots.diagnosis.panels import panel_grid, panel_title
from calibrant.plots.diagnosis.ranges import band_of, draw_range, known, room_above, seeds_words
from calibrant.plots.head import draw_head
from calibrant.plots.layout import bare_axes, horizontal_lines, percent_ticks
from calibrant.plots.style import SIZES, Look, Theme, ThemeName, theme_named

__all__ = ["plot_shift"]

_HEIGHTS = (1.1, 0.85, 0.85)  # inches of the three panels
_METRICS = {"ece": "ECE, %", "accuracy": "Accuracy, %", "auroc": "AUROC, %"}
_ROOM = 0.08


def plot_shift(
    panel: ShiftPanel, *, source: ShiftSource = "corruption", figure: Figure | None = None, theme: ThemeName = "light"
) -> Figure:
    """Draw three panels a candidate over severity, in the mean over corruptions; severity 0 is the clean rows.

    The maps were fitted on clean rows. The gap above a candidate is its mean confidence minus its accuracy at the
    highest severity: above 0 it claims too much. Temperature scaling leaves the accuracy alone.

    Args:
        panel: From :func:`calibrant.diagnosis.shift_panel`.
        source: "corruption" for those that the library makes, "file" for those read from files of five severities.
        figure: Where to draw; a new one unless given.
        theme: "light" or "dark"; the figure takes its background too.

    Returns:
        The figure.

    Raises:
        InputError: If no set of this source has a severity.
    """
    levels: dict[str, dict[str, list[ShiftLevel]]] = {}
    for level in panel.levels:
        if level.source == source and level.map in {RAW, TEMPERATURE}:
            levels.setdefault(level.candidate, {}).setdefault(level.map, []).append(level)
    if not levels:
        raise InputError(f"a set of source {source!r} must have severities to be drawn over them; none has.")
    colours = theme_named(theme)
    looks = map_looks((RAW, TEMPERATURE), colours, oracle=False)
    grid = panel_grid(list(levels), colours, figure=figure, heights=_HEIGHTS)
    shifts = list(dict.fromkeys(name for level in panel.levels if level.source == source for name in level.shifts))[1:]
    over = f"mean over {len(shifts)} corruptions" if len(shifts) > 1 else str(shifts[0]).replace("_", " ")
    seeds = seeds_words(len(row.metrics["ece"].values) for row in panel.rows)
    handles: list[Line2D] = [look.handle(lined=True) for look in looks]
    handles.append(Line2D([], [], label="accuracy, the same for both", **_either_look(colours)))
    draw_head(
        grid.head,
        colours,
        "Under corruption",
        f"{over}; {seeds}  ·  gap: mean confidence minus accuracy",
        handles,
    )
    first: dict[str, Axes] = {}
    for place, by_map in enumerate(levels.values()):
        for line, metric in enumerate(_METRICS):
            ax = grid.figure.add_subplot(grid.cells[place][line], sharey=first.get(metric))
            first.setdefault(metric, ax)
            _draw(ax, by_map, metric, looks, colours)
            ax.tick_params(labelleft=grid.is_left(place), labelbottom=line == len(_METRICS) - 1)
            if grid.is_left(place):
                ax.set_ylabel(_METRICS[metric], color=colours.muted, fontsize=SIZES["label"])
            if not line:
                panel_title(ax, colours, grid.names[place], _gaps(by_map))
    for metric, ax in first.items():
        _limits(ax, metric, [level for by_map in levels.values() for of_map in by_map.values() for level in of_map])
    grid.name_axes(colours, "Severity")
    grid.figure.align_ylabels()
    return grid.figure


def _draw(
    ax: Axes, by_map: Mapping[str, Sequence[ShiftLevel]], metric: str, looks: Sequence[MapLook], theme: Theme
) -> None:
    bare_axes(ax, theme)
    horizontal_lines(ax, theme)
    # A temperature keeps every answer, so that there is one accuracy.
    lines = (
        [(RAW, _either_look(theme), None)]
        if metric == "accuracy"
        else [(look.name, look.line, look.mark) for look in looks]
    )
    for name, line, mark in lines:
        if levels := by_map.get(name):
            band = band_of([level.metrics[metric] for level in levels])
            draw_range(ax, [float(level.severity) for level in levels], band, line, mark)
    severities = [level.severity for level in by_map[RAW]]
    ax.xaxis.set_major_locator(FixedLocator(severities))
    ax.set_xlim(severities[0] - 0.25, severities[-1] + 0.25)
    ax.yaxis.set_major_locator(MaxNLocator(4 if metric == "ece" else 3))
    ax.yaxis.set_major_formatter(percent_ticks())


def _limits(ax: Axes, metric: str, levels: Sequence[ShiftLevel]) -> None:
    spreads = [level.metrics[metric] for level in levels]
    if metric == "ece":
        ax.set_ylim(0, room_above(each.highest for each in spreads))
        return
    ends = known(end for each in spreads for end in (each.lowest, each.highest)) or [0.0, 1.0]
    room = _ROOM * (max(ends) - min(ends)) or 0.01
    ax.set_ylim(min(ends) - room, max(ends) + room)


def _gaps(by_map: Mapping[str, Sequence[ShiftLevel]]) -> str:
    """Which way it is off in the end, before and after."""
    last = {name: levels[-1].metrics["gap"].mean for name, levels in by_map.items()}
    told = [f"{100 * last[name]:+.1f}" if known([last[name]]) else "–" for name in (RAW, TEMPERATURE) if name in last]
    severity = by_map[RAW][-1].severity
    return f"gap at {severity}: {', after TS '.join(told)} points".replace("-", "−")


def _either_look(theme: Theme) -> Look:
    return {"color": theme.ink, "linewidth": 1.6}

"""Diagnosis of candidates side by side: calibratability, the two-sided verdict, and densities of confidence."""

import math
from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from calibrant.diagnosis import Calibratability, Diagnosis, Refinement, RefinementRow
from calibrant.diagnosis.evaluated import TEMPERATURE, UNCALIBRATED
from calibrant.diagnosis.summaries import ORACLE
from calibrant.plots import layout
from calibrant.plots.comparison import dot_look
from calibrant.plots.diagnosis import panels
from calibrant.plots.layout import DOT, SIZES, Look, Theme, ThemeName
from calibrant.text import counted, percent

# Calibratability, in inches: a mark's lane, between candidates, the head, below; names, and an entry of the legend.
_LANE, _GAP, _HEAD, _FOOT, _NAMES, _KEY = 0.115, 0.16, 0.8, 0.95, 2.5, 1.62
_LONGEST_NAME = 28
_MAP_WIDTH, _MAP_HEIGHT = 9.0, 6.2  # inches of the two-sided map
_ROOM = 0.14  # margin above and below, as a share of the span of AUROC
_DENSITY = 0.85  # inches: height of a panel of densities
# Where a name may stand, seen from its point, the nearest first: to the sides before above and below.
_WAYS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))
_DISTANCES = (9, 18, 30, 44, 60)  # points
_PLACES = [(way, distance if 0 in way else 0.7 * distance) for distance in _DISTANCES for way in _WAYS]
_NEAR = 12  # points; from further off a thin line leads to the point
# Costs per point on the display, besides that of distance: to cover a name or a mark, a range, or to stick out.
_COVER, _CROSS, _LEAVE = 10, 5, 50


def plot_calibratability(diagnosis: Diagnosis, *, figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw a row for each candidate, with a mark for the uncalibrated network and for each map.

    A mark is the mean over runs, on the range from the lowest to the highest. The columns on the right give the rank
    of each candidate by its mean, uncalibrated and after temperature scaling: where they differ, the uncalibrated ECE
    is no guide to what can be reached. Ranks go by means, without regard to noise (Wang et al. 2021, Table 2).
    """
    colours = layout.theme_named(theme)
    rows, looks = diagnosis.calibratability, panels.map_looks(diagnosis.maps, colours)
    names = panels.shortened([row.candidate for row in rows], _LONGEST_NAME)
    body = (len(looks) * _LANE + _GAP) * len(rows)
    figure = layout.open_figure(figure, colours, width=_NAMES + _KEY * len(looks), height=_HEAD + body + _FOOT)
    grid = figure.add_gridspec(2, 2, height_ratios=(_HEAD / (body + _FOOT - 0.3), 1), width_ratios=(1, 0.24))
    failed = sum(len(row.failures) for row in rows)
    parts = [panels.seeds_words(diagnosis.has_seeds), panels.samples_words(diagnosis)]
    parts.append(f"dashed line: {names[diagnosis.baseline]} after temperature scaling")
    if failed:
        parts.append(f"{counted(failed, 'fit')} failed")
    handles: list[Line2D] = [look.handle(lined=False) for look in looks]
    heading = "Calibratability: error left after post-hoc calibration"
    layout.draw_head(figure.add_subplot(grid[0, :]), colours, heading, DOT.join(parts), handles)
    ax = figure.add_subplot(grid[1, 0])
    layout.row_axes(ax, colours, list(names.values()))
    step, ends = _LANE / (len(looks) * _LANE + _GAP), []
    for place, row in enumerate(rows):
        for lane, look in enumerate(looks):
            spread = row.optimal_ece if look.name == ORACLE else row.ece[look.name]
            ends += [spread.lowest, spread.highest]
            panels.draw_mark(ax, place + step * (lane - (len(looks) - 1) / 2), spread, look)
        if row.candidate == diagnosis.baseline and not math.isnan(row.ece[TEMPERATURE].mean):
            ax.axvline(row.ece[TEMPERATURE].mean, zorder=1, **colours.dashes)
    layout.name_axes(ax, colours, f"← better    ECE, %{panels.percents_across(ax, ends)}")
    if len(rows) > 1:
        _draw_ranks(figure.add_subplot(grid[1, 1], sharey=ax), rows, colours)
    return figure


def _draw_ranks(ax: Axes, rows: Sequence[Calibratability], theme: Theme) -> None:
    """Write two columns of ranks: 1 is the lowest mean."""
    layout.bare_axes(ax, theme)
    ax.set(xlim=(0, 1), xticks=[])
    ax.tick_params(labelleft=False, length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    for x, name, words in ((0.2, UNCALIBRATED, "uncalibrated"), (0.8, TEMPERATURE, "after TS")):
        layout.note(ax, theme, words, (x, 1), (0, 3), ha="center", va="bottom")
        for line, rank in enumerate(_ranks([row.ece[name].mean for row in rows])):
            ax.text(x, line, rank, ha="center", va="center", color=theme.ink, fontsize=SIZES["label"])
    ax.set_title("rank by ECE", color=theme.muted, fontsize=SIZES["note"], pad=17)


def _ranks(values: Sequence[float]) -> list[str]:
    """Return the rank of each value, 1 for the lowest.

    Example:
        >>> _ranks([0.2, 0.1, float("nan"), 0.2])
        ['2', '1', '–', '2']
    """
    return ["–" if math.isnan(value) else str(1 + sum(other < value for other in values)) for value in values]


class _NamedPoint(NamedTuple):
    """A point in data coordinates, and the range about it that names should not cover."""

    name: str
    x: float
    y: float
    left: float
    right: float
    low: float
    high: float


def plot_two_sided(diagnosis: Diagnosis, *, figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw a point for each candidate: ECE after temperature scaling across, AUROC uncalibrated upwards.

    Upper left is better. Lines through a point are its range over runs. An upright triangle is better than the
    baseline beyond noise on one side and not worse on the other, an inverted one the reverse; a diamond is better on
    one side and worse on the other; a hollow circle differs by no more than noise. A candidate without one of the
    numbers is named above the map and is not on it.
    """
    colours = layout.theme_named(theme)
    points = []
    for able, fine in zip(diagnosis.calibratability, diagnosis.refinement, strict=True):
        ece = able.ece[TEMPERATURE]
        auroc = next(row.metrics["auroc"] for row in fine.rows if row.map == UNCALIBRATED)
        ends = (ece.lowest, ece.highest, auroc.lowest, auroc.highest)
        points.append(_NamedPoint(able.candidate, ece.mean, auroc.mean, *ends))
    shown = [point for point in points if not math.isnan(point.x) and not math.isnan(point.y)]
    names = panels.shortened([point.name for point in points], _LONGEST_NAME)
    figure = layout.open_figure(figure, colours, width=_MAP_WIDTH, height=_MAP_HEIGHT)
    grid = figure.add_gridspec(2, 1, height_ratios=(_HEAD, _MAP_HEIGHT - _HEAD))
    missing = [names[point.name] for point in points if point not in shown]
    baseline: Look = {"marker": "s", "markersize": 7, "markeredgewidth": 0, "color": colours.ink}
    mixed: Look = {"marker": "D", "markersize": 6, "markeredgewidth": 0, "color": colours.muted}
    kinds = {"baseline (dashed lines)": baseline}
    if diagnosis.verdicts:
        kinds |= {"better": dot_look("better", colours), "worse": dot_look("worse", colours)}
        kinds |= {"better and worse": mixed, "no difference beyond noise": dot_look("alike", colours)}
    handles = [Line2D([], [], label=words, linestyle="none", **look) for words, look in kinds.items()]
    parts = [panels.seeds_words(diagnosis.has_seeds), panels.samples_words(diagnosis)]
    parts += [f"not available for {', '.join(missing)}"] if missing else []
    heading = "Error left by temperature scaling, and separation of errors"
    layout.draw_head(figure.add_subplot(grid[0]), colours, heading, DOT.join(parts), handles)
    ax = figure.add_subplot(grid[1])
    layout.bare_axes(ax, colours)
    verdicts = {verdict.candidate: verdict for verdict in diagnosis.verdicts}
    for point in shown:
        is_baseline = point.name == diagnosis.baseline
        own = () if is_baseline else (verdicts[point.name].ece_after_temperature, verdicts[point.name].auroc)
        sides = {difference.side for difference in own} - {"alike"}
        look = mixed if len(sides) > 1 else dot_look(next(iter(sides), "alike"), colours)
        look = baseline if is_baseline else look
        ax.hlines(point.y, point.left, point.right, color=look["color"], linewidth=1.2, alpha=0.7, zorder=2)
        ax.vlines(point.x, point.low, point.high, color=look["color"], linewidth=1.2, alpha=0.7, zorder=2)
        ax.plot(point.x, point.y, linestyle="none", zorder=4, **look)
        if is_baseline:
            ax.axvline(point.x, zorder=1, **colours.dashes)
            ax.axhline(point.y, zorder=1, **colours.dashes)
    scale = panels.percents_across(ax, [end for point in shown for end in (point.left, point.right)])
    low, high = min((point.low for point in shown), default=0.5), max((point.high for point in shown), default=1.0)
    room = _ROOM * (high - low) or 0.01
    ax.set_ylim(low - room, high + room)
    layout.percent_axis(ax.yaxis, 6)
    layout.name_axes(ax, colours, f"ECE after temperature scaling, %{scale}", "AUROC of correctness, uncalibrated, %")
    look = {"va": "top", "color": colours.under, "fontsize": SIZES["label"], "fontweight": "bold"}
    better = layout.note(ax, colours, "↖ better", (0, 1), (6, -4), **look)
    better.set_in_layout(False)
    figure.draw_without_rendering()
    named = [point._replace(name=names[point.name]) for point in shown]
    _name_points(ax, named, colours, taken=[better.get_window_extent()])
    return figure


def _name_points(ax: Axes, points: Sequence[_NamedPoint], theme: Theme, *, taken: Sequence[Bbox] = ()) -> None:
    """Write each name at the place that costs least, in the order given; limits must have been set."""
    if not points:
        return
    cast("Figure", ax.figure).draw_without_rendering()  # only now is it known where a point lies on the display
    scale, frame = ax.figure.dpi / 72, np.array(ax.get_window_extent().extents)
    marks = _boxes(ax, [(point.x, point.y, point.x, point.y) for point in points], 4 * scale)
    across = [(point.left, point.y, point.right, point.y) for point in points]
    ranges = _boxes(ax, [*across, *((point.x, point.low, point.x, point.high) for point in points)], scale)
    covered = np.concatenate([marks, *(np.array([box.extents]) for box in taken)])
    ways, reach = np.array([way for way, _ in _PLACES]), np.array([[reach] for _, reach in _PLACES])
    look: Look = {"xycoords": "data", "color": theme.ink, "annotation_clip": False, "zorder": 6}
    look["bbox"] = {"facecolor": theme.background, "edgecolor": "none", "alpha": 0.75, "pad": 0.8}
    for point in points:
        name = layout.note(ax, theme, point.name, (point.x, point.y), **look)
        name.set_in_layout(False)
        size = np.array(name.get_window_extent().size)
        middles = ax.transData.transform((point.x, point.y)) + ways * (size / 2 + scale * reach)
        boxes = np.concatenate([middles - size / 2, middles + size / 2], axis=1)
        outside = np.concatenate([frame[:2] - boxes[:, :2], boxes[:, 2:] - frame[2:]], axis=1).clip(min=0).sum(1)
        costs = _COVER * _shared(boxes, covered) + _CROSS * _shared(boxes, ranges) + _LEAVE * outside
        best = int(np.argmin(costs + reach[:, 0]))
        _move(ax, name, *_PLACES[best], theme)
        covered = np.concatenate([covered, boxes[best : best + 1]])


def _boxes(ax: Axes, corners: Sequence[tuple[float, float, float, float]], room: float) -> np.ndarray:
    """Return boxes on the display, (n, 4): left, low, right, high; from the same in data coordinates."""
    placed = ax.transData.transform(np.array(corners).reshape(-1, 2)).reshape(-1, 4)
    return placed + room * np.array([-1, -1, 1, 1])


def _shared(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return how much each box covers of the others, as the sum of the roots of the areas."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    area: np.ndarray = (high - low).clip(min=0).prod(-1)
    return np.sqrt(area).sum(1)


def _move(ax: Axes, name: Annotation, way: tuple[int, int], reach: float, theme: Theme) -> None:
    name.set(ha={1: "left", 0: "center", -1: "right"}[way[0]], va={1: "bottom", 0: "center", -1: "top"}[way[1]])
    name.set_position((way[0] * reach, way[1] * reach))
    if reach > _NEAR:
        line = ax.annotate(
            "", name.xy, xytext=name.get_position(), textcoords="offset points", annotation_clip=False, zorder=1,
            arrowprops={"arrowstyle": "-", "color": theme.muted, "linewidth": 0.7, "shrinkA": 1, "shrinkB": 4},
        )  # fmt: skip
        line.set_in_layout(False)


def plot_densities(diagnosis: Diagnosis, *, figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw two panels for each candidate, uncalibrated above and after temperature scaling below.

    Correct predictions stand on the line, wrong ones hang from it, hatched; every density is drawn to the same height,
    so that a few wrong predictions are visible beside many sharp correct ones. What matters is where they lie, and that
    they do not lie at the same place (Singh et al. 2021, Figure 2).
    """
    colours = layout.theme_named(theme)
    names = [refinement.candidate for refinement in diagnosis.refinement]
    grid = panels.panel_grid(names, colours, figure=figure, heights=(_DENSITY, _DENSITY))
    handles = [
        Patch(label="correct predictions", linewidth=0.8, **colours.good),
        Patch(label="wrong predictions", linewidth=0.8, **colours.bad),
    ]
    seeds = ", mean over seeds" if diagnosis.has_seeds else ""
    detail = f"densities over {panels.samples_words(diagnosis)}{seeds}, each to its own height; lines: medians"
    heading = "Confidence of correct and wrong predictions"
    layout.draw_head(grid.head, colours, heading, f"{detail}{DOT}{panels.TS}", handles)
    for place, refinement in enumerate(diagnosis.refinement):
        for line, (name, words) in enumerate(((UNCALIBRATED, "uncalibrated"), (TEMPERATURE, "after TS"))):
            ax = grid.add(place, line, detail=_auroc_words(refinement), lines=False)
            _draw_densities(ax, next(row for row in refinement.rows if row.map == name), colours)
            ax.set_ylabel(words if grid.is_left(place) else "", color=colours.muted, fontsize=SIZES["note"])
            ax.tick_params(labelbottom=bool(line) and grid.is_lowest(place))
    grid.name_axes("Confidence, %")
    return grid.figure


def _draw_densities(ax: Axes, row: RefinementRow, theme: Theme) -> None:
    ax.set(xlim=(0, 1), ylim=(-1.08, 1.08), yticks=[])
    ax.spines["left"].set_visible(False)
    ax.axhline(0, color=theme.muted, linewidth=0.8, zorder=3)
    layout.percent_axis(ax.xaxis)
    if row.density is None:
        ax.text(0.5, 0.3, "could not be fitted", ha="center", color=theme.muted, fontsize=SIZES["note"])
        return
    density = row.density
    for heights, median, look, sign in (
        (density.right, density.median_right.mean, theme.good, 1),
        (density.wrong, density.median_wrong.mean, theme.bad, -1),
    ):
        if not math.isnan(median) and max(heights):
            tallest = max(heights)
            scaled = [sign * height / tallest for height in heights]
            ax.fill_between(density.confidence, 0, scaled, linewidth=0.8, zorder=2, **look)
            ax.vlines(median, min(0, sign), max(0, sign), color=theme.ink, linewidth=1.4, zorder=4)


def _auroc_words(refinement: Refinement) -> str:
    """Write the AUROC under both maps; it changes a little, as a temperature changes the order of samples."""
    before, after = (
        next(row for row in refinement.rows if row.map == name).metrics["auroc"].mean
        for name in (UNCALIBRATED, TEMPERATURE)
    )
    if math.isnan(before):
        return "no AUROC"
    return f"AUROC {percent(before)}" + ("" if math.isnan(after) else f", {percent(after)} after TS")

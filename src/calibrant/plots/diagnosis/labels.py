"""Names beside points, where they cover neither each other nor another point."""

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from calibrant.plots.style import SIZES, Theme

__all__ = ["NamedPoint", "name_points"]

# Where a name may stand, seen from its point, the nearest first: to the sides before above and below.
_WAYS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))
_DISTANCES = (9, 18, 30, 44, 60)  # points
_PLACES = [(way, distance if 0 in way else 0.7 * distance) for distance in _DISTANCES for way in _WAYS]
_NEAR = 12  # points; from further off a thin line leads to the point
# What a point on the display costs, beside that of distance: to cover a name or a mark, a range, or to stick out.
_COVER, _CROSS, _LEAVE = 10, 5, 50


class NamedPoint(NamedTuple):
    """A point in data coordinates, and the range about it that names should not cover."""

    name: str
    x: float
    y: float
    left: float
    right: float
    low: float
    high: float


def name_points(ax: Axes, points: Sequence[NamedPoint], theme: Theme, *, taken: Sequence[Bbox] = ()) -> None:
    """Write each name at the place that costs least, in the order given; limits must have been set.

    Args:
        ax: Whose figure is laid out now.
        points: What to name.
        theme: Of the figure.
        taken: More that must not be covered, on the display.
    """
    if not points:
        return
    cast("Figure", ax.figure).draw_without_rendering()  # only now is it known where a point lies on the display
    scale, frame = ax.figure.dpi / 72, np.array(ax.get_window_extent().extents)
    marks = _boxes(ax, [(each.x, each.y, each.x, each.y) for each in points], 4 * scale)
    across = [(each.left, each.y, each.right, each.y) for each in points]
    ranges = _boxes(ax, [*across, *((each.x, each.low, each.x, each.high) for each in points)], scale)
    covered = np.concatenate([marks, *(np.array([each.extents]) for each in taken)])
    ways, reach = np.array([way for way, _ in _PLACES]), np.array([[reach] for _, reach in _PLACES])
    for each in points:
        name = ax.annotate(
            each.name, (each.x, each.y), xytext=(0, 0), textcoords="offset points", color=theme.ink,
            fontsize=SIZES["note"], annotation_clip=False, zorder=6,
            bbox={"facecolor": theme.background, "edgecolor": "none", "alpha": 0.75, "pad": 0.8},
        )  # fmt: skip
        name.set_in_layout(False)
        size = np.array(name.get_window_extent().size)
        middles = ax.transData.transform((each.x, each.y)) + ways * (size / 2 + scale * reach)
        boxes = np.concatenate([middles - size / 2, middles + size / 2], axis=1)
        costs = _COVER * _shared(boxes, covered) + _CROSS * _shared(boxes, ranges) + _LEAVE * _outside(boxes, frame)
        best = int(np.argmin(costs + reach[:, 0]))
        _move(ax, name, *_PLACES[best], theme)
        covered = np.concatenate([covered, boxes[best : best + 1]])


def _boxes(ax: Axes, corners: Sequence[tuple[float, float, float, float]], room: float) -> np.ndarray:
    """On the display, (n, 4): left, low, right, high; from the same in data coordinates."""
    placed = ax.transData.transform(np.array(corners).reshape(-1, 2)).reshape(-1, 4)
    return placed + room * np.array([-1, -1, 1, 1])


def _shared(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """How much each box covers of the others, as the sum of the roots of the areas."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    area: np.ndarray = (high - low).clip(min=0).prod(-1)
    return np.sqrt(area).sum(1)


def _outside(boxes: np.ndarray, frame: np.ndarray) -> np.ndarray:
    """How far each box sticks out."""
    out: np.ndarray = np.concatenate([frame[:2] - boxes[:, :2], boxes[:, 2:] - frame[2:]], axis=1)
    return out.clip(min=0).sum(1)


def _move(ax: Axes, name: Annotation, way: tuple[int, int], reach: float, theme: Theme) -> None:
    name.set(ha={1: "left", 0: "center", -1: "right"}[way[0]], va={1: "bottom", 0: "center", -1: "top"}[way[1]])
    name.set_position((way[0] * reach, way[1] * reach))
    if reach > _NEAR:
        line = ax.annotate(
            "", name.xy, xytext=name.get_position(), textcoords="offset points", annotation_clip=False, zorder=1,
            arrowprops={"arrowstyle": "-", "color": theme.muted, "linewidth": 0.7, "shrinkA": 1, "shrinkB": 4},
        )  # fmt: skip
        line.set_in_layout(False)

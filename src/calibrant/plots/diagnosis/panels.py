"""Small multiples: a panel a candidate, in the order of the diagnosis, under one title and key."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.layout_engine import ConstrainedLayoutEngine

from calibrant.plots.layout import new_figure
from calibrant.plots.style import SIZES, Theme

__all__ = ["PanelGrid", "panel_grid", "panel_title", "shortened"]

_MOST_COLUMNS = 4
_IN_THREES = {3, 5, 6, 9}  # panels, that fill rows of three better than rows of four
# Inches: across, that title and key need; down, of these, of the words above a panel, and of what is below all.
_NARROWEST, _HEAD, _WORDS, _FOOT = 9.0, 0.74, 0.62, 0.75
_KEY = 1.64  # an entry of the key
_LETTER, _MARGIN = 0.1, 0.55  # across: a letter of a title, and beside a panel
_BETWEEN, _GAP, _EDGE = 0.06, 0.1, 0.07  # between panels, between rows of candidates, above and below all


@final
@dataclass(frozen=True)
class PanelGrid:
    """Places for panels, row by row, those of one candidate below each other; and axes for the head."""

    figure: Figure
    head: Axes
    cells: tuple[tuple[SubplotSpec, ...], ...]
    columns: int
    names: tuple[str, ...]  # of the panels, as far as there is room

    def is_left(self, place: int) -> bool:
        """Whether a candidate is the first of its row."""
        return place % self.columns == 0

    def is_lowest(self, place: int) -> bool:
        """Whether no candidate is below."""
        return place + self.columns >= len(self.cells)

    def name_axes(self, theme: Theme, x: str, y: str | None = None) -> None:
        """Names of the axes that all panels share, once."""
        self.figure.supxlabel(x, color=theme.muted, fontsize=SIZES["label"])
        if y is not None:
            self.figure.supylabel(y, color=theme.muted, fontsize=SIZES["label"])


def panel_grid(
    names: Sequence[str],
    theme: Theme,
    *,
    figure: Figure | None,
    heights: Sequence[float],
    width: float = 2.6,
    keys: int = 0,
) -> PanelGrid:
    """Divide a figure so that panels are about as large as asked for.

    Args:
        names: Of candidates, or what else has panels.
        theme: Of the figure.
        figure: A new one unless given.
        heights: Of each candidate's panels, from the top; in inches.
        width: Of a candidate.
        keys: Entries of the key with long words, for which the figure must be wide enough.
    """
    count = len(names)
    columns = 3 if count in _IN_THREES else min(_MOST_COLUMNS, count)
    rows, lines = math.ceil(count / columns), len(heights)
    if figure is None:
        height = _HEAD + rows * (sum(heights) + _WORDS + 2 * _BETWEEN * lines) + (rows - 1) * _GAP + _FOOT
        figure = new_figure(theme, width=max(_NARROWEST, 0.8 + _KEY * keys, width * columns + 0.6), height=height)
        whole = (0, _EDGE / height, 1, 1 - 2 * _EDGE / height)
        figure.set_layout_engine(ConstrainedLayoutEngine(w_pad=0.12, h_pad=_BETWEEN, rect=whole))
    figure.set_facecolor(theme.background)
    ratios = [_HEAD, *([*heights, _GAP] * rows)[:-1]]
    grid = figure.add_gridspec(len(ratios), columns, height_ratios=ratios)
    cells = tuple(
        tuple(grid[1 + place // columns * (lines + 1) + line, place % columns] for line in range(lines))
        for place in range(count)
    )
    short = shortened(names, int((figure.get_figwidth() / columns - _MARGIN) / _LETTER))
    return PanelGrid(figure, figure.add_subplot(grid[0, :]), cells, columns, tuple(short[name] for name in names))


def panel_title(ax: Axes, theme: Theme, name: str, detail: str = "") -> None:
    """A candidate's name, and its numbers under it."""
    ax.set_title(name, loc="left", color=theme.ink, fontsize=SIZES["label"], fontweight="bold", pad=18 if detail else 6)
    told = ax.annotate(
        detail, (0, 1), xycoords="axes fraction", xytext=(0, 5), textcoords="offset points", color=theme.muted,
        fontsize=SIZES["note"], va="bottom", annotation_clip=False,
    )  # fmt: skip
    told.set_in_layout(False)  # above it the title makes room


def shortened(names: Iterable[str], longest: int) -> dict[str, str]:
    """Names without their middle where they are too long, each by its name; no two become the same.

    Of those that would, the words that they share are left out, but for the first where it has room; at last they are
    numbered.

    Example:
        >>> list(shortened(["label_smoothing(smoothing=0.05)"], 20).values())
        ['label_smoo…ing=0.05)']
        >>> list(shortened([f"ce split=holdout epochs={epochs} learning_rate=0.02" for epochs in (2, 5)], 20).values())
        ['ce epochs=2', 'ce epochs=5']
    """
    short = {name: _without_middle(name, longest) for name in names}
    for alike in _alike(short):
        shared = set.intersection(*(set(name.split()) for name in alike))
        for name in alike:
            first, *words = name.split()
            told = " ".join([first, *(word for word in words if word not in shared)])
            if len(told) > longest and first in shared:
                told = told.replace(f"{first} ", "…", 1)
            short[name] = _without_middle(told, longest)
    for place, name in enumerate(chain.from_iterable(_alike(short)), start=1):
        number = f" ({place})"
        short[name] = _without_middle(short[name], longest - len(number)) + number
    return short


def _alike(short: dict[str, str]) -> list[list[str]]:
    """Names that became the same."""
    often = Counter(short.values())
    return [[name for name in short if short[name] == each] for each in often if often[each] > 1]


def _without_middle(name: str, longest: int) -> str:
    if len(name) <= longest:
        return name
    tail = (longest - 1) // 2  # kept, since candidates often differ at the end
    return f"{name[: longest - 1 - tail]}…{name[-tail:]}"

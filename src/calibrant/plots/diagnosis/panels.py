"""Parts shared by the figures of a diagnosis: panels, names, looks of maps, ranges over runs, and axis limits."""

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
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from calibrant.diagnosis import Band, Diagnosis, Spread
from calibrant.diagnosis.evaluated import TEMPERATURE, UNCALIBRATED
from calibrant.diagnosis.summaries import ORACLE
from calibrant.plots import layout
from calibrant.plots.layout import SIZES, Look, Theme
from calibrant.text import samples_text, without_middle

TS = "TS: temperature scaling"
BAND = 0.16  # opacity of a range over runs
_MOST_COLUMNS = 4
_IN_THREES = {3, 5, 6, 9}  # numbers of panels that fill rows of three better than rows of four
# Inches: least width, for title and legend; heights of these, of the text above a panel, and of what is below all.
_NARROWEST, _HEAD, _WORDS, _FOOT = 9.0, 0.74, 0.62, 0.75
_KEY = 1.64  # inches: an entry of the legend
_LETTER, _MARGIN = 0.1, 0.55  # inches: a letter of a title, and beside a panel
_BETWEEN, _GAP, _EDGE = 0.06, 0.1, 0.07  # inches: between panels, between rows of candidates, above and below all
_FEW = 12  # points that are marked one by one
_APART = 0.16  # least distance of two tick labels, as a share of the width
_WIDE = 6  # times: beyond it numbers are read off a logarithmic axis
# Line styles and markers of maps other than the temperature, in their order; repeated if there are more.
_DASHES = ((0, (1, 1.4)), (0, (6, 1.5, 1, 1.5)), (0, (8, 3)), (0, (3, 1.2, 1, 1.2, 1, 1.2)))
_MARKERS = "sD^v"


@final
@dataclass(frozen=True)
class PanelGrid:
    """Places for panels, row by row, those of one candidate below each other; and axes for the head."""

    figure: Figure
    theme: Theme
    head: Axes
    cells: tuple[tuple[SubplotSpec, ...], ...]
    columns: int
    names: tuple[str, ...]  # as far as there is room

    def is_left(self, place: int) -> bool:
        return place % self.columns == 0

    def is_lowest(self, place: int) -> bool:
        return place + self.columns >= len(self.cells)

    def add(self, place: int, line: int = 0, *, detail: str = "", lines: bool = True, **shared: Axes | None) -> Axes:
        """Add a panel of a candidate; the highest has its name as the title, and numbers under the name.

        ``lines`` are faint horizontal ones. ``shared`` are axes whose scale it takes, as ``sharex`` or ``sharey``.
        """
        ax = self.figure.add_subplot(self.cells[place][line], **shared)
        layout.bare_axes(ax, self.theme, lines=lines)
        if line == 0:
            layout.bold_title(ax, self.theme, self.names[place], pad=20 if detail else 6)
            # The title above makes room for it.
            layout.note(ax, self.theme, detail, (0, 1), (0, 5), va="bottom").set_in_layout(False)
        return ax

    def name_axes(self, x: str, y: str = "") -> None:
        """Label the axes that all panels share, once."""
        self.figure.supxlabel(x, color=self.theme.muted, fontsize=SIZES["label"])
        if y:
            self.figure.supylabel(y, color=self.theme.muted, fontsize=SIZES["label"])


def panel_grid(
    names: Sequence[str],
    theme: Theme,
    *,
    figure: Figure | None,
    heights: Sequence[float],
    width: float = 2.6,
    keys: int = 0,
) -> PanelGrid:
    """Divide a figure so that the panels of these candidates have about the requested size, in inches.

    ``keys`` is the number of long entries of the legend, for which the figure must be wide enough.
    """
    count = len(names)
    columns = 3 if count in _IN_THREES else min(_MOST_COLUMNS, count)
    rows, lines = math.ceil(count / columns), len(heights)
    if figure is None:
        height = _HEAD + rows * (sum(heights) + _WORDS + 2 * _BETWEEN * lines) + (rows - 1) * _GAP + _FOOT
        figure = layout.new_figure(
            theme, width=max(_NARROWEST, 0.8 + _KEY * keys, width * columns + 0.6), height=height
        )
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
    return PanelGrid(
        figure, theme, figure.add_subplot(grid[0, :]), cells, columns, tuple(short[name] for name in names)
    )


def shortened(names: Iterable[str], longest: int) -> dict[str, str]:
    """Shorten names that are too long so that all stay different; returned by name.

    A long name loses its middle. Where two become the same, the words that they share are left out, but for the first
    where it has room; at last they are numbered.

    Example:
        >>> list(shortened([f"ce split=holdout epochs={epochs} learning_rate=0.02" for epochs in (2, 5)], 20).values())
        ['ce epochs=2', 'ce epochs=5']
    """
    short = {name: without_middle(name, longest) for name in names}
    for alike in _alike(short):
        shared = set.intersection(*(set(name.split()) for name in alike))
        for name in alike:
            first, *words = name.split()
            text = " ".join([first, *(word for word in words if word not in shared)])
            if len(text) > longest and first in shared:
                text = text.replace(f"{first} ", "…", 1)
            short[name] = without_middle(text, longest)
    for place, name in enumerate(chain.from_iterable(_alike(short)), start=1):
        number = f" ({place})"
        short[name] = without_middle(short[name], longest - len(number)) + number
    return short


def _alike(short: dict[str, str]) -> list[list[str]]:
    """Return the groups of names that became the same."""
    often = Counter(short.values())
    return [[name for name in short if short[name] == text] for text in often if often[text] > 1]


@final
@dataclass(frozen=True)
class MapLook:
    """Look of the uncalibrated network, of one map, or of the oracle, in every figure of a diagnosis."""

    name: str
    words: str
    mark: Look
    line: Look

    def handle(self, *, lined: bool) -> Line2D:
        """Return the entry of the legend."""
        line = self.line if lined else {"color": self.line["color"], "linestyle": "none"}
        return Line2D([], [], label=self.words, **line, **self.mark)


def map_looks(maps: Sequence[str], theme: Theme, *, oracle: bool = True) -> list[MapLook]:
    """Return the looks of these maps in their order, and of the oracle after them."""
    others = [name for name in maps if name not in {UNCALIBRATED, TEMPERATURE}]
    return [_look(name, others, theme) for name in (*maps, *([ORACLE] if oracle else []))]


def _look(name: str, others: Sequence[str], theme: Theme) -> MapLook:
    hollow: Look = {"markerfacecolor": theme.background, "markeredgewidth": 1.4}
    if name == UNCALIBRATED:
        line: Look = {"color": theme.over, "linewidth": 1.7, "linestyle": layout.DASHED}
        return MapLook(name, "uncalibrated", {"marker": "o", "markersize": 5.5, **hollow}, line)
    if name == ORACLE:
        line = {"color": theme.under, "linewidth": 1.2, "linestyle": (0, (2, 1))}
        return MapLook(name, "optimal (oracle)", {"marker": "|", "markersize": 8, "markeredgewidth": 2}, line)
    words = layout.method_title(name)
    words = words[0].lower() + words[1:]
    if name == TEMPERATURE:
        line = {"color": theme.under, "linewidth": 2.2, "linestyle": "-"}
        return MapLook(name, words, {"marker": "o", "markersize": 6, "markeredgewidth": 0}, line)
    place = others.index(name)
    mark: Look = {"marker": _MARKERS[place % len(_MARKERS)], "markersize": 4.6, **hollow}
    dashes, colour = _DASHES[place % len(_DASHES)], (theme.ink, theme.muted)[place % 2]
    return MapLook(name, words, mark, {"color": colour, "linewidth": 1.5, "linestyle": dashes})


def band_of(spreads: Sequence[Spread]) -> Band:
    """Return mean and range of several numbers."""
    return Band(*zip(*((spread.mean, spread.lowest, spread.highest) for spread in spreads), strict=True))


def draw_mark(ax: Axes, y: float, spread: Spread, look: MapLook) -> None:
    """Draw the mean across, on its range over runs, where there is one."""
    if not math.isnan(spread.mean):
        ax.hlines(y, spread.lowest, spread.highest, color=look.line["color"], linewidth=1.4, zorder=2)
        ax.plot(spread.mean, y, linestyle="none", color=look.line["color"], zorder=3, **look.mark)


def draw_range(ax: Axes, x: Sequence[float], band: Band, line: Look, mark: Look | None = None) -> None:
    """Draw the mean as a line, marked at its points where they are few, over its range over runs.

    Where there is a single point, the range is a vertical line.
    """
    marked = (mark or {"marker": "o", "markersize": 4}) if len(x) <= _FEW else {}
    if len(x) > 1:
        ax.fill_between(x, band.lowest, band.highest, color=line["color"], alpha=BAND, linewidth=0, zorder=2)
    else:
        ax.vlines(x, band.lowest, band.highest, color=line["color"], linewidth=1.4, zorder=2)
    ax.plot(x, band.mean, zorder=3, **line, **marked)


def seeds_words(has_several: bool) -> str:
    """Describe what marks and ranges show."""
    return "mean and range over seeds" if has_several else "single runs"


def samples_words(diagnosis: Diagnosis) -> str:
    """Return the number of test samples, with the effective one of weighted samples."""
    return samples_text(diagnosis.n, diagnosis.effective_n, "test sample")


def known(values: Iterable[float]) -> list[float]:
    """Return the finite values."""
    return [value for value in values if math.isfinite(value)]


def room_above(values: Iterable[float]) -> float:
    """Return a limit a little above the largest value, and at least 0.01."""
    return max(1.08 * max(known(values), default=0.0), 0.01)


def are_wide(values: Sequence[float]) -> bool:
    """Whether all values are above 0 and differ by large factors."""
    return min(values) > 0 and max(values) > _WIDE * min(values)


def percents_across(ax: Axes, values: Iterable[float]) -> str:
    """Set limits and ticks for errors read across, and return the end of the axis's name.

    The axis begins at 0, or is logarithmic where errors differ by large factors.
    """
    shown = known(values)
    low, high = min(shown, default=0.0), max(shown, default=0.0)
    logarithmic = bool(shown) and are_wide(shown)
    if logarithmic:
        ax.set(xscale="log", xlim=(low / 1.15, high * 1.15))
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.xaxis.set_minor_locator(NullLocator())
    else:
        ax.set_xlim(0, room_above(shown))
    layout.percent_axis(ax.xaxis, None if logarithmic else 6)
    return "  (logarithmic)" if logarithmic else ""


def values_across(ax: Axes, values: Sequence[float], *, logarithmic: bool = False) -> None:
    """Set ticks at the values themselves, as far as their numbers do not touch; the last always has one."""
    if logarithmic:
        ax.set_xscale("log")
        ax.xaxis.set_minor_locator(NullLocator())
    places = [math.log(value) if logarithmic else value for value in values]
    least = _APART * (places[-1] - places[0])
    ticks: list[int] = []
    for place in reversed(range(len(values))):
        if not ticks or places[ticks[-1]] - places[place] >= least:
            ticks.append(place)
    ax.xaxis.set_major_locator(FixedLocator([values[place] for place in reversed(ticks)]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))

"""A number over something, with its range over runs; and the limits of an axis that hold it."""

import math
from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from calibrant.diagnosis.over_epochs import Band
from calibrant.diagnosis.over_seeds import Spread
from calibrant.plots.diagnosis.looks import BAND
from calibrant.plots.layout import percent_ticks
from calibrant.plots.style import Look

__all__ = [
    "are_wide",
    "band_of",
    "draw_range",
    "known",
    "percents_across",
    "room_above",
    "seeds_words",
    "values_across",
]

_FEW = 12  # points that are marked one by one
_APART = 0.16  # of the width, between the numbers of two ticks
_WIDE = 6  # times: beyond it numbers are read off a logarithmic axis


def band_of(spreads: Sequence[Spread]) -> Band:
    """Mean and range of each."""
    return Band(
        tuple(each.mean for each in spreads),
        tuple(each.lowest for each in spreads),
        tuple(each.highest for each in spreads),
    )


def draw_range(ax: Axes, x: Sequence[float], band: Band, line: Look, mark: Look | None = None) -> None:
    """The mean as a line, marked at its points where they are few, over the range from the lowest run to the highest.

    Where there is a single point, the range is a line up and down.
    """
    marked = (mark or {"marker": "o", "markersize": 4}) if len(x) <= _FEW else {}
    if len(x) > 1:
        ax.fill_between(x, band.lowest, band.highest, color=line["color"], alpha=BAND, linewidth=0, zorder=2)
    else:
        ax.vlines(x, band.lowest, band.highest, color=line["color"], linewidth=1.4, zorder=2)
    ax.plot(x, band.mean, zorder=3, **line, **marked)


def seeds_words(runs: Iterable[int]) -> str:
    """What marks and ranges are of, by how many runs each candidate has."""
    return "mean and range over seeds" if max(runs, default=1) > 1 else "single runs"


def known(values: Iterable[float]) -> list[float]:
    """Those that exist."""
    return [value for value in values if math.isfinite(value)]


def room_above(values: Iterable[float], *, least: float = 0.01) -> float:
    """A little above the largest."""
    return 1.08 * max([*known(values), least / 1.08])


def percents_across(ax: Axes, values: Iterable[float], *, most: int = 6) -> bool:
    """Limits and ticks for errors that are read across: from 0, or by factors where they differ by large ones.

    Returns:
        Whether the axis is logarithmic.
    """
    shown = known(values)
    low, high = min(shown, default=0.0), max(shown, default=0.0)
    by_factors = bool(shown) and are_wide(shown)
    if by_factors:
        ax.set(xscale="log", xlim=(low / 1.15, high * 1.15))
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.xaxis.set_minor_locator(NullLocator())
    else:
        ax.set_xlim(0, room_above(shown))
        ax.xaxis.set_major_locator(MaxNLocator(most))
    ax.xaxis.set_major_formatter(percent_ticks())
    return by_factors


def values_across(ax: Axes, values: Sequence[float], *, by_factors: bool = False) -> None:
    """Ticks at the values themselves, as far as their numbers do not touch; the last has one in any case."""
    if by_factors:
        ax.set_xscale("log")
        ax.xaxis.set_minor_locator(NullLocator())
    places = [math.log(value) if by_factors else value for value in values]
    least = _APART * (places[-1] - places[0])
    ticks: list[int] = []
    for place in reversed(range(len(values))):
        if not ticks or places[ticks[-1]] - places[place] >= least:
            ticks.append(place)
    ax.xaxis.set_major_locator(FixedLocator([values[place] for place in reversed(ticks)]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def are_wide(values: Sequence[float]) -> bool:
    """Whether they are all above 0 and differ by large factors."""
    return min(values) > 0 and max(values) > _WIDE * min(values)

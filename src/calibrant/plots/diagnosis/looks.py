"""How each way to mend a network looks in every figure of a diagnosis: by mark, by line, and by colour."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from matplotlib.lines import Line2D

from calibrant import catalogue
from calibrant.diagnosis.calibratability import ORACLE
from calibrant.diagnosis.fitting import RAW, TEMPERATURE
from calibrant.plots.style import Look, Theme

__all__ = ["BAND", "MapLook", "map_looks"]

BAND = 0.16  # opacity of a range over runs
_WORDS = {RAW: "as it is", ORACLE: "optimal (oracle)"}
# Of maps beside the temperature, in their order; from the start again if there are more.
_DASHES = ((0, (1, 1.4)), (0, (6, 1.5, 1, 1.5)), (0, (8, 3)), (0, (3, 1.2, 1, 1.2, 1, 1.2)))
_MARKERS = "sD^v"


@final
@dataclass(frozen=True)
class MapLook:
    """Of the network as it is, after one map, or of the oracle."""

    name: str
    words: str
    mark: Look
    line: Look

    def handle(self, *, lined: bool) -> Line2D:
        """Entry of the key."""
        line = self.line if lined else {"color": self.line["color"], "linestyle": "none"}
        return Line2D([], [], label=self.words, **line, **self.mark)


def map_looks(maps: Sequence[str], theme: Theme, *, oracle: bool = True) -> list[MapLook]:
    """The looks of these maps in their order, and of the oracle after them.

    Args:
        maps: Of a :class:`~calibrant.diagnosis.diagnosis.Diagnosis`: "none", then those that were fitted.
        theme: Of the figure.
        oracle: Whether the oracle is drawn too.
    """
    others = [name for name in maps if name not in {RAW, TEMPERATURE}]
    return [_look(name, others, theme) for name in (*maps, *([ORACLE] if oracle else []))]


def _look(name: str, others: Sequence[str], theme: Theme) -> MapLook:
    hollow: Look = {"markerfacecolor": theme.background, "markeredgewidth": 1.4}
    if name == RAW:
        mark: Look = {"marker": "o", "markersize": 5.5, **hollow}
        line: Look = {"color": theme.over, "linewidth": 1.7, "linestyle": (0, (4, 1.6))}
    elif name == TEMPERATURE:
        mark = {"marker": "o", "markersize": 6, "markeredgewidth": 0}
        line = {"color": theme.under, "linewidth": 2.2, "linestyle": "-"}
    elif name == ORACLE:
        mark = {"marker": "|", "markersize": 8, "markeredgewidth": 2}
        line = {"color": theme.under, "linewidth": 1.2, "linestyle": (0, (2, 1))}
    else:
        place = others.index(name)
        mark = {"marker": _MARKERS[place % len(_MARKERS)], "markersize": 4.6, **hollow}
        line = {"color": (theme.ink, theme.muted)[place % 2], "linewidth": 1.5,
                "linestyle": _DASHES[place % len(_DASHES)]}  # fmt: skip
    return MapLook(name, _words(name), mark, line)


def _words(name: str) -> str:
    known = catalogue.calibrators
    if name in _WORDS or name not in known:
        return _WORDS.get(name, name)
    title = known[name].title
    return title[0].lower() + title[1:]

"""The strip under a reliability diagram: how many rows each bar stands for.

It lies below zero on the same axes, where it needs no layout of its own; ``ax.set_ylim(0, 1)`` hides it.
"""

from collections.abc import Sequence

from matplotlib.axes import Axes

from calibrant.diagrams.reliability import ReliabilityDiagram
from calibrant.plots.layout import percent
from calibrant.plots.style import SIZES, Theme

__all__ = ["STRIP_FLOOR", "STRIP_SHARE", "draw_strip"]

STRIP_FLOOR = -0.21
STRIP_SHARE = -STRIP_FLOOR / (1 - STRIP_FLOOR)  # of the height of the axes
_HEIGHT = 0.13


def draw_strip(ax: Axes, diagrams: Sequence[ReliabilityDiagram], theme: Theme, *, note: str = "share of rows") -> None:
    """Share of rows in every bin: filled for the first set, an outline for the second; the note says what it is."""
    ax.axhline(0, color=theme.muted, linewidth=0.8, zorder=3)
    shares = [diagram.bins.count / diagram.n for diagram in diagrams]
    largest = max(float(share.max()) for share in shares)
    for diagram, share, first in zip(diagrams, shares, (True, False), strict=False):
        bins = diagram.bins
        ax.bar(
            bins.low.numpy(), (_HEIGHT / largest * share).numpy(), (bins.high - bins.low).numpy(), STRIP_FLOOR,
            align="edge", facecolor=theme.band if first else "none",
            edgecolor=theme.background if first else theme.ink, linewidth=0.8 if first else 1.0, zorder=1,
        )  # fmt: skip
    _name_largest(ax, diagrams[0], theme, note)


def _name_largest(ax: Axes, diagram: ReliabilityDiagram, theme: Theme, note: str) -> None:
    """Write the share above the largest bin, and what the strip is at the other side."""
    bins = diagram.bins
    place = int(bins.count.argmax())
    on_the_right = float(bins.confidence[place]) > 0.5
    near, far = ("right", "left") if on_the_right else ("left", "right")
    share = percent(float(bins.count[place]) / diagram.n, 0)
    for text, x, side, colour in (
        (share, float((bins.high if on_the_right else bins.low)[place]), near, theme.ink),
        (note, 0.0 if on_the_right else 1.0, far, theme.muted),
    ):
        ax.text(x, STRIP_FLOOR + _HEIGHT + 0.008, text, ha=side, va="bottom", fontsize=SIZES["note"], color=colour)

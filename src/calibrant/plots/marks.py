"""The marks of a reliability diagram that one large panel and many small ones share."""

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from calibrant.diagrams.bins import ReliabilityBins
from calibrant.plots.style import Look, Theme

__all__ = [
    "OVER_HATCH",
    "UNDER_HATCH",
    "band_handle",
    "curve_handle",
    "draw_band",
    "draw_bars",
    "draw_diagonal",
    "gap_handles",
]

OVER_HATCH, UNDER_HATCH = "/////", "...."
_FAINT = 0.35
_BAND_OPACITY = 0.5
# Bins of fewer rows are drawn faintly, and the band, which spans most of the axis there, is left out.
_FEW_ROWS = 10


def draw_bars(ax: Axes, bins: ReliabilityBins, theme: Theme) -> None:
    """Accuracy as bars; their distance from the confidence hatched, dark and dotted where they exceed it."""
    low, width = bins.low.numpy(), (bins.high - bins.low).numpy()
    accuracy, confidence = bins.accuracy.numpy(), bins.confidence.numpy()
    lower, upper = np.minimum(accuracy, confidence), np.maximum(accuracy, confidence)
    ax.bar(low, lower, width, align="edge", facecolor=theme.bar, edgecolor=theme.background, linewidth=0.8, zorder=1)
    few = bins.count.numpy() < _FEW_ROWS
    for chosen, tint, colour, hatch in (
        (accuracy < confidence, theme.over_tint, theme.over, OVER_HATCH),
        (accuracy > confidence, theme.under_tint, theme.under, UNDER_HATCH),
    ):
        for here, opacity in ((chosen & ~few, 1.0), (chosen & few, _FAINT)):
            if here.any():
                ax.bar(
                    low[here], (upper - lower)[here], width[here], lower[here], align="edge", facecolor=tint,
                    edgecolor=colour, hatch=hatch, linewidth=0, alpha=opacity, zorder=1.5,
                )  # fmt: skip
    ax.hlines(accuracy, low, low + width, color=theme.ink, linewidth=1.1, alpha=np.where(few, _FAINT, 1.0), zorder=3)


def draw_band(ax: Axes, bins: ReliabilityBins, theme: Theme) -> None:
    """Where calibrated bars would lie: a band around the diagonal, broken at bins of few rows."""
    enough = (bins.count >= _FEW_ROWS).numpy()
    look: Look = {"color": theme.band, "alpha": _BAND_OPACITY, "linewidth": 0, "zorder": 2}
    middle, low, high = bins.confidence.numpy(), bins.band_low.numpy(), bins.band_high.numpy()
    if enough.sum() > 2:
        ax.fill_between(middle, low, high, where=enough, **look)
    else:
        draw_band_by_bin(ax, bins, theme)


def draw_band_by_bin(ax: Axes, bins: ReliabilityBins, theme: Theme) -> None:
    """The same as one block a bin, for bins that differ much in size."""
    left, right, low, high = (part.numpy() for part in (bins.low, bins.high, bins.band_low, bins.band_high))
    ax.bar(
        left, high - low, right - left, low, align="edge", color=theme.band, alpha=_BAND_OPACITY, linewidth=0, zorder=2
    )


def draw_diagonal(ax: Axes, theme: Theme) -> None:
    """Where accuracy equals confidence."""
    ax.plot([0, 1], [0, 1], color=theme.muted, linewidth=1, linestyle=(0, (4, 3)), zorder=2.5)


def gap_handles(bins: list[ReliabilityBins], theme: Theme) -> list[Artist]:
    """Entries of the key for what occurs in these bins."""
    handles: list[Artist] = []
    if any((of.gap < 0).any() for of in bins):
        handles.append(
            Patch(facecolor=theme.over_tint, edgecolor=theme.over, hatch=OVER_HATCH, lw=0, label="overconfident")
        )
    if any((of.gap > 0).any() for of in bins):
        handles.append(
            Patch(facecolor=theme.under_tint, edgecolor=theme.under, hatch=UNDER_HATCH, lw=0, label="underconfident")
        )
    return handles


def band_handle(theme: Theme) -> Artist:
    """Entry of the key for the band."""
    return Patch(facecolor=theme.band, alpha=_BAND_OPACITY, linewidth=0, label="95 % range if calibrated")


def curve_handle(theme: Theme) -> Artist:
    """Entry of the key for the curve without bins."""
    return Line2D([], [], color=theme.ink, linewidth=2, label="accuracy without bins")

"""The marks of a reliability diagram: bars with their gaps, the band of chance, the diagonal."""

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
    """Where calibrated bars would lie: a band around the diagonal, or blocks where few bins have enough rows."""
    look: Look = {"color": theme.band, "alpha": _BAND_OPACITY, "linewidth": 0, "zorder": 2}
    enough = (bins.count >= _FEW_ROWS).numpy()
    low, high = bins.band_low.numpy(), bins.band_high.numpy()
    if enough.sum() > 2:
        ax.fill_between(bins.confidence.numpy(), low, high, where=enough, **look)
    else:
        ax.bar(bins.low.numpy(), high - low, (bins.high - bins.low).numpy(), low, align="edge", **look)


def draw_diagonal(ax: Axes, theme: Theme) -> None:
    """Where accuracy equals confidence."""
    ax.plot([0, 1], [0, 1], color=theme.muted, linewidth=1, linestyle=(0, (4, 3)), zorder=2.5)


def gap_handles(bins: ReliabilityBins, theme: Theme) -> list[Artist]:
    """Entries of the key for the gaps that occur."""
    over: Look = {"facecolor": theme.over_tint, "edgecolor": theme.over, "hatch": OVER_HATCH, "linewidth": 0}
    under: Look = {"facecolor": theme.under_tint, "edgecolor": theme.under, "hatch": UNDER_HATCH, "linewidth": 0}
    occurring = (("overconfident", over, (bins.gap < 0).any()), ("underconfident", under, (bins.gap > 0).any()))
    return [Patch(label=label, **look) for label, look, occurs in occurring if occurs]


def band_handle(theme: Theme, label: str = "95 % range if calibrated") -> Artist:
    """Entry of the key for the band."""
    return Patch(facecolor=theme.band, alpha=_BAND_OPACITY, linewidth=0, label=label)


def curve_handle(theme: Theme) -> Artist:
    """Entry of the key for the curve without bins."""
    return Line2D([], [], color=theme.ink, linewidth=2, label="accuracy without bins")

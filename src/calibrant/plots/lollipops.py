"""The marks of a small reliability panel: a point a bin, which says by its shape whether chance explains it."""

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from calibrant.diagrams.bins import ReliabilityBins
from calibrant.plots.style import Look, Theme

__all__ = ["draw_lollipops", "lollipop_handles"]


def draw_lollipops(ax: Axes, bins: ReliabilityBins, theme: Theme) -> None:
    """Points at the accuracy of every bin, over the range that chance allows.

    Triangles point to the side of the diagonal they have left further than chance allows, on a stem from it; hollow
    circles are inside the range.
    """
    x, accuracy, outside = bins.confidence.numpy(), bins.accuracy.numpy(), bins.outside.numpy()
    ax.vlines(x, bins.band_low.numpy(), bins.band_high.numpy(), color=theme.band, alpha=0.5, linewidth=4, zorder=2)
    for look, here in (
        (_inside(theme), ~outside),
        (_over(theme), outside & (accuracy < x)),
        (_under(theme), outside & (accuracy > x)),
    ):
        if here.any():
            if look["marker"] != "o":
                ax.vlines(x[here], accuracy[here], x[here], color=look["color"], linewidth=1.4, zorder=3)
            ax.plot(x[here], accuracy[here], linestyle="none", clip_on=False, zorder=4, **look)


def lollipop_handles(bins: list[ReliabilityBins], theme: Theme) -> list[Artist]:
    """Entries of the key for what occurs in these bins."""
    gaps = np.concatenate([of.gap[of.outside].numpy() for of in bins])
    handles: list[Artist] = []
    if (gaps < 0).any():
        handles.append(Line2D([], [], linestyle="none", label="overconfident", **_over(theme)))
    if (gaps > 0).any():
        handles.append(Line2D([], [], linestyle="none", label="underconfident", **_under(theme)))
    handles.append(Line2D([], [], linestyle="none", label="within chance", **_inside(theme)))
    handles.append(Line2D([], [], color=theme.band, alpha=0.5, linewidth=4, label="95 % range if calibrated"))
    return handles


def _over(theme: Theme) -> Look:
    return {"marker": "v", "markersize": 6.5, "color": theme.over, "markeredgewidth": 0}


def _under(theme: Theme) -> Look:
    return {"marker": "^", "markersize": 6.5, "color": theme.under, "markeredgewidth": 0}


def _inside(theme: Theme) -> Look:
    return {
        "marker": "o",
        "markersize": 3.8,
        "color": theme.muted,
        "markerfacecolor": theme.background,
        "markeredgewidth": 1,
    }

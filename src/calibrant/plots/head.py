"""The top row of a figure with several panels: what it is, its numbers, and the key."""

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.transforms import ScaledTranslation

from calibrant.plots.style import SIZES, Theme

__all__ = ["draw_head"]


def draw_head(ax: Axes, theme: Theme, heading: str, detail: str, handles: Sequence[Artist] = ()) -> None:
    """Title at the left edge, the numbers under it, and the key under these; the axes show nothing else."""
    ax.axis("off")
    artists: list[Artist] = [
        ax.text(0, 1, heading, color=theme.ink, fontsize=SIZES["title"], fontweight="bold", va="top"),
        ax.annotate(
            detail, (0, 1), xytext=(0, -19), textcoords="offset points", color=theme.muted, fontsize=SIZES["detail"],
            va="top",
        ),
    ]  # fmt: skip
    if handles:
        below = ax.transAxes + ScaledTranslation(0, -38 / 72, ax.figure.dpi_scale_trans)
        artists.append(
            ax.legend(
                handles=handles, loc="upper left", ncols=len(handles), fontsize=SIZES["note"], labelcolor=theme.ink,
                frameon=False, borderaxespad=0, borderpad=0, handlelength=1.6, columnspacing=1.6, bbox_to_anchor=(0, 1),
                bbox_transform=below,
            )
        )  # fmt: skip
    for artist in artists:
        artist.set_in_layout(False)  # the panels need not make room: this row has its own

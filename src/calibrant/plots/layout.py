"""What is around the data: figure, axes, title, key, and numbers as text."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter

from calibrant.plots.style import SIZES, Theme

__all__ = [
    "Corner",
    "bare_axes",
    "horizontal_lines",
    "key",
    "name_axes",
    "new_axes",
    "new_figure",
    "percent",
    "percent_ticks",
    "title",
]

Corner: TypeAlias = Literal["upper left", "upper right", "lower left", "lower right"]


def new_axes(theme: Theme, *, width: float, height: float) -> Axes:
    """Axes in a figure of their own; sizes in inches."""
    return new_figure(theme, width=width, height=height).add_subplot()


def new_figure(theme: Theme, *, width: float, height: float) -> Figure:
    """A figure that no pyplot knows of, with a small margin; sizes in inches."""
    margins = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
    return Figure((width, height), layout=margins, facecolor=theme.background)


def bare_axes(ax: Axes, theme: Theme) -> None:
    """Two thin spines, quiet ticks, the theme's background; also behind the axes, where title and labels lie."""
    ax.set_facecolor(theme.background)
    ax.figure.set_facecolor(theme.background)
    ax.grid(visible=False)
    ax.set_axisbelow(True)
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set(color=theme.muted, linewidth=0.8)
    ax.tick_params(
        which="both", direction="out", length=3, width=0.8, color=theme.muted, labelcolor=theme.muted,
        labelsize=SIZES["tick"], top=False, right=False,
    )  # fmt: skip


def title(ax: Axes, theme: Theme, heading: str, detail: str) -> None:
    """What the plot is, and under it the numbers, both from the left edge."""
    ax.set_title(heading, loc="left", color=theme.ink, fontsize=SIZES["title"], fontweight="bold", pad=25)
    ax.annotate(
        detail, (0, 1), xycoords="axes fraction", xytext=(0, 10), textcoords="offset points", ha="left", va="bottom",
        color=theme.muted, fontsize=SIZES["detail"], annotation_clip=False,
    )  # fmt: skip


def name_axes(ax: Axes, theme: Theme, x: str, y: str) -> None:
    """Labels of both axes."""
    ax.set_xlabel(x, color=theme.muted, fontsize=SIZES["label"])
    ax.set_ylabel(y, color=theme.muted, fontsize=SIZES["label"])


def key(ax: Axes, theme: Theme, handles: Sequence[Artist], *, place: Corner = "upper left", floor: float = 0) -> None:
    """A few marks and what they mean, in a corner that the data leave free; ``floor`` of the axes is kept clear."""
    legend = ax.legend(
        handles=handles, loc=place, fontsize=SIZES["note"], labelcolor=theme.ink, borderaxespad=0.4, borderpad=0.4,
        handlelength=2.2, frameon=True, framealpha=0.9, facecolor=theme.background, edgecolor="none", fancybox=False,
        bbox_to_anchor=(0, floor, 1, 1 - floor),
    )  # fmt: skip
    legend.set_zorder(10)


def percent(fraction: float, decimals: int = 1) -> str:
    """A fraction as people read it.

    Example:
        >>> percent(0.1234)
        '12.3 %'
    """
    return f"{100 * fraction:.{decimals}f} %"


def percent_ticks() -> FuncFormatter:
    """Fractions shown as percent, without the sign: the axis label carries it."""
    return FuncFormatter(lambda fraction, _: f"{100 * fraction:.4g}")


def horizontal_lines(ax: Axes, theme: Theme) -> None:
    """Faint lines at the ticks, to read heights by."""
    ax.grid(visible=True, axis="y", color=theme.faint, linewidth=0.8, linestyle="-")

"""How much a clamped model depends on where δ starts: a box and the single fits for each start, a panel a metric."""

from collections.abc import Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from calibrant.checks import check_known
from calibrant.diagrams.start_spread import StartSpread
from calibrant.plots.head import draw_head
from calibrant.plots.layout import bare_axes, horizontal_lines, new_figure
from calibrant.plots.metric_axes import metric_axis
from calibrant.plots.style import SIZES, Theme, ThemeName, theme_named

__all__ = ["plot_start_spread"]

_WIDTH, _HEIGHT, _HEAD = 2.4, 3.9, 0.6  # inches a panel, of the figure, and that the title needs
_NARROWEST, _LETTER = 6.4, 0.08
_HALF = 0.26  # of a box's width, in steps from one start to the next
_ROOM = 0.2  # of the span, above and below


def plot_start_spread(
    diagram: StartSpread,
    *,
    metrics: Sequence[str] = ("entropy", "ece", "ace", "sce"),
    figure: Figure | None = None,
    theme: ThemeName = "light",
) -> Figure:
    """Draw the quartiles and every single fit of each start.

    The axes do not begin at 0, as the spread is what matters; look at the numbers on them before you call it large.

    Args:
        diagram: From :func:`calibrant.clamping.study.sweeps.start_spread`.
        metrics: A panel each.
        figure: Where to draw; a new one unless given.
        theme: "light" or "dark"; the figure takes its background too.

    Returns:
        The figure.

    Raises:
        UnknownNameError: If a metric was not measured.
    """
    for name in metrics:
        check_known(name, diagram.values, "a metric of the spread")
    colours = theme_named(theme)
    if figure is None:
        names = 0.6 + sum(0.25 + _LETTER * len(name) for name in diagram.starts)
        width = max(_NARROWEST, max(_WIDTH, names) * len(metrics))
        figure = new_figure(colours, width=width, height=_HEIGHT)
    grid = figure.add_gridspec(2, len(metrics), height_ratios=(_HEAD, _HEIGHT - _HEAD))
    _draw_head(figure.add_subplot(grid[0, :]), diagram, colours)
    for column, name in enumerate(metrics):
        _draw_panel(figure.add_subplot(grid[1, column]), diagram, name, colours)
    return figure


def _draw_panel(ax: Axes, diagram: StartSpread, name: str, theme: Theme) -> None:
    bare_axes(ax, theme)
    horizontal_lines(ax, theme)
    values, axis = diagram.values[name], metric_axis(name)
    for place, line in enumerate(values):
        _draw_box(ax, place, line, theme)
    low, high = float(values.min()), float(values.max())
    room = _ROOM * (high - low) or 0.01 * abs(high) or 0.01
    ax.set(xlim=(-0.6, len(values) - 0.4), ylim=(low - room, high + room))
    axis.set_ticks(ax.yaxis, 5)
    ax.set_xticks(range(len(values)), diagram.starts)
    ax.tick_params(axis="x", length=0, labelcolor=theme.ink)
    ax.set_title(axis.words, loc="left", color=theme.ink, fontsize=SIZES["label"], fontweight="bold", pad=10)


def _draw_box(ax: Axes, place: int, values: Tensor, theme: Theme) -> None:
    """Quartiles as a box with the median across, and the fits beside each other in the order of their seeds."""
    first, median, third = values.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=values.dtype)).tolist()
    colour, tint = ((theme.under, theme.under_tint), (theme.over, theme.over_tint))[place % 2]
    ax.bar(place, third - first, 2 * _HALF, first, facecolor=tint, edgecolor=colour, alpha=0.45, linewidth=1, zorder=2)
    ax.hlines(median, place - _HALF, place + _HALF, color=colour, linewidth=2.2, zorder=3)
    shift = torch.linspace(-0.6, 0.6, len(values)) * _HALF if len(values) > 1 else torch.zeros(1)
    ax.plot(
        (place + shift).numpy(), values.numpy(), linestyle="none", marker="os"[place % 2], markersize=5, color=colour,
        markerfacecolor=theme.background, markeredgewidth=1.3, zorder=4,
    )  # fmt: skip


def _draw_head(ax: Axes, diagram: StartSpread, theme: Theme) -> None:
    fits = len(diagram.seeds)
    detail = (
        f"a mark is a fit, {fits} seed{'s' * (fits > 1)} a start; box: quartiles and median  ·  all judged on the same "
        f"{diagram.n:,} test rows"
    )
    draw_head(ax, theme, "Neural Clamping from different starts of δ", detail)

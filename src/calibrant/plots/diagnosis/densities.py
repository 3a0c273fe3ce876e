"""Confidence of right and of wrong answers, as networks are and after temperature scaling."""

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from calibrant.diagnosis import DensityCurves, Diagnosis, Refinement, RefinementRow
from calibrant.diagnosis.fitting import RAW, TEMPERATURE
from calibrant.plots.diagnosis.panels import panel_grid, panel_title
from calibrant.plots.head import draw_head
from calibrant.plots.layout import bare_axes, percent, percent_ticks
from calibrant.plots.marks import OVER_HATCH
from calibrant.plots.style import SIZES, Look, Theme, ThemeName, theme_named

__all__ = ["plot_densities"]

_HEIGHT = 0.85  # inches a panel


def plot_densities(diagnosis: Diagnosis, *, figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw two panels a candidate, as it is above and after temperature scaling below.

    Right answers stand on the line, wrong ones hang from it, hatched; every density is drawn to the same height, so
    that a few wrong answers are seen beside many sharp right ones. What matters is where they lie, and that they do not
    lie at the same place.

    Args:
        diagnosis: From :func:`calibrant.diagnosis.diagnose`.
        figure: Where to draw; a new one unless given.
        theme: "light" or "dark"; the figure takes its background too.

    Returns:
        The figure.

    Reference:
        Singh et al. (2021), On the Dark Side of Calibration for Modern Neural Networks, arXiv:2106.09385, Figure 2.
    """
    colours = theme_named(theme)
    grid = panel_grid(
        [each.candidate for each in diagnosis.refinement], colours, figure=figure, heights=(_HEIGHT, _HEIGHT)
    )
    handles = [
        Patch(label="right answers", linewidth=0.8, **_look(colours, right=True)),
        Patch(label="wrong answers", linewidth=0.8, **_look(colours, right=False)),
    ]
    seeds = ", mean over seeds" * any(len(each.seeds) > 1 for each in diagnosis.candidates)
    detail = f"densities over {diagnosis.n:,} test rows{seeds}, each to its own height; lines: medians"
    draw_head(grid.head, colours, "Confidence of right and wrong answers", detail, handles)
    for place, each in enumerate(diagnosis.refinement):
        for line, (name, words) in enumerate(((RAW, "as it is"), (TEMPERATURE, "after TS"))):
            ax = grid.figure.add_subplot(grid.cells[place][line])
            row = next(row for row in each.rows if row.map == name)
            _draw(ax, row, colours, words if grid.is_left(place) else "")
            ax.tick_params(labelbottom=bool(line) and grid.is_lowest(place))
            if not line:
                panel_title(ax, colours, grid.names[place], _detail(each))
    grid.name_axes(colours, "Confidence, %")
    return grid.figure


def _draw(ax: Axes, row: RefinementRow, theme: Theme, words: str) -> None:
    bare_axes(ax, theme)
    ax.set(xlim=(0, 1), ylim=(-1.08, 1.08), yticks=[])
    ax.spines["left"].set_visible(False)
    ax.axhline(0, color=theme.muted, linewidth=0.8, zorder=3)
    ax.xaxis.set_major_formatter(percent_ticks())
    ax.set_ylabel(words, color=theme.muted, fontsize=SIZES["label"])
    if row.density is None:
        ax.text(0.5, 0.3, "could not be fitted", ha="center", color=theme.muted, fontsize=SIZES["note"])
        return
    for right in (True, False):
        _draw_side(ax, row.density, theme, right=right)


def _draw_side(ax: Axes, density: DensityCurves, theme: Theme, *, right: bool) -> None:
    heights = density.right if right else density.wrong
    median = (density.median_right if right else density.median_wrong).mean
    if math.isnan(median) or not max(heights):
        return
    sign, tallest = (1 if right else -1), max(heights)
    ax.fill_between(
        density.confidence, 0, [sign * height / tallest for height in heights], linewidth=0.8, zorder=2,
        **_look(theme, right=right),
    )  # fmt: skip
    ax.vlines(median, min(0, sign), max(0, sign), color=theme.ink, linewidth=1.4, zorder=4)


def _look(theme: Theme, *, right: bool) -> Look:
    if right:
        return {"facecolor": theme.under_tint, "edgecolor": theme.under}
    return {"facecolor": theme.over_tint, "edgecolor": theme.over, "hatch": OVER_HATCH}


def _detail(of: Refinement) -> str:
    """The AUROC under both maps; it moves a little, as a temperature moves rows past each other."""
    found = [next(row for row in of.rows if row.map == name).metrics["auroc"].mean for name in (RAW, TEMPERATURE)]
    if math.isnan(found[0]):
        return "no AUROC"
    after = "" if math.isnan(found[1]) else f", {percent(found[1])} after TS"
    return f"AUROC {percent(found[0])}{after}"

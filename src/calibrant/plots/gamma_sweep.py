"""What the focal loss's γ does to a clamped model: error, objective and entropy, side by side."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from calibrant.diagrams.gamma_sweep import GammaSweep
from calibrant.plots.head import draw_head
from calibrant.plots.layout import bare_axes, horizontal_lines, name_axes, new_figure, percent, percent_ticks
from calibrant.plots.style import Look, Theme, ThemeName, theme_named

__all__ = ["plot_gamma_sweep"]

_WIDTH, _HEIGHT, _HEAD = 9.6, 4.0, 0.8  # inches, and those that title and key need
_BAND = 0.35
_FEW = 12  # points that are marked one by one


def plot_gamma_sweep(diagram: GammaSweep, *, figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw the calibration error, the objective and the entropy over γ.

    Args:
        diagram: From :func:`calibrant.clamping.study.sweeps.gamma_sweep`.
        figure: Where to draw; a new one unless given.
        theme: "light" or "dark"; the figure takes its background too.

    Returns:
        The figure: three panels.
    """
    colours = theme_named(theme)
    if figure is None:
        figure = new_figure(colours, width=_WIDTH, height=_HEIGHT)
    grid = figure.add_gridspec(2, 3, height_ratios=(_HEAD, _HEIGHT - _HEAD))
    _draw_head(figure.add_subplot(grid[0, :]), diagram, colours)
    error, objective, entropy = (figure.add_subplot(grid[1, column]) for column in range(3))
    _draw_error(error, diagram, colours)
    for ax, values, words, look in (
        (objective, diagram.objective, "Objective", _calibration_look(colours)),
        (entropy, diagram.entropy, "Entropy, nats", _test_look(colours)),
    ):
        _frame(ax, diagram, colours, words)
        _line(ax, diagram, values, look)
        ax.yaxis.set_major_locator(MaxNLocator(5))
    return figure


def _draw_error(ax: Axes, diagram: GammaSweep, theme: Theme) -> None:
    _frame(ax, diagram, theme, "ECE, %")
    x = diagram.gamma.numpy()
    ax.fill_between(
        x, diagram.ece_low.numpy(), diagram.ece_high.numpy(), color=theme.under_tint, alpha=_BAND, linewidth=0, zorder=1
    )
    ax.plot(x, diagram.ece_floor.numpy(), zorder=2, **_floor_look(theme))
    _line(ax, diagram, diagram.calibration_ece, _calibration_look(theme))
    _line(ax, diagram, diagram.ece, _test_look(theme))
    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_locator(MaxNLocator(5))
    ax.yaxis.set_major_formatter(percent_ticks())


def _line(ax: Axes, diagram: GammaSweep, values: Tensor, look: Look) -> None:
    """A line over γ, its points marked where they are few, and in any case the one that the rule chooses."""
    x, chosen = diagram.gamma.numpy(), diagram.chosen
    marked = None if len(x) <= _FEW else [chosen]
    ax.plot(x, values.numpy(), marker="o", markersize=5, markevery=marked, zorder=3, **look)


def _frame(ax: Axes, diagram: GammaSweep, theme: Theme, words: str) -> None:
    bare_axes(ax, theme)
    horizontal_lines(ax, theme)
    ax.axvline(float(diagram.gamma[diagram.chosen]), color=theme.muted, linewidth=0.9, linestyle=(0, (1, 2)), zorder=0)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    name_axes(ax, theme, "γ", words)


def _test_look(theme: Theme) -> Look:
    return {"color": theme.under, "linewidth": 2.2}


def _calibration_look(theme: Theme) -> Look:
    return {"color": theme.over, "linewidth": 1.8, "linestyle": (0, (4, 1.6)), "markerfacecolor": theme.background}


def _floor_look(theme: Theme) -> Look:
    return {"color": theme.muted, "linewidth": 1.2, "linestyle": (0, (1, 1.5))}


def _draw_head(ax: Axes, diagram: GammaSweep, theme: Theme) -> None:
    chosen, best = diagram.chosen, int(diagram.nll.argmin())
    detail = (
        f"least calibration-set ECE at γ = {float(diagram.gamma[chosen]):g} (dotted line): "
        f"ECE {percent(float(diagram.ece[chosen]))} on {diagram.n:,} test rows  ·  "
        f"least test log-loss at γ = {float(diagram.gamma[best]):g}"
    )
    handles = [
        Line2D([], [], label="test rows", **_test_look(theme)),
        Patch(facecolor=theme.under_tint, alpha=_BAND, linewidth=0, label="95 % interval"),
        Line2D([], [], label=f"the {diagram.n_calibration:,} calibration rows", **_calibration_look(theme)),
        Line2D([], [], label="a calibrated model on test rows", **_floor_look(theme)),
    ]
    draw_head(ax, theme, "Neural Clamping and the focal loss's γ", detail, handles)

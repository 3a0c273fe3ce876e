"""Training watched from outside: ECE, the best that a temperature could make of it, and that temperature."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from calibrant.diagnosis import Diagnosis, EpochCurves
from calibrant.errors import InputError
from calibrant.plots.diagnosis.panels import panel_grid, panel_title
from calibrant.plots.diagnosis.ranges import draw_range, known, room_above, seeds_words
from calibrant.plots.head import draw_head
from calibrant.plots.layout import bare_axes, horizontal_lines, percent_ticks
from calibrant.plots.style import SIZES, Look, Theme, ThemeName, theme_named

__all__ = ["plot_over_epochs"]

_HEIGHTS = (1.2, 0.7)  # inches of the two panels


def plot_over_epochs(diagnosis: Diagnosis, *, figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw two panels a candidate, epoch by epoch: the two errors, and the temperature below.

    Optimal ECE and temperature are an oracle's, searched on the very rows that are shown. An error that rises while the
    optimal one does not is only a temperature; a rise of the optimal one is what no temperature brings back.

    Args:
        diagnosis: From :func:`calibrant.diagnosis.diagnose`.
        figure: Where to draw; a new one unless given.
        theme: "light" or "dark"; the figure takes its background too.

    Returns:
        The figure.

    Raises:
        InputError: If no candidate was looked at in training.

    Reference:
        Wang, Feng & Zhang (2021), Rethinking Calibration of Deep Neural Networks: Do Not Be Afraid of Overconfidence,
        Figure 4.
    """
    curves = diagnosis.epochs
    if not curves:
        raise InputError("a candidate's runs must have looked at test rows in the same epochs; none have.")
    colours = theme_named(theme)
    grid = panel_grid([curve.candidate for curve in curves], colours, figure=figure, heights=_HEIGHTS)
    handles = [
        Line2D([], [], label="ECE", **_ece_look(colours)),
        Line2D([], [], label="optimal ECE (oracle)", **_optimal_look(colours)),
        Line2D([], [], label="T of lowest log-loss", **_temperature_look(colours)),
    ]
    seeds = seeds_words(len(each.seeds) for each in diagnosis.candidates)
    detail = f"on the {curves[0].part} rows, {seeds}  ·  {diagnosis.n:,} rows"
    draw_head(grid.head, colours, "Calibration over the epochs of training", detail, handles)
    errors: Axes | None = None
    temperatures: Axes | None = None
    for place, curve in enumerate(curves):
        upper = grid.figure.add_subplot(grid.cells[place][0], sharey=errors)
        lower = grid.figure.add_subplot(grid.cells[place][1], sharex=upper, sharey=temperatures)
        errors, temperatures = errors or upper, temperatures or lower
        _draw(upper, lower, curve, grid.names[place], colours)
        for ax in (upper, lower):
            ax.tick_params(labelleft=grid.is_left(place))
        if grid.is_left(place):
            upper.set_ylabel("ECE, %", color=colours.muted, fontsize=SIZES["label"])
            lower.set_ylabel("T", color=colours.muted, fontsize=SIZES["label"])
    assert errors is not None and temperatures is not None, "there is a candidate"  # noqa: PT018
    errors.set_ylim(0, room_above(end for curve in curves for end in curve.numbers["ece"].highest))
    ends = known(
        end for curve in curves for band in [curve.numbers["temperature"]] for end in band.lowest + band.highest
    )
    temperatures.set(yscale="log", ylim=(min([*ends, 0.75]) / 1.15, max([*ends, 1.5]) * 1.15))
    temperatures.yaxis.set_major_locator(LogLocator(base=2, numticks=4))
    temperatures.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    temperatures.yaxis.set_minor_locator(NullLocator())
    grid.name_axes(colours, "Epoch")
    grid.figure.align_ylabels()
    return grid.figure


def _draw(upper: Axes, lower: Axes, curve: EpochCurves, name: str, theme: Theme) -> None:
    for ax in (upper, lower):
        bare_axes(ax, theme)
        horizontal_lines(ax, theme)
    x = [float(epoch) for epoch in curve.epochs]
    draw_range(upper, x, curve.numbers["ece"], _ece_look(theme))
    draw_range(upper, x, curve.numbers["optimal_ece"], _optimal_look(theme))
    lower.axhline(1, color=theme.muted, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    draw_range(lower, x, curve.numbers["temperature"], _temperature_look(theme))
    upper.tick_params(labelbottom=False)
    upper.yaxis.set_major_locator(MaxNLocator(4))
    upper.yaxis.set_major_formatter(percent_ticks())
    lower.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    rise = f", then +{100 * curve.rise:.1f}" if curve.rise > 0 else ""
    panel_title(upper, theme, name, f"optimal lowest at epoch {curve.lowest_epoch}{rise}")


def _ece_look(theme: Theme) -> Look:
    return {"color": theme.over, "linewidth": 1.7, "linestyle": (0, (4, 1.6)), "markerfacecolor": theme.background}


def _optimal_look(theme: Theme) -> Look:
    return {"color": theme.under, "linewidth": 2.2}


def _temperature_look(theme: Theme) -> Look:
    return {"color": theme.ink, "linewidth": 1.6}

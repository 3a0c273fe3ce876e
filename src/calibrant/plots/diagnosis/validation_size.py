"""How many calibration rows each map needs: a panel a candidate."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from calibrant.diagnosis import Diagnosis, ValidationSize
from calibrant.diagnosis.fitting import RAW
from calibrant.errors import InputError
from calibrant.plots.diagnosis.looks import MapLook, map_looks
from calibrant.plots.diagnosis.panels import panel_grid, panel_title
from calibrant.plots.diagnosis.ranges import band_of, draw_range, room_above, values_across
from calibrant.plots.head import draw_head
from calibrant.plots.layout import bare_axes, horizontal_lines, percent, percent_ticks
from calibrant.plots.style import SIZES, Theme, ThemeName, theme_named

__all__ = ["plot_validation_sizes"]

_HEIGHT = 1.6  # inches a panel
_ABOVE = 1.25  # a raw error so many times above all others is told in words, not drawn


def plot_validation_sizes(diagnosis: Diagnosis, *, figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw the ECE after each map over the number of rows it was fitted on, with the range over runs and draws.

    The range narrows towards all rows also because draws then share most of them. Where the network as it is lies far
    above all panels, an arrow with its number stands in for its line. Fits that failed are counted above a panel, and
    are in no mean.

    Args:
        diagnosis: From :func:`calibrant.diagnosis.diagnose`, with draws.
        figure: Where to draw; a new one unless given.
        theme: "light" or "dark"; the figure takes its background too.

    Returns:
        The figure.

    Raises:
        InputError: If the diagnosis was made without draws.

    Reference:
        Wang, Feng & Zhang (2021), Rethinking Calibration of Deep Neural Networks: Do Not Be Afraid of Overconfidence,
        Figure 3.
    """
    curves = diagnosis.validation_sizes
    if not curves:
        raise InputError("a diagnosis must have draws of calibration rows; this one has none. Diagnose with draws=3.")
    colours = theme_named(theme)
    looks = map_looks(diagnosis.maps, colours, oracle=False)
    grid = panel_grid(
        [curve.candidate for curve in curves], colours, figure=figure, heights=(_HEIGHT,), keys=len(looks)
    )
    draws = curves[0].draws
    seeds = "seeds and " * any(len(each.seeds) > 1 for each in diagnosis.candidates)
    detail = f"mean and range over {seeds}{draws} draw{'s' * (draws > 1)} of rows  ·  {diagnosis.n:,} test rows"
    handles = [look.handle(lined=True) for look in looks]
    draw_head(grid.head, colours, "How many calibration rows a map needs", detail, handles)
    after = room_above([each.highest for curve in curves for point in curve.points for each in point.ece.values()])
    raw = [curve.raw_ece.highest for curve in curves]
    top = max(after, *(room_above([each]) for each in raw if each <= _ABOVE * after), after)
    for place, curve in enumerate(curves):
        ax = grid.figure.add_subplot(grid.cells[place][0])
        _draw_curve(ax, curve, grid.names[place], looks, top, colours)
        ax.tick_params(labelleft=grid.is_left(place))
    grid.name_axes(colours, "Calibration rows", "ECE, %")
    return grid.figure


def _draw_curve(ax: Axes, curve: ValidationSize, name: str, looks: list[MapLook], top: float, theme: Theme) -> None:
    bare_axes(ax, theme)
    horizontal_lines(ax, theme)
    x = [float(point.rows) for point in curve.points]
    for look in looks:
        if look.name != RAW:
            draw_range(ax, x, band_of([point.ece[look.name] for point in curve.points]), look.line, look.mark)
        elif curve.raw_ece.mean <= top:
            ax.axhline(curve.raw_ece.mean, zorder=2, **look.line)
        else:
            ax.annotate(
                f"▴ as it is {percent(curve.raw_ece.mean)}", (1, 1), xycoords="axes fraction", xytext=(0, -2),
                textcoords="offset points", ha="right", va="top", color=look.line["color"], fontsize=SIZES["note"],
            )  # fmt: skip
    ax.set_ylim(0, top)
    ax.yaxis.set_major_locator(MaxNLocator(4))
    ax.yaxis.set_major_formatter(percent_ticks())
    values_across(ax, x, by_factors=True)
    panel_title(ax, theme, name, _failures(curve))


def _failures(curve: ValidationSize) -> str:
    """How many fits of all maps failed: what is drawn is the mean of the others, and those were the lucky ones."""
    points = [point for point in curve.points if any(point.failed.values())]
    if not points:
        return ""
    failed = sum(sum(point.failed.values()) for point in points)
    tried = sum(len(each.values) for point in points for each in point.ece.values())
    return f"{failed} of {tried} fits failed at {'up to ' * (len(points) > 1)}{points[-1].rows:,} rows"

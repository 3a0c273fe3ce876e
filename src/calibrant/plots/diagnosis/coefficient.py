"""Coefficient sensitivity: the ECE along the one number in which candidates differ."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from calibrant.diagnosis import CoefficientCurve, Diagnosis
from calibrant.diagnosis.calibratability import ORACLE
from calibrant.errors import InputError
from calibrant.plots.diagnosis.looks import MapLook, map_looks
from calibrant.plots.diagnosis.panels import panel_grid, panel_title, shortened
from calibrant.plots.diagnosis.ranges import are_wide, band_of, draw_range, room_above, seeds_words, values_across
from calibrant.plots.head import draw_head
from calibrant.plots.layout import bare_axes, horizontal_lines, name_axes, percent_ticks
from calibrant.plots.style import Theme, ThemeName, theme_named

__all__ = ["plot_coefficients"]

_HEIGHT, _WIDTH = 2.4, 3.4  # inches a panel
_LONGEST_NAME = 20


def plot_coefficients(diagnosis: Diagnosis, *, figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw a panel for every number along which candidates differ in nothing else.

    All is measured on test rows: the lowest point of a curve flatters, as it was chosen on the rows that judge it.

    Args:
        diagnosis: From :func:`calibrant.diagnosis.diagnose`.
        figure: Where to draw; a new one unless given.
        theme: "light" or "dark"; the figure takes its background too.

    Returns:
        The figure.

    Raises:
        InputError: If no two candidates differ in one number alone.

    Reference:
        Wang, Feng & Zhang (2021), Rethinking Calibration of Deep Neural Networks: Do Not Be Afraid of Overconfidence,
        Figure 1.
    """
    if not diagnosis.coefficients:
        raise InputError(
            "two candidates or more must differ in one number alone to draw a curve; none do. Train the same loss with "
            "other coefficients."
        )
    colours = theme_named(theme)
    looks = map_looks(diagnosis.maps, colours)
    grid = panel_grid(
        [curve.loss for curve in diagnosis.coefficients],
        colours,
        figure=figure,
        heights=(_HEIGHT,),
        width=_WIDTH,
        keys=len(looks),
    )
    detail = f"{seeds_words(len(each.seeds) for each in diagnosis.candidates)}  ·  {diagnosis.n:,} test rows"
    handles = [look.handle(lined=True) for look in looks]
    draw_head(grid.head, colours, "Sensitivity to the coefficient", detail, handles)
    for place, curve in enumerate(diagnosis.coefficients):
        ax = grid.figure.add_subplot(grid.cells[place][0])
        _draw_curve(ax, curve, grid.names[place], _ends(curve, diagnosis.coefficients), looks, colours)
        if not grid.is_left(place):
            ax.set_ylabel("")
    return grid.figure


def _ends(curve: CoefficientCurve, curves: Sequence[CoefficientCurve]) -> str:
    """The candidates at its ends, where the loss and the name of the number do not tell it from another curve."""
    if sum((each.loss, each.option) == (curve.loss, curve.option) for each in curves) == 1:
        return ""
    return " to ".join(shortened([curve.points[place].candidate for place in (0, -1)], _LONGEST_NAME).values())


def _draw_curve(ax: Axes, curve: CoefficientCurve, name: str, detail: str, looks: list[MapLook], theme: Theme) -> None:
    bare_axes(ax, theme)
    horizontal_lines(ax, theme)
    x, highest = [point.value for point in curve.points], []
    for look in looks:
        spreads = [point.optimal_ece if look.name == ORACLE else point.ece[look.name] for point in curve.points]
        draw_range(ax, x, band_of(spreads), look.line, look.mark)
        highest += [each.highest for each in spreads]
    ax.set_ylim(0, room_above(highest))
    ax.yaxis.set_major_locator(MaxNLocator(5))
    ax.yaxis.set_major_formatter(percent_ticks())
    values_across(ax, x, by_factors=are_wide(x))
    name_axes(ax, theme, curve.option.partition(".")[2].replace("_", " "), "ECE, %")
    panel_title(ax, theme, name, detail)

"""The risk-coverage curve: error rate among the most confident answers."""

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from calibrant.diagrams.risk_coverage import RiskCoverage
from calibrant.plots.layout import (
    Corner,
    bare_axes,
    horizontal_lines,
    key,
    name_axes,
    new_axes,
    percent,
    percent_ticks,
    title,
)
from calibrant.plots.style import Look, ThemeName, theme_named

__all__ = ["plot_risk_coverage"]


def plot_risk_coverage(
    diagram: RiskCoverage,
    *,
    other: RiskCoverage | None = None,
    labels: tuple[str, str] = ("before", "after"),
    ax: Axes | None = None,
    theme: ThemeName = "light",
) -> Axes:
    """Draw the risk that remains at every coverage, above the best that the same accuracy allows.

    The tinted area between the two is what a better ranking could gain.

    Args:
        diagram: From :func:`calibrant.diagrams.risk_coverage`.
        other: A second set to compare with.
        labels: Names of the two sets.
        ax: Where to draw; a figure of its own unless given.
        theme: "light" or "dark"; the figure behind the axes takes its background too.

    Returns:
        The axes.
    """
    colours = theme_named(theme)
    ax = new_axes(colours, width=6.2, height=4.3) if ax is None else ax
    bare_axes(ax, colours)
    horizontal_lines(ax, colours)
    best: Look = {"color": colours.muted, "linewidth": 1.3, "linestyle": (0, (1, 1.4))}
    if other is None:
        x, low, high = diagram.coverage.numpy(), diagram.optimal.numpy(), diagram.risk.numpy()
        ax.fill_between(x, low, high, color=colours.bar, linewidth=0, zorder=2)
        curves: list[tuple[RiskCoverage, str, Look]] = [(diagram, "this ranking", {"color": colours.ink, "lw": 2})]
    else:
        both = zip((diagram, other), labels, colours.pair, strict=True)
        curves = [(of, f"{label}, AURC {percent(of.aurc, 2)}", look) for of, label, look in both]
    handles: list[Artist] = []
    for of, label, look in curves:
        ax.plot(of.coverage.numpy(), of.optimal.numpy(), zorder=3, **best)
        marker = "o" if of.n == 1 else None
        ax.plot(of.coverage.numpy(), of.risk.numpy(), marker=marker, clip_on=False, zorder=4, **look)
        handles.append(Line2D([], [], label=label, **look))
    handles.append(Line2D([], [], label="best ranking of the same answers", **best))
    top = max(0.01, *(float(of.risk.max()) for of, _, _ in curves))
    rising = max(float(of.risk[: len(of.risk) // 2 + 1].max()) for of, _, _ in curves) < 0.8 * top
    key(ax, colours, handles, place="upper left" if rising else _low_corner(diagram))
    ax.set(xlim=(0, 1), ylim=(0, 1.05 * top))
    ax.xaxis.set_major_formatter(percent_ticks())
    ax.yaxis.set_major_formatter(percent_ticks())
    name_axes(ax, colours, "Coverage: answers given, most confident first, %", "Risk: wrong among them, %")
    numbers = [f"AURC {percent(diagram.aurc, 2)}", f"{percent(diagram.e_aurc, 2)} above the best ranking"]
    title(ax, colours, "Risk and coverage", "  ·  ".join([*(numbers if other is None else []), f"n = {diagram.n:,}"]))
    return ax


def _low_corner(diagram: RiskCoverage) -> Corner:
    """The side on which the best curve is not: it leaves the axis where coverage equals accuracy."""
    return "lower right" if float(diagram.risk[-1]) > 0.5 else "lower left"

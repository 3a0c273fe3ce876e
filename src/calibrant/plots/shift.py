"""Figures of a shift: class proportions before and now, and distributions beside those of the reference."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from calibrant.checks import check_known
from calibrant.diagrams import ShiftDiagram, shift_diagram
from calibrant.errors import check_kind
from calibrant.evidence import LEVEL
from calibrant.plots import layout
from calibrant.plots.layout import DOT, Look, ThemeName
from calibrant.shift import Shift
from calibrant.text import without_middle

_LINE, _HEAD = 0.32, 1.5  # inches: of a class; of title, legend and axis
_ROOM = 1.18  # of the axis above what is drawn, for the legend
_APART = 0.16  # of a line, between the dots of a class
_LONGEST = 24  # characters of a class's name


def shift_figures(shift: Shift, *, name: str = "", theme: ThemeName = "light") -> dict[str, Figure]:
    """Draw all figures of a shift: proportions, confidence and, of more than two classes, spread."""
    drawn = {"proportions": plot_proportions(shift, name=name, theme=theme)}
    for of in shift.distributions:
        drawn[of] = plot_distribution(shift, of=of, name=name, theme=theme)
    return {of: ax.figure for of, ax in drawn.items()}  # type: ignore[misc]  # of axes of their own


def plot_proportions(
    shift: Shift | ShiftDiagram, *, name: str = "", ax: Axes | None = None, theme: ThemeName = "light"
) -> Axes:
    """Draw the proportion of every class in the reference and among the new samples, with 95 % intervals.

    Of many classes, those that changed most are drawn. A cross is the actual proportion, where labels tell it.
    """
    diagram = _diagram(shift)
    ax, colours = layout.open_axes(ax, theme, width=7, height=_HEAD + _LINE * len(diagram.classes), lines=False)
    names = [without_middle(one.name, _LONGEST) for one in diagram.classes]
    layout.row_axes(ax, colours, names)
    before: Look = {"marker": "o", "color": colours.muted, "markerfacecolor": colours.background, "markersize": 5.5}
    now: Look = {"marker": "s", "color": colours.under, "markerfacecolor": colours.under, "markersize": 5.5}
    changed: Look = {"marker": "D", "color": colours.over, "markerfacecolor": colours.over, "markersize": 6}
    actual: Look = {"marker": "x", "color": colours.ink, "markersize": 6, "markeredgewidth": 1.6, "linestyle": "none"}
    for place, one in enumerate(diagram.classes):
        for dot, look, side in (
            (one.reference, before, -_APART),
            (one.new, changed if one.is_changed else now, _APART),
        ):
            ax.hlines(place + side, dot.low, dot.high, color=look["color"], linewidth=1.6, zorder=2)
            ax.plot(dot.value, place + side, linestyle="none", zorder=3, **look)
        if one.actual is not None:
            ax.plot(one.actual, place + _APART, zorder=4, **actual)
    kinds = {one.is_changed for one in diagram.classes}
    looks = {"reference": before} | ({"new samples": now} if False in kinds else {})
    looks |= {"new samples, changed beyond chance": changed} if True in kinds else {}
    handles = [Line2D([], [], label=text, linewidth=1.6, **look) for text, look in looks.items()]
    if any(one.actual is not None for one in diagram.classes):
        handles.append(Line2D([], [], label="actual", **actual))
    ax.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(handles), fontsize=layout.SIZES["note"],
        labelcolor=colours.ink, frameon=False, borderaxespad=0, handlelength=1.8, columnspacing=1.4,
    )  # fmt: skip
    ax.set_xlim(left=0)
    layout.percent_axis(ax.xaxis)
    layout.name_axes(ax, colours, "Proportion of the class, %, with 95 % interval")
    left = f"{diagram.left_out} classes that changed less are left out" if diagram.left_out else ""
    layout.title(ax, colours, "Class proportions", _details(diagram, name), left, " ")
    return ax


def plot_distribution(
    shift: Shift | ShiftDiagram,
    *,
    of: str = "confidence",
    name: str = "",
    ax: Axes | None = None,
    theme: ThemeName = "light",
) -> Axes:
    """Draw a distribution of the new samples, beside that of the reference reweighted by class.

    New samples outside of the band show that more changed than the proportions.

    Args:
        shift: The shift.
        of: ``confidence``, the calibrated one, of two classes the probability of the second; or ``spread``, the
            standard deviation of the logarithms of a sample's probabilities.
        name: Name of the data for the title.
        ax: Axes to draw on, new ones by default.
        theme: "light" or "dark".
    """
    diagram = _diagram(shift)
    check_known(of, diagram.distributions, "of")
    parts = diagram.distributions[of]
    ax, colours = layout.open_axes(ax, theme, width=7)
    edges = parts.edges.numpy()
    ax.stairs(parts.high.numpy(), edges, baseline=parts.low.numpy(), fill=True, color=colours.band, alpha=0.5, zorder=1)
    ax.stairs(parts.reference.numpy(), edges, color=colours.muted, linewidth=1, linestyle=layout.DASHED, zorder=2)
    new: Look = {"color": colours.under if diagram.p[of] > LEVEL else colours.over, "linewidth": 2.2}
    ax.stairs(parts.new.numpy(), edges, zorder=3, **new)
    handles = [
        Line2D([], [], label="new samples", **new),
        Patch(facecolor=colours.band, alpha=0.5, linewidth=0, label="reference in the new proportions, 95 %"),
        Line2D([], [], label="reference", color=colours.muted, linewidth=1, linestyle=layout.DASHED),
    ]
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(0, _ROOM * float(max(parts.high.max(), parts.new.max(), parts.reference.max())))
    ax.legend(
        handles=handles, loc="upper left", ncols=3, fontsize=layout.SIZES["note"], labelcolor=colours.ink,
        frameon=False, borderaxespad=0.2, handlelength=1.8, columnspacing=1.4,
    )  # fmt: skip
    layout.percent_axis(ax.yaxis)
    words = "Spread of the log-probabilities of a sample (standard deviation)"
    if of == "confidence":
        layout.percent_axis(ax.xaxis)
        words = "Calibrated probability of the second class, %" if diagram.of_two else "Calibrated confidence, %"
    layout.name_axes(ax, colours, words, "Share of the samples, %")
    p = "< .002" if diagram.p[of] < 0.002 else f"{diagram.p[of]:.3f}"
    detail = f"Do new samples look like the reference in other proportions? p {p}"
    layout.title(ax, colours, f"{of.capitalize()} now and before", _details(diagram, name), detail)
    return ax


def _diagram(shift: Shift | ShiftDiagram) -> ShiftDiagram:
    check_kind(shift, (Shift, ShiftDiagram), "shift", "Make one with calibrant.measure_shift.")
    return shift_diagram(shift) if isinstance(shift, Shift) else shift


def _details(diagram: ShiftDiagram, name: str) -> str:
    sizes = f"{diagram.n_reference:,} reference and {diagram.n_new:,} new samples"
    return DOT.join(filter(None, [without_middle(name, 32), sizes]))

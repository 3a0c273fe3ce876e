"""Expected calibration error against the number of bins, with its noise floor."""

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter
from torch import Tensor

from calibrant.diagrams.bins_sweep import BinsSweep
from calibrant.plots.layout import bare_axes, horizontal_lines, name_axes, new_axes, percent, percent_ticks, title
from calibrant.plots.style import SIZES, Look, ThemeName, theme_named

__all__ = ["plot_bins_sweep"]

# A line of a label, as a share of the height of the axes.
_LINE = 0.06


def plot_bins_sweep(diagram: BinsSweep, *, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
    """Draw the ECE and its debiased estimate over the number of bins, above what a calibrated model would score.

    Args:
        diagram: From :func:`calibrant.diagrams.bins_sweep`.
        ax: Where to draw; a figure of its own unless given.
        theme: "light" or "dark"; the figure behind the axes takes its background too.

    Returns:
        The axes.
    """
    colours = theme_named(theme)
    ax = new_axes(colours, width=6.2, height=4.3) if ax is None else ax
    bare_axes(ax, colours)
    horizontal_lines(ax, colours)
    x = diagram.n_bins.numpy()
    ax.fill_between(
        x, diagram.floor_low.numpy(), diagram.floor_high.numpy(), color=colours.band, alpha=0.5, linewidth=0, zorder=2
    )
    lines: list[tuple[Tensor, str, Look]] = [
        (
            diagram.floor,
            "if calibrated\n(95 % range)",
            {"color": colours.muted, "linewidth": 1.4, "linestyle": (0, (4, 2))},
        ),
        (diagram.debiased, "debiased", {"color": colours.under, "linewidth": 1.8, "linestyle": (0, (1, 1.2))}),
        (diagram.ece, "ECE", {"color": colours.ink, "linewidth": 2, "marker": "o", "markersize": 5}),
    ]
    top = max(0.001, 1.08 * float(max(diagram.ece.max(), diagram.floor_high.max())))
    heights = _apart([float(y[-1]) / top for y, _, _ in lines], [label for _, label, _ in lines])
    for (y, label, look), height in zip(lines, heights, strict=True):
        ax.plot(x, y.numpy(), markerfacecolor=colours.background, zorder=3, **look)
        ax.annotate(
            label, (1, height), xycoords="axes fraction", xytext=(6, 0), textcoords="offset points", va="center",
            color=look["color"], fontsize=SIZES["note"], annotation_clip=False,
        )  # fmt: skip
    ax.set(xscale="log", xlim=(x[0] / 1.08, x[-1] * 1.08), ylim=(0, top))
    ax.xaxis.set_major_locator(FixedLocator(x.tolist()))
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(percent_ticks())
    name_axes(ax, colours, "Number of bins", "ECE, %")
    usual = x.tolist().index(15) if 15 in x else 0
    ece, floor = percent(float(diagram.ece[usual])), percent(float(diagram.floor[usual]))
    detail = f"at {x[usual]} bins {ece}, of a calibrated model {floor}  ·  n = {diagram.n:,}"
    title(ax, colours, "ECE and the number of bins", detail)
    return ax


def _apart(heights: list[float], labels: list[str]) -> list[float]:
    r"""Move labels up, in order of height, until none touches the axis or the one below.

    Example:
        >>> [round(height, 3) for height in _apart([0.5, 0.51, 0.0], ["a", "b", "c\nd"])]
        [0.5, 0.56, 0.06]
    """
    placed = list(heights)
    free = 0.0
    for place in sorted(range(len(heights)), key=heights.__getitem__):
        half = _LINE * (labels[place].count("\n") + 1) / 2
        placed[place] = max(heights[place], free + half)
        free = placed[place] + half
    return placed

"""Two sets of predictions in one reliability diagram."""

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from calibrant.diagrams.reliability import ReliabilityDiagram
from calibrant.plots.layout import key, percent, title
from calibrant.plots.marks import band_handle
from calibrant.plots.strip import STRIP_SHARE, draw_strip
from calibrant.plots.style import Look, Theme

__all__ = ["draw_comparison"]


def draw_comparison(
    ax: Axes, diagrams: tuple[ReliabilityDiagram, ReliabilityDiagram], labels: tuple[str, str], theme: Theme
) -> None:
    """Both curves with a dot a bin: dashed with squares for the first, solid with circles for the second."""
    handles: list[Artist] = []
    for diagram, label, line, marker in zip(diagrams, labels, theme.pair, "so", strict=True):
        curve, bins = diagram.curve, diagram.bins
        dots: Look = {"marker": marker, "markersize": 5, "markerfacecolor": theme.background, "markeredgewidth": 1.3}
        ax.plot(curve.confidence.numpy(), curve.accuracy.numpy(), zorder=4, **line)
        ax.plot(
            bins.confidence.numpy(), bins.accuracy.numpy(), linestyle="none", color=line["color"], clip_on=False,
            zorder=5, **dots,
        )  # fmt: skip
        handles.append(Line2D([], [], label=f"{label}, ECE {percent(diagram.ece)}", **line, **dots))
    draw_strip(ax, diagrams, theme, note="share of rows (first filled, second outlined)")
    key(ax, theme, [*handles, band_handle(theme, "95 % range if the first is calibrated")], floor=STRIP_SHARE)
    sizes = dict.fromkeys(f"{diagram.n:,}" for diagram in diagrams)
    title(ax, theme, "Reliability compared", f"n = {' and '.join(sizes)}")

"""What a loss that is learned has become, epoch by epoch: γ of γ-Net, and others' weight decay or smoothing."""

from typing import NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from calibrant.diagnosis import Diagnosis, EpochCurves
from calibrant.errors import InputError
from calibrant.plots.diagnosis.looks import BAND
from calibrant.plots.diagnosis.panels import panel_grid, panel_title
from calibrant.plots.diagnosis.ranges import draw_range
from calibrant.plots.head import draw_head
from calibrant.plots.layout import bare_axes, horizontal_lines, percent
from calibrant.plots.style import SIZES, Look, Theme, ThemeName, theme_named

__all__ = ["plot_learned_loss"]

_HEIGHT, _WIDTH = 2.4, 3.4  # inches a panel


class _Told(NamedTuple):
    """The mean over rows or units of one learned number, and the ends about it, epoch by epoch."""

    words: str
    low: list[float]
    high: list[float]


def plot_learned_loss(diagnosis: Diagnosis, *, figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw the mean of what was learned, over the range between runs, with its spread over rows as thin lines.

    Of γ-Net the spread is the standard deviation over the calibration rows to both sides, cut at 0, below which
    no γ is; of a learned weight decay or smoothing, the smallest and the largest.

    Args:
        diagnosis: From :func:`calibrant.diagnosis.diagnose`.
        figure: Where to draw; a new one unless given.
        theme: "light" or "dark"; the figure takes its background too.

    Returns:
        The figure.

    Raises:
        InputError: If no candidate's loss was learned.
    """
    curves = [curve for curve in diagnosis.epochs if _prefix(curve) is not None]
    if not curves:
        raise InputError("a candidate's loss must be one that is learned, such as meta_focal; none is.")
    colours = theme_named(theme)
    grid = panel_grid([curve.candidate for curve in curves], colours, figure=figure, heights=(_HEIGHT,), width=_WIDTH)
    handles: list[Artist] = [
        Line2D([], [], label="mean", **_mean_look(colours)),
        Line2D([], [], label="spread: γ ± standard deviation, else smallest and largest", **_spread_look(colours)),
    ]
    if any(len(each.seeds) > 1 for each in diagnosis.candidates):
        band = Patch(label="range of the mean over seeds", facecolor=colours.under, alpha=BAND, linewidth=0)
        handles.insert(1, band)
    draw_head(
        grid.head,
        colours,
        "What the loss has learned",
        "on the rows set apart to calibrate, after epochs in which they were looked at",
        handles,
    )
    for place, curve in enumerate(curves):
        ax = grid.figure.add_subplot(grid.cells[place][0])
        _draw(ax, curve, grid.names[place], colours)
    grid.name_axes(colours, "Epoch")
    return grid.figure


def _prefix(curve: EpochCurves) -> str | None:
    return next((name.removesuffix("_mean") for name in curve.learned if name.endswith("_mean")), None)


def _draw(ax: Axes, curve: EpochCurves, name: str, theme: Theme) -> None:
    bare_axes(ax, theme)
    horizontal_lines(ax, theme)
    prefix = _prefix(curve)
    assert prefix is not None, "only learned losses are drawn"
    told, x = _told(curve, prefix), [float(epoch) for epoch in curve.epochs]
    for end in (told.low, told.high):
        ax.plot(x, end, zorder=2, marker="_" if len(x) == 1 else None, **_spread_look(theme))
    draw_range(ax, x, curve.learned[f"{prefix}_mean"], _mean_look(theme))
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(5))
    ax.set_ylabel(told.words, color=theme.muted, fontsize=SIZES["label"])
    last = f"{told.words} = {curve.learned[f'{prefix}_mean'].mean[-1]:.3g} in the end"
    clipped = curve.learned.get("gamma_clipped")
    most = max(clipped.highest) if clipped is not None else 0.0
    panel_title(ax, theme, name, last + (f"  ·  up to {percent(most)} of rows at the limit" if most else ""))


def _told(curve: EpochCurves, prefix: str) -> _Told:
    mean = curve.learned[f"{prefix}_mean"].mean
    if f"{prefix}_std" in curve.learned:
        spread = curve.learned[f"{prefix}_std"].mean
        pairs = list(zip(mean, spread, strict=True))
        return _Told(
            "γ" if prefix == "gamma" else prefix, [max(m - s, 0.0) for m, s in pairs], [m + s for m, s in pairs]
        )
    least, most = (curve.learned.get(f"{prefix}_{end}") for end in ("least", "most"))
    low, high = (mean if band is None else band.mean for band in (least, most))
    return _Told({"l2": "pull on the weights", "smoothing": "ε"}.get(prefix, prefix), list(low), list(high))


def _mean_look(theme: Theme) -> Look:
    return {"color": theme.under, "linewidth": 2.2}


def _spread_look(theme: Theme) -> Look:
    return {"color": theme.muted, "linewidth": 1.2, "linestyle": (0, (4, 1.6))}

"""Themes, figures, axes, titles, legends and numbers as text: everything around the data of a plot.

Everything is set on the artists themselves: global settings are neither changed nor relied on, and no pyplot state is
created, so plots can be drawn in threads and without a display. Hues follow Okabe and Ito, distinguishable with any
colour vision; what hue shows is also shown by hatching, lightness, marker or line style, for print in grey.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, final

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Annotation
from matplotlib.ticker import FuncFormatter, MaxNLocator, ScalarFormatter
from matplotlib.transforms import ScaledTranslation

from calibrant.atomic import atomic_path
from calibrant.calibrators import Chain
from calibrant.catalogue import parse_any_calibrator
from calibrant.errors import CalibrantError, FileError, InputError, UnknownNameError, caught_warnings, ours_in, warn
from calibrant.text import percent

ThemeName: TypeAlias = Literal["light", "dark"]
Corner: TypeAlias = Literal["upper left", "upper right", "lower left", "lower right"]
Look: TypeAlias = dict[str, Any]
"""Settings of an artist, by matplotlib's names."""

SIZES = {"title": 12.5, "detail": 9.5, "label": 10.5, "tick": 9.5, "note": 9.0}
DASHED = (0, (4, 1.6))
DOT = "  ·  "  # between the details under a title


@final
@dataclass(frozen=True)
class Theme:
    """Colours by their meaning."""

    background: str
    ink: str  # titles and main lines
    muted: str  # axes and secondary text
    faint: str  # grid lines
    band: str  # what chance allows
    bar: str  # neutral bars
    over: str  # overconfident; wrong predictions
    over_tint: str
    under: str  # underconfident; correct predictions
    under_tint: str

    @property
    def pair(self) -> tuple[Look, Look]:
        """Looks of the lines of two sets that are compared."""
        first: Look = {"color": self.over, "linestyle": DASHED, "linewidth": 1.8}
        return first, {"color": self.under, "linestyle": "-", "linewidth": 2.4}

    @property
    def dashes(self) -> Look:
        """Look of a line that others are compared with."""
        return {"color": self.muted, "linewidth": 1, "linestyle": (0, (4, 3))}

    @property
    def good(self) -> Look:
        """Look of an area of correct or underconfident predictions."""
        return {"facecolor": self.under_tint, "edgecolor": self.under}

    @property
    def bad(self) -> Look:
        """Look of an area of wrong or overconfident predictions."""
        return {"facecolor": self.over_tint, "edgecolor": self.over, "hatch": "/////"}


THEMES: dict[str, Theme] = {
    "light": Theme(
        background="#ffffff", ink="#16191d", muted="#59626e", faint="#e3e6ea", band="#a7afba", bar="#e1e7ee",
        over="#c4500a", over_tint="#fbe3d3", under="#0b6aa8", under_tint="#64a8d8",
    ),
    "dark": Theme(
        background="#15191e", ink="#eef1f4", muted="#a3adb8", faint="#2b323a", band="#77828f", bar="#2f3944",
        over="#f5955a", over_tint="#4a2c1b", under="#8ccdf7", under_tint="#3f8fc6",
    ),
}  # fmt: skip


def theme_named(name: str) -> Theme:
    """Return the theme of this name, which must exist."""
    if name not in THEMES:
        raise UnknownNameError(f"theme must be one of {', '.join(THEMES)}; got {name!r}.")
    return THEMES[name]


def open_axes(
    ax: Axes | None, theme: str, *, width: float = 6.2, height: float = 4.4, lines: bool = True
) -> tuple[Axes, Theme]:
    """Prepare the axes given, or those of a new figure of this size in inches, in the colours of a theme."""
    colours = theme_named(theme)
    ax = new_figure(colours, width=width, height=height).add_subplot() if ax is None else ax
    bare_axes(ax, colours, lines=lines)
    return ax, colours


def open_figure(figure: Figure | None, theme: Theme, *, width: float, height: float) -> Figure:
    """Return the figure given, or a new one of this size in inches, with the background of the theme."""
    if figure is None:
        return new_figure(theme, width=width, height=height)
    figure.set_facecolor(theme.background)
    return figure


def new_figure(theme: Theme, *, width: float, height: float) -> Figure:
    """Create a figure without pyplot, with a small margin; sizes in inches."""
    margins = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
    return Figure((width, height), layout=margins, facecolor=theme.background)


def bare_axes(ax: Axes, theme: Theme, *, lines: bool = False) -> None:
    """Set the theme's background, two thin spines and muted ticks, and faint horizontal lines if requested."""
    ax.set_facecolor(theme.background)
    ax.figure.set_facecolor(theme.background)
    ax.grid(visible=False)
    ax.set_axisbelow(True)
    for side, spine in ax.spines.items():
        spine.set(color=theme.muted, linewidth=0.8, visible=side in ("left", "bottom"))
    ax.tick_params(
        which="both", direction="out", length=3, width=0.8, color=theme.muted, labelcolor=theme.muted,
        labelsize=SIZES["tick"], top=False, right=False,
    )  # fmt: skip
    if lines:
        ax.grid(visible=True, axis="y", color=theme.faint, linewidth=0.8, linestyle="-")


def row_axes(ax: Axes, theme: Theme, names: Sequence[str]) -> None:
    """Prepare axes with a row for every name, from the top, and faint lines between the rows."""
    bare_axes(ax, theme)
    between = [place + 0.5 for place in range(len(names) - 1)]
    ax.hlines(between, 0, 1, transform=ax.get_yaxis_transform(), color=theme.faint, linewidth=0.8, zorder=0)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0, labelcolor=theme.ink)
    ax.spines["left"].set_visible(False)


def note(
    ax: Axes, theme: Theme, text: str, at: tuple[float, float], offset: tuple[float, float] = (0, 0), **look: Any
) -> Annotation:
    """Write a small text so many points beside a place on the axes, in shares of them unless ``xycoords`` is given."""
    usual: Look = {"color": theme.muted, "fontsize": SIZES["note"], "xycoords": "axes fraction"}
    return ax.annotate(text, at, xytext=offset, textcoords="offset points", **usual | look)


def bold_title(ax: Axes, theme: Theme, text: str, *, pad: float, size: str = "label") -> None:
    """Write the title of an axes from its left edge, so many points above it."""
    ax.set_title(text, loc="left", color=theme.ink, fontsize=SIZES[size], fontweight="bold", pad=pad)


def title(ax: Axes, theme: Theme, heading: str, *details: str) -> None:
    """Write what the plot is, and below it one line for every detail, all from the left edge."""
    lines = [line for line in details if line]
    bold_title(ax, theme, heading, pad=10 + 15 * len(lines), size="title")
    note(ax, theme, "\n".join(lines), (0, 1), (0, 10), va="bottom", fontsize=SIZES["detail"], linespacing=1.35)


def name_axes(ax: Axes, theme: Theme, x: str = "", y: str = "") -> None:
    """Label the axes."""
    ax.set_xlabel(x, color=theme.muted, fontsize=SIZES["label"])
    ax.set_ylabel(y, color=theme.muted, fontsize=SIZES["label"])


def key(ax: Axes, theme: Theme, handles: Sequence[Artist], *, place: Corner = "upper left", floor: float = 0) -> None:
    """Draw the legend in a corner that the data leave free; the share ``floor`` of the axes is kept clear."""
    legend = ax.legend(
        handles=handles, loc=place, fontsize=SIZES["note"], labelcolor=theme.ink, borderaxespad=0.4, borderpad=0.4,
        handlelength=2.2, frameon=True, framealpha=0.9, facecolor=theme.background, edgecolor="none", fancybox=False,
        bbox_to_anchor=(0, floor, 1, 1 - floor),
    )  # fmt: skip
    legend.set_zorder(10)


def draw_head(ax: Axes, theme: Theme, heading: str, detail: str, handles: Sequence[Artist] = ()) -> None:
    """Fill the top row of a figure with several panels: title, numbers under it, and the legend under these."""
    ax.axis("off")
    artists: list[Artist] = [
        ax.text(0, 1, heading, color=theme.ink, fontsize=SIZES["title"], fontweight="bold", va="top"),
        note(ax, theme, detail, (0, 1), (0, -19), fontsize=SIZES["detail"], va="top"),
    ]
    if handles:
        below = ax.transAxes + ScaledTranslation(0, -38 / 72, ax.figure.dpi_scale_trans)
        artists.append(
            ax.legend(
                handles=handles, loc="upper left", ncols=len(handles), fontsize=SIZES["note"], labelcolor=theme.ink,
                frameon=False, borderaxespad=0, borderpad=0, handlelength=1.6, columnspacing=1.6, bbox_to_anchor=(0, 1),
                bbox_transform=below,
            )
        )  # fmt: skip
    for artist in artists:
        artist.set_in_layout(False)  # excluded from the layout of the panels: this row has its own space


def percent_with_interval(value: float, low: float, high: float) -> str:
    """Write a fraction in percent with its interval, where there is one.

    Example:
        >>> percent_with_interval(0.093, 0.079, 0.108), percent_with_interval(0.093, math.nan, math.nan)
        ('9.3 % (7.9–10.8 %)', '9.3 %')
    """
    return percent(value) if math.isnan(low) else f"{percent(value)} ({100 * low:.1f}–{100 * high:.1f} %)"


def size_text(n: int, effective_n: float | None) -> str:
    """Write the number of samples, and the effective one of weighted samples.

    Example:
        >>> size_text(10000, None), size_text(10000, 6200.3)
        ('n = 10,000', 'n = 10,000, effective 6,200')
    """
    is_as_many = effective_n is None or round(effective_n) == n
    return f"n = {n:,}" + ("" if is_as_many else f", effective {effective_n:,.0f}")


def percent_ticks() -> FuncFormatter:
    """Format fractions as percent, without the sign: the axis label carries it."""
    return FuncFormatter(lambda fraction, _: f"{100 * fraction:.4g}")


def percent_axis(axis: Axis, most: int | None = None) -> None:
    """Show fractions as percent, with at most so many steps between ticks if given."""
    if most is not None:
        axis.set_major_locator(MaxNLocator(most))
    axis.set_major_formatter(percent_ticks())


def method_title(text: str) -> str:
    """Spell out a calibrator as written on the command line, by the titles in the catalogue.

    Options that differ from the defaults follow in brackets. A text that names no calibrator is returned unchanged.

    Example:
        >>> method_title("temperature+isotonic"), method_title("clamped")
        ('Temperature scaling + isotonic regression', 'clamped')
    """
    try:
        method = parse_any_calibrator(text)
    except CalibrantError:
        return text
    titles = []
    for step in method.steps if isinstance(method, Chain) else (method,):
        defaults = type(step)().settings()
        changed = [f"{name}={value}" for name, value in step.settings().items() if value != defaults[name]]
        titles.append(step.title + (f" ({', '.join(changed)})" if changed else ""))
    return " + ".join([titles[0], *(later[0].lower() + later[1:] for later in titles[1:])])


class MetricAxis(NamedTuple):
    """Label of a metric's axis, how to write one of its values in a text, and whether ticks are in percent."""

    words: str
    number: Callable[[float], str]
    in_percent: bool

    def set_ticks(self, axis: Axis, most: int) -> None:
        """Set ticks at round numbers, at most so many steps."""
        axis.set_major_locator(MaxNLocator(most))
        axis.set_major_formatter(percent_ticks() if self.in_percent else ScalarFormatter(useOffset=False))


# Shares and errors of shares are read in percent.
_IN_PERCENT = {
    "accuracy": "Accuracy", "ace": "Adaptive ECE", "auroc": "AUROC", "confidence": "Mean confidence", "ece": "ECE",
    "risk_auroc": "Risk AUROC", "sce": "Classwise ECE",
}  # fmt: skip
_PLAIN = {"brier": "Brier score", "entropy": "Entropy, nats", "nll": "Log-loss"}


def metric_axis(name: str) -> MetricAxis:
    """Return the axis of a metric; one without a label here has its name and plain numbers.

    Example:
        >>> metric_axis("ece").words, metric_axis("ece").number(0.0123)
        ('ECE, %', '1.2 %')
    """
    if name in _IN_PERCENT:
        return MetricAxis(f"{_IN_PERCENT[name]}, %", percent, in_percent=True)
    return MetricAxis(_PLAIN.get(name, name), lambda value: f"{value:.3f}", in_percent=False)


# No date, so that equal figures give equal files.
_UNDATED: dict[str, dict[str, str | None]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def save_figure(figure: Figure, path: str | os.PathLike[str], *, dpi: int = 200) -> Path:
    """Write a figure; the path must end in .png, .svg or .pdf (else an InputError). A FileError if it cannot be."""
    path = Path(path)
    form = path.suffix.removeprefix(".").lower()
    if form not in _UNDATED:
        raise InputError(f"a figure's file must end in .{', .'.join(_UNDATED)}; got {path.name!r}.")
    # TrueType: many publishers refuse the Type 3 fonts that matplotlib embeds otherwise.
    with atomic_path(path) as partial, caught_warnings() as caught, rc_context({"pdf.fonttype": 42}):
        figure.savefig(partial, format=form, dpi=dpi, facecolor=figure.get_facecolor(), metadata=_UNDATED[form])
    boxes = [one for one in caught if "missing from font" in str(one.message)]  # one for every character
    ours_in([one for one in caught if one not in boxes])
    if boxes:
        warn(f"{path.name} has boxes for characters that its font lacks; HTML reports show all of them.")
    return path


def save_figures(
    figures: Mapping[str, Figure],
    folder: str | os.PathLike[str],
    *,
    formats: Sequence[str] = ("png", "svg", "pdf"),
    dpi: int = 200,
) -> list[Path]:
    """Write every figure in every format, as ``folder/name.format``; the folder is created if it is missing.

    Raises:
        InputError: If a format is unknown.
        FileError: If the folder cannot be created, or the system refuses to write.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or error
        raise FileError(f"the folder {folder} could not be made: {why}. Name another for the figures.") from error
    paths = {folder / f"{name}.{form}": figure for name, figure in figures.items() for form in formats}
    return [save_figure(figure, path, dpi=dpi) for path, figure in paths.items()]

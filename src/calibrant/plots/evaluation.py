"""Figures of one set of predictions: confidence densities, risk against coverage, ECE over bin counts, and all."""

import math
import textwrap
from collections.abc import Mapping
from itertools import cycle, product
from typing import Literal, Unpack, cast

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, ScalarFormatter
from torch import Tensor

from calibrant import diagrams
from calibrant.diagrams import BinsSweep, ConfidenceDensity, RiskCoverage
from calibrant.errors import InputError
from calibrant.evidence import Estimate, Risk, evaluate_risk
from calibrant.plots import layout
from calibrant.plots.layout import DASHED, DOT, Corner, Look, Theme, ThemeName
from calibrant.plots.reliability import diagram_of, plot_classwise, plot_reliability
from calibrant.plots.risk import name_of, plot_decisions, plot_risk
from calibrant.predictions import Arrays, Predictions, TopLabel, as_risk
from calibrant.text import percent, without_middle

_LONGEST_NAME, _LONGEST_LABEL = 56, 24
_LINE = 0.06  # height of a line of a label, as a share of the axes
_BAND = 0.2  # opacity
_KEY_WIDTH = 0.72  # of the legend of densities, as a share of the axes
# Error rates at which an operating point may be shown.
_RISKS = (0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
_FEWEST = 50  # samples for an operating point
_FEWEST_SHARE, _FEWEST_ANSWERED = 0.05, 30  # coverage and samples below which the band is too wide to show


def figures(
    predictions: Predictions | TopLabel,
    *,
    n_bins: int = 15,
    theme: ThemeName = "light",
    seed: int = 0,
    name: str = "",
    ece: Estimate | None = None,
    risk: Risk | None = None,
    error_rate: float | None = None,
) -> dict[str, Figure]:
    """Draw all figures of these predictions.

    Args:
        predictions: Logits and labels, or confidence and correctness; the figure by class needs the former.
        n_bins: Number of equal-width bins of the reliability diagrams.
        theme: "light" or "dark".
        seed: Random seed of the noise floor.
        name: Name of the data, such as their file, for the titles.
        ece: Estimate of the ECE with as many bins, if it is known already; two classes have that of ``risk``.
        risk: The risk of the positive class of two, if it is known already.
        error_rate: Error rate to mark in the figure of risk and coverage; None: a round one.

    Returns:
        Figures by name: risk and decisions (only of two classes), reliability, classwise (only from
        :class:`Predictions`), density, risk_coverage, bins_sweep.
    """
    drawn: dict[str, Axes | Figure] = {}
    shown, positive = predictions, ""
    if isinstance(predictions, Predictions) and predictions.n_classes == 2:
        one = risk or evaluate_risk(predictions, n_bins=n_bins, seed=seed)
        shown, positive, ece = as_risk(predictions), name_of(predictions), one.ece
        drawn["risk"] = plot_risk(one, positive=positive, name=name, theme=theme)
        drawn["decisions"] = plot_decisions(predictions, name=name, theme=theme)
    diagram, sweep = diagrams.reliability(shown, n_bins=n_bins, ece=ece), diagrams.bins_sweep(shown, seed=seed)
    drawn["reliability"] = plot_reliability(diagram, of_class=positive, name=name, theme=theme)
    if isinstance(predictions, Predictions):
        by_class = diagrams.classwise_reliability(predictions, n_bins=n_bins)
        drawn["classwise"] = plot_classwise(by_class, name=name, theme=theme)
    drawn["density"] = plot_density(predictions, name=name, theme=theme)
    drawn["risk_coverage"] = plot_risk_coverage(predictions, error_rate=error_rate, name=name, theme=theme)
    drawn["bins_sweep"] = plot_bins_sweep(sweep, of_class=positive, name=name, theme=theme)
    return {kind: one if isinstance(one, Figure) else cast("Figure", one.figure) for kind, one in drawn.items()}


def plot_density(
    *predictions: Predictions | TopLabel | ConfidenceDensity,
    name: str = "",
    ax: Axes | None = None,
    theme: ThemeName = "light",
    **arrays: Unpack[Arrays],
) -> Axes:
    """Draw the densities of confidence of correct and of wrong predictions; each has area 1.

    Correct ones are plain under a solid line, wrong ones hatched under a dashed line.
    """
    diagram = diagram_of(predictions, arrays, ConfidenceDensity, diagrams.confidence_density, "plot_density")
    ax, colours = layout.open_axes(ax, theme)
    n, t = diagram.n_right + diagram.n_wrong, diagram.confidence
    handles: list[Artist] = []
    shares = (diagram.share_right, 1 - diagram.share_right)
    for density, median, count, share, kind, fill, dashes in (
        (diagram.right, diagram.median_right, diagram.n_right, shares[0], "correct", colours.good, "-"),
        (diagram.wrong, diagram.median_wrong, diagram.n_wrong, shares[1], "wrong", colours.bad, DASHED),
    ):
        if count:
            ax.fill_between(t.numpy(), 0, density.numpy(), alpha=0.55, linewidth=0, zorder=2, **fill)
            ax.plot(t.numpy(), density.numpy(), color=fill["edgecolor"], linewidth=2, linestyle=dashes, zorder=3)
            note = f"{count:,} {kind} ({percent(share, 0)}), median confidence {percent(median)}"
            handles.append(Patch(alpha=0.8, linewidth=0, label=note, **fill))
    both, highest = diagram.right + diagram.wrong, diagram.right.maximum(diagram.wrong)
    is_left = bool(both[t < 0.5].max() < both[t >= 0.5].max())
    layout.key(ax, colours, handles, place="upper left" if is_left else "upper right")
    # The curves stay below the legend where it is.
    below = highest[t < _KEY_WIDTH if is_left else t > 1 - _KEY_WIDTH].max() / (0.97 - 0.09 * len(handles))
    ax.set(xlim=(0, 1), ylim=(0, float(max(1.05 * highest.max(), below))))
    layout.percent_axis(ax.xaxis)
    ax.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    ax.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    layout.name_axes(ax, colours, "Confidence, %", "Density (area 1 for each)")
    auroc = "" if math.isnan(diagram.auroc) else f"AUROC {percent(diagram.auroc)}{DOT}"
    heading = "Confidence of correct and wrong predictions"
    detail = auroc + layout.size_text(n, diagram.effective_n)
    layout.title(ax, colours, heading, without_middle(name, _LONGEST_NAME), detail)
    return ax


def plot_risk_coverage(
    *predictions: Predictions | TopLabel | RiskCoverage,
    other: Predictions | TopLabel | RiskCoverage | None = None,
    set_names: tuple[str, str] = ("uncalibrated", "calibrated"),
    error_rate: float | None = None,
    name: str = "",
    ax: Axes | None = None,
    theme: ThemeName = "light",
    **arrays: Unpack[Arrays],
) -> Axes:
    """Draw the risk that remains at every coverage with its 95 % band, above the best that the same accuracy allows.

    The tinted area between the two is what a better ranking could gain. A diamond marks an operating point: how many
    samples can be answered at this ``error_rate`` or, unless it is given, at a round one.
    """
    first = diagram_of(predictions, arrays, RiskCoverage, diagrams.risk_coverage, "plot_risk_coverage")
    second = other if other is None or isinstance(other, RiskCoverage) else diagrams.risk_coverage(other)
    ax, colours = layout.open_axes(ax, theme)
    best: Look = {"color": colours.muted, "linewidth": 1.3, "linestyle": (0, (1, 1.4))}
    if second is None:
        x, low, high = first.coverage.numpy(), first.optimal.numpy(), first.risk.numpy()
        ax.fill_between(x, low, high, color=colours.bar, linewidth=0, zorder=1)
        curves: list[tuple[RiskCoverage, str, Look]] = [(first, "this ranking", {"color": colours.ink, "linewidth": 2})]
    else:
        both = zip((first, second), set_names, colours.pair, strict=True)
        curves = [(of, f"{textwrap.fill(label, 34)}, AURC {percent(of.aurc, 2)}", look) for of, label, look in both]
    handles: list[Artist] = []
    for of, label, look in curves:
        x = of.coverage.numpy()
        low, high = of.risk_low.numpy(), of.risk_high.numpy()
        enough = x >= max(_FEWEST_SHARE, _FEWEST_ANSWERED / of.n)
        ax.fill_between(x, low, high, where=enough, color=look["color"], alpha=_BAND, linewidth=0, zorder=2)
        ax.plot(x, of.optimal.numpy(), zorder=3, **best)
        ax.plot(x, of.risk.numpy(), marker="o" if of.n == 1 else None, clip_on=False, zorder=4, **look)
        handles.append(Line2D([], [], label=label, **look))
    if any(of.n >= _FEWEST_ANSWERED for of, _, _ in curves):
        band = curves[0][2]["color"] if second is None else colours.muted
        handles.append(Patch(facecolor=band, alpha=_BAND, linewidth=0, label="95 % band"))
    handles.append(Line2D([], [], label="best ranking of the same predictions", **best))
    top = max(0.01, *(float(of.risk.max()) for of, _, _ in curves))
    rising = max(float(of.risk[: len(of.risk) // 2 + 1].max()) for of, _, _ in curves) < 0.6 * top
    falling = max(float(of.risk_high[of.coverage > 0.4].max()) for of, _, _ in curves) < 0.6 * top
    # Below, the legend stands where the best curve is not: it leaves the axis where coverage equals accuracy.
    low_corner: Corner = "lower right" if float(first.risk[-1]) > 0.5 else "lower left"
    is_marked = second is None and _mark_operating_point(ax, first, colours, error_rate)
    beside: Corner = "upper right" if falling else low_corner
    layout.key(ax, colours, handles, place="upper left" if rising or is_marked else beside)
    # Above a curve that is high on the left too, the legend has room of its own: below it would cover the note.
    ax.set(xlim=(0, 1), ylim=(0, (1.42 if is_marked and not rising else 1.08) * top))
    layout.percent_axis(ax.xaxis)
    layout.percent_axis(ax.yaxis)
    ax.set_yticks([tick for tick in ax.get_yticks() if tick <= min(1.0, ax.get_ylim()[1])])
    layout.name_axes(ax, colours, "Coverage: samples answered, most confident first, %", "Risk: wrong among them, %")
    numbers = [f"AURC {percent(first.aurc, 2)}", f"{percent(first.e_aurc, 2)} above the best ranking"]
    detail = DOT.join([*(numbers if second is None else []), layout.size_text(first.n, first.effective_n)])
    layout.title(ax, colours, "Risk and coverage", without_middle(name, _LONGEST_NAME), detail)
    return ax


def _mark_operating_point(ax: Axes, diagram: RiskCoverage, theme: Theme, error_rate: float | None) -> bool:
    """Mark how many samples can be answered at an error rate: the largest round one of at most half of the whole.

    Return whether there is such a point.
    """
    target = error_rate or next((risk for risk in _RISKS if risk <= float(diagram.risk[-1]) / 2), None)
    place = None if target is None or (error_rate is None and diagram.n < _FEWEST) else diagram.widest_at(target)
    if target is None or place is None:
        return False
    x, y = float(diagram.coverage[place]), float(diagram.risk[place])
    ax.plot(x, y, marker="D", markersize=6, color=theme.ink, markeredgecolor=theme.background, zorder=6)
    threshold = percent(float(diagram.threshold[place]))
    words = f"{100 * target:g} % errors: {percent(x, 0)} answered\n(confidence ≥ {threshold})"
    side: Look = {"ha": "right", "va": "bottom"} if x > 0.45 else {"ha": "left", "va": "top"}
    box: Look = {"facecolor": theme.background, "edgecolor": "none", "alpha": 0.6, "pad": 1}
    offset = (-10, 8) if x > 0.45 else (12, -6)
    top = float(diagram.risk.max())
    if x <= 0.45 and y < 0.25 * top:  # below the point it would cover the axis: above the curve, or under a steep one
        beside = float(diagram.risk_high[(diagram.coverage >= x) & (diagram.coverage <= x + 0.4)].max())
        y, side, offset = beside if beside < 0.6 * top else 0.0, {"ha": "left", "va": "bottom"}, (12, 4)
    layout.note(ax, theme, words, (x, y), offset, xycoords="data", color=theme.ink, zorder=7, bbox=box, **side)
    return True


def plot_bins_sweep(
    *predictions: Predictions | TopLabel | BinsSweep,
    name: str = "",
    of_class: str = "",
    ax: Axes | None = None,
    theme: ThemeName = "light",
    **arrays: Unpack[Arrays],
) -> Axes:
    """Draw the ECE and its debiased estimate over the number of bins, above what a calibrated model would score.

    ``of_class`` names the class that the confidences are probabilities of, for the title.
    """
    diagram = diagram_of(predictions, arrays, BinsSweep, diagrams.bins_sweep, "plot_bins_sweep")
    ax, colours = layout.open_axes(ax, theme)
    x, floor = diagram.n_bins.numpy(), (diagram.floor_low.numpy(), diagram.floor_high.numpy())
    ax.fill_between(x, *floor, color=colours.band, alpha=0.5, linewidth=0, zorder=2)
    dotted, dashed = (0, (1, 1.2)), (0, (4, 2))
    lines: list[tuple[Tensor, str, Look]] = [
        (diagram.floor, "if calibrated\n(95 % range)", {"color": colours.muted, "linewidth": 1.4, "linestyle": dashed}),
        (diagram.debiased, "debiased", {"color": colours.under, "linewidth": 1.8, "linestyle": dotted}),
        (diagram.ece, "ECE", {"color": colours.ink, "linewidth": 2, "marker": "o", "markersize": 5}),
    ]
    top = max(0.001, 1.08 * float(max(diagram.ece.max(), diagram.floor_high.max())))
    heights = _apart([float(y[-1]) / top for y, _, _ in lines], [label for _, label, _ in lines])
    for (y, label, look), height in zip(lines, heights, strict=True):
        ax.plot(x, y.numpy(), markerfacecolor=colours.background, zorder=3, **look)
        layout.note(ax, colours, label, (1, height), (6, 0), va="center", color=look["color"])
    _bins_axes(ax, colours, diagram.n_bins, "ECE, %", top)
    usual = x.tolist().index(15) if 15 in x else 0
    ece, calibrated = percent(float(diagram.ece[usual])), percent(float(diagram.floor[usual]))
    size = layout.size_text(diagram.n, diagram.effective_n)
    detail = f"{ece} at {x[usual]} bins; a calibrated model: {calibrated}{DOT}{size}"
    source = DOT.join(filter(None, [of_class, without_middle(name, _LONGEST_NAME - len(of_class))]))
    layout.title(ax, colours, "ECE and the number of bins", source, detail)
    return ax


def plot_bins_sweeps(
    predictions: Mapping[str, Predictions | TopLabel | BinsSweep],
    *,
    metric: Literal["ece", "mce"] = "ece",
    name: str = "",
    ax: Axes | None = None,
    theme: ThemeName = "light",
) -> Axes:
    """Draw the ECE or MCE of several sets over the number of bins, such as the same samples after several methods."""
    if not predictions or metric not in {"ece", "mce"}:
        raise InputError(f"there must be a set to draw, and metric must be ece or mce; got {metric!r}.")
    sweeps = [one if isinstance(one, BinsSweep) else diagrams.bins_sweep(one) for one in predictions.values()]
    curves = [getattr(sweep, metric) for sweep in sweeps]
    ax, colours = layout.open_axes(ax, theme)
    top = max(0.001, 1.08 * max(float(curve.max()) for curve in curves))
    labels = [without_middle(label, _LONGEST_LABEL) for label in predictions]
    heights = _apart([float(curve[-1]) / top for curve in curves], labels)
    looks = product(("-", DASHED, (0, (1, 1.2))), (colours.ink, colours.over, colours.under, colours.muted))
    for sweep, curve, label, height, (line, colour) in zip(sweeps, curves, labels, heights, cycle(looks)):
        ax.plot(sweep.n_bins.numpy(), curve.numpy(), color=colour, linestyle=line, linewidth=1.8, zorder=3)
        layout.note(ax, colours, label, (1, height), (6, 0), va="center", color=colour)
    _bins_axes(ax, colours, sweeps[0].n_bins, f"{metric.upper()}, %", top)
    layout.title(ax, colours, f"{metric.upper()} and the number of bins", without_middle(name, _LONGEST_NAME))
    return ax


def _bins_axes(ax: Axes, colours: Theme, n_bins: Tensor, title: str, top: float) -> None:
    """Lay out axes of a percentage over numbers of bins."""
    x = n_bins.tolist()
    ax.set(xscale="log", xlim=(x[0] / 1.08, x[-1] * 1.08), ylim=(0, top))
    ax.xaxis.set_major_locator(FixedLocator(x))
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.xaxis.set_minor_locator(NullLocator())
    layout.percent_axis(ax.yaxis)
    layout.name_axes(ax, colours, "Number of bins", title)


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

"""Diagnosis along an axis: the loss's coefficient, calibration samples, epochs, and what was learned when."""

import math
from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from calibrant.diagnosis import CoefficientCurve, Diagnosis, EpochCurves, LearnedEpochs, ValidationSize
from calibrant.diagnosis.evaluated import UNCALIBRATED
from calibrant.diagnosis.summaries import ORACLE
from calibrant.errors import InputError
from calibrant.plots import layout
from calibrant.plots.diagnosis import panels
from calibrant.plots.diagnosis.panels import BAND, MapLook
from calibrant.plots.layout import DASHED, DOT, Look, Theme, ThemeName
from calibrant.text import counted, percent

_WIDE, _TALL = 3.4, 2.4  # inches of a large panel
_SIZE = 1.6  # inches: height of a panel over calibration samples
_EPOCHS = (1.2, 0.7)  # inches: heights of the two panels over epochs
_GROUP, _TALLEST = 0.38, 0.86  # inches: a group of samples; the share of it that its histogram takes
_LONGEST_NAME = 20
_ASIDE = 5  # points between the marks of two maps at the same coefficient
_ABOVE = 1.25  # an uncalibrated error so many times above all others is written, not drawn


def plot_coefficients(diagnosis: Diagnosis, *, figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw a panel for every number along which candidates differ in nothing else.

    Everything is measured on test samples: the lowest point of a curve is optimistic, as it was chosen on the samples
    that evaluate it (Wang et al. 2021, Figure 1).

    Raises:
        InputError: If no two candidates differ in one number alone.
    """
    curves = diagnosis.coefficients
    if not curves:
        raise InputError(
            "two candidates or more must differ in one number alone to draw a curve; none do. Train the same loss with "
            "other coefficients."
        )
    colours = layout.theme_named(theme)
    looks = panels.map_looks(diagnosis.maps, colours)
    names = [curve.loss for curve in curves]
    grid = panels.panel_grid(names, colours, figure=figure, heights=(_TALL,), width=_WIDE, keys=len(looks))
    handles = [look.handle(lined=True) for look in looks]
    detail = f"{panels.seeds_words(diagnosis.has_seeds)}{DOT}{panels.samples_words(diagnosis)}"
    layout.draw_head(grid.head, colours, "Sensitivity to the coefficient", detail, handles)
    for place, curve in enumerate(curves):
        ax = grid.add(place, detail=_ends(curve, curves))
        _draw_coefficient(ax, curve, looks)
        words = curve.option.partition(".")[2].replace("_", " ")
        layout.name_axes(ax, colours, words, "ECE, %" if grid.is_left(place) else "")
    return grid.figure


def _ends(curve: CoefficientCurve, curves: Sequence[CoefficientCurve]) -> str:
    """Name the candidates at its ends, where loss and option do not distinguish it from another curve."""
    if sum((other.loss, other.option) == (curve.loss, curve.option) for other in curves) == 1:
        return ""
    return " to ".join(panels.shortened([curve.points[place].candidate for place in (0, -1)], _LONGEST_NAME).values())


def _draw_coefficient(ax: Axes, curve: CoefficientCurve, looks: list[MapLook]) -> None:
    x, highest = [point.value for point in curve.points], [0.0]
    for lane, look in enumerate(looks):
        band = panels.band_of([
            point.optimal_ece if look.name == ORACLE else point.ece[look.name] for point in curve.points
        ])  # fmt: skip
        # Bands of so many maps would cover each other, so ranges are lines up and down, side by side.
        inches = _ASIDE / 72 * (lane - (len(looks) - 1) / 2)
        aside = ax.transData + ScaledTranslation(inches, 0, ax.figure.dpi_scale_trans)
        ax.vlines(x, band.lowest, band.highest, color=look.line["color"], linewidth=1.2, zorder=2, transform=aside)
        ax.plot(x, band.mean, zorder=3, transform=aside, **look.line, **look.mark)
        highest += band.highest
    ax.set_ylim(0, panels.room_above(highest))
    layout.percent_axis(ax.yaxis, 5)
    panels.values_across(ax, x, logarithmic=panels.are_wide(x))
    room = 0.05 * (x[-1] - x[0])
    ax.set_xlim(*((x[0] / 1.1, x[-1] * 1.1) if panels.are_wide(x) else (x[0] - room, x[-1] + room)))


def plot_validation_sizes(diagnosis: Diagnosis, *, figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw the ECE after each map over the number of samples it was fitted on, with the range over runs and draws.

    The range narrows towards all samples also because draws then share most of them. Where the uncalibrated network
    lies far above all panels, an arrow with its number replaces its line. Fits that failed are counted above a
    panel, and are in no mean (Wang et al. 2021, Figure 3).

    Raises:
        InputError: If the diagnosis was made without draws.
    """
    curves = diagnosis.validation_sizes
    if not curves:
        raise InputError("a diagnosis must have draws of calibration samples; it has none. Diagnose with draws=3.")
    colours = layout.theme_named(theme)
    looks = panels.map_looks(diagnosis.maps, colours, oracle=False)
    names = [curve.candidate for curve in curves]
    grid = panels.panel_grid(names, colours, figure=figure, heights=(_SIZE,), keys=len(looks))
    seeds = "seeds and " if diagnosis.has_seeds else ""
    draws = f"{counted(curves[0].draws, 'draw')} of samples"
    detail = f"mean and range over {seeds}{draws}{DOT}{panels.samples_words(diagnosis)}"
    handles = [look.handle(lined=True) for look in looks]
    layout.draw_head(grid.head, colours, "How many calibration samples a map needs", detail, handles)
    after = panels.room_above(
        spread.highest for curve in curves for point in curve.points for spread in point.ece.values()
    )
    uncalibrated = [curve.raw_ece.highest for curve in curves]
    top = max([after, *(panels.room_above([ece]) for ece in uncalibrated if ece <= _ABOVE * after)])
    for place, curve in enumerate(curves):
        ax = grid.add(place, detail=_failures(curve))
        _draw_sizes(ax, curve, looks, top, colours)
        ax.tick_params(labelleft=grid.is_left(place))
    grid.name_axes("Calibration samples", "ECE, %")
    return grid.figure


def _draw_sizes(ax: Axes, curve: ValidationSize, looks: list[MapLook], top: float, theme: Theme) -> None:
    x = [float(point.rows) for point in curve.points]
    for look in looks:
        if look.name != UNCALIBRATED:
            band = panels.band_of([point.ece[look.name] for point in curve.points])
            panels.draw_range(ax, x, band, look.line, look.mark)
        elif curve.raw_ece.mean <= top:
            ax.axhline(curve.raw_ece.mean, zorder=2, **look.line)
        else:
            words = f"▴ {look.words} {percent(curve.raw_ece.mean)}"
            layout.note(ax, theme, words, (1, 1), (0, -2), ha="right", va="top", color=look.line["color"])
    ax.set_ylim(0, top)
    layout.percent_axis(ax.yaxis, 4)
    panels.values_across(ax, x, logarithmic=True)


def _failures(curve: ValidationSize) -> str:
    """Count the failed fits of all maps: the mean that is drawn is that of the others, and so is optimistic."""
    points = [point for point in curve.points if any(point.failed.values())]
    if not points:
        return ""
    failed = sum(sum(point.failed.values()) for point in points)
    tried = sum(len(spread.values) for point in points for spread in point.ece.values())
    most = f"up to {points[-1].rows:,}" if len(points) > 1 else f"{points[-1].rows:,}"
    return f"{failed} of {tried} fits failed at {most} samples"


def plot_over_epochs(diagnosis: Diagnosis, *, figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw two panels for each candidate, epoch by epoch: the two errors, and the temperature below.

    Optimal ECE and temperature are an oracle's, searched on the very samples that are shown. An error that rises while
    the optimal one does not is only a temperature; a rise of the optimal one is what no temperature brings back (Wang
    et al. 2021, Figure 4).

    Raises:
        InputError: If no candidate was evaluated during training.
    """
    curves = diagnosis.epochs
    if not curves:
        raise InputError("runs of a candidate must have been evaluated on test samples in the same epochs; none were.")
    colours = layout.theme_named(theme)
    grid = panels.panel_grid([curve.candidate for curve in curves], colours, figure=figure, heights=_EPOCHS)
    raw: Look = {"color": colours.over, "linewidth": 1.7, "linestyle": DASHED, "markerfacecolor": colours.background}
    looks: dict[str, Look] = {
        "ece": raw,
        "optimal_ece": {"color": colours.under, "linewidth": 2.2},
        "temperature": {"color": colours.ink, "linewidth": 1.6},
    }
    words = ("ECE", "optimal ECE (oracle)", "T of lowest log-loss")
    handles = [Line2D([], [], label=label, **look) for label, look in zip(words, looks.values(), strict=True)]
    seeds = panels.seeds_words(diagnosis.has_seeds)
    detail = f"{diagnosis.n:,} {curves[0].part} samples{DOT}{seeds}"
    layout.draw_head(grid.head, colours, "Calibration over the epochs of training", detail, handles)
    errors: Axes | None = None
    temperatures: Axes | None = None
    for place, curve in enumerate(curves):
        rise = f", then +{100 * curve.rise:.1f}" if curve.rise > 0 else ""
        upper = grid.add(place, detail=f"optimal lowest at epoch {curve.lowest_epoch}{rise}", sharey=errors)
        lower = grid.add(place, 1, sharex=upper, sharey=temperatures)
        errors, temperatures = errors or upper, temperatures or lower
        _draw_epochs(upper, lower, curve, looks, colours)
        for ax, name in ((upper, "ECE, %"), (lower, "T")):
            ax.tick_params(labelleft=grid.is_left(place))
            layout.name_axes(ax, colours, y=name if grid.is_left(place) else "")
    assert errors is not None and temperatures is not None, "there is a candidate"  # noqa: PT018
    errors.set_ylim(0, panels.room_above(end for curve in curves for end in curve.numbers["ece"].highest))
    ends = panels.known(
        end for curve in curves for band in [curve.numbers["temperature"]] for end in band.lowest + band.highest
    )
    temperatures.set(yscale="log", ylim=(min([*ends, 0.75]) / 1.15, max([*ends, 1.5]) * 1.15))
    temperatures.yaxis.set_major_locator(LogLocator(base=2, numticks=4))
    temperatures.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    temperatures.yaxis.set_minor_locator(NullLocator())
    grid.name_axes("Epoch")
    grid.figure.align_ylabels()
    return grid.figure


def _draw_epochs(upper: Axes, lower: Axes, curve: EpochCurves, looks: dict[str, Look], theme: Theme) -> None:
    x = [float(epoch) for epoch in curve.epochs]
    lower.axhline(1, color=theme.muted, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    for name, ax in (("ece", upper), ("optimal_ece", upper), ("temperature", lower)):
        panels.draw_range(ax, x, curve.numbers[name], looks[name])
    upper.tick_params(labelbottom=False)
    layout.percent_axis(upper.yaxis, 4)
    lower.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def plot_learned_loss(diagnosis: Diagnosis, *, figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw the mean of a learned option of the loss, with its range between runs, and its spread as thin lines.

    For γ-Net the spread is one standard deviation over the calibration samples to both sides, cut at 0, below which
    no γ is; for a learned weight decay or smoothing, the smallest and the largest.

    Raises:
        InputError: If no candidate's loss was learned.
    """
    curves = [curve for curve in diagnosis.epochs if _learned_option(curve) is not None]
    if not curves:
        raise InputError("a candidate's loss must be a learned one, such as meta_focal; none is.")
    colours = layout.theme_named(theme)
    names = [curve.candidate for curve in curves]
    grid = panels.panel_grid(names, colours, figure=figure, heights=(_TALL,), width=_WIDE)
    mean: Look = {"color": colours.under, "linewidth": 2.2}
    spread: Look = {"color": colours.muted, "linewidth": 1.2, "linestyle": DASHED}
    handles: list[Artist] = [
        Line2D([], [], label="mean", **mean),
        Line2D([], [], label="spread: γ ± standard deviation, else smallest and largest", **spread),
    ]
    if diagnosis.has_seeds:
        band = Patch(label="range of the mean over seeds", facecolor=colours.under, alpha=BAND, linewidth=0)
        handles.insert(1, band)
    detail = "on the held-out calibration samples, after the epochs in which they were evaluated"
    layout.draw_head(grid.head, colours, "Learned options of the loss", detail, handles)
    for place, curve in enumerate(curves):
        option = str(_learned_option(curve))
        words = {"gamma": "γ", "l2": "pull on the weights", "smoothing": "ε"}.get(option, option)
        clipped = curve.learned.get("gamma_clipped")
        most = max(clipped.highest) if clipped is not None else 0.0
        limit = f"{DOT}up to {percent(most)} of samples at the limit" if most else ""
        last = curve.learned[f"{option}_mean"].mean[-1]
        ax = grid.add(place, detail=f"{words} = {last:.3g} in the end{limit}")
        _draw_learned_option(ax, curve, option, mean, spread)
        layout.name_axes(ax, colours, y=words)
    grid.name_axes("Epoch")
    return grid.figure


def _learned_option(curve: EpochCurves) -> str | None:
    return next((name.removesuffix("_mean") for name in curve.learned if name.endswith("_mean")), None)


def _draw_learned_option(ax: Axes, curve: EpochCurves, option: str, line: Look, spread: Look) -> None:
    mean, x = curve.learned[f"{option}_mean"], [float(epoch) for epoch in curve.epochs]
    if f"{option}_std" in curve.learned:
        pairs = list(zip(mean.mean, curve.learned[f"{option}_std"].mean, strict=True))
        ends: list[Sequence[float]] = [[max(m - s, 0.0) for m, s in pairs], [m + s for m, s in pairs]]
    else:
        bounds = (curve.learned.get(f"{option}_{end}") for end in ("least", "most"))
        ends = [mean.mean if bound is None else bound.mean for bound in bounds]
    for end in ends:
        ax.plot(x, end, zorder=2, marker="_" if len(x) == 1 else None, **spread)
    panels.draw_range(ax, x, mean, line)
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(5))


def plot_learned_epochs(diagnosis: Diagnosis, *, figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw histograms of the final top logit, one line a group of samples that were learned in the same epochs.

    Every histogram is as tall as its line, whatever the number of its samples, whose share is written beside it. Where
    lines slope to the left from top to bottom, the network still gives samples that it learned late a lower logit;
    where they lie under each other, it no longer distinguishes hard samples from easy ones (Wang et al. 2021, Fig. 5).

    Raises:
        InputError: If no run was traced.
    """
    curves = diagnosis.learned_epochs
    if not curves:
        raise InputError("a run must have been traced to show when samples were learned; none was. Train with --trace.")
    colours = layout.theme_named(theme)
    heights = (_GROUP * len(curves[0].groups),)
    grid = panels.panel_grid([curve.candidate for curve in curves], colours, figure=figure, heights=heights)
    handles = [
        Patch(label="learned", linewidth=0.8, **colours.good),
        Patch(label="never learned", linewidth=0.8, **colours.bad),
        Line2D([], [], label="mean", color=colours.ink, linestyle="none", marker="|", markersize=9, markeredgewidth=2),
    ]
    detail = "training samples by the epoch from which they are classified correctly; their share on the right"
    detail += f"{DOT}all seeds" if diagnosis.has_seeds else ""
    layout.draw_head(grid.head, colours, "Top logits by when samples were learned", detail, handles)
    for place, curve in enumerate(curves):
        correlation = curve.rank_correlation.mean
        words = f"rank correlation {correlation:+.2f}".replace("-", "−")
        ax = grid.add(place, detail="all learned in one epoch" if math.isnan(correlation) else words, lines=False)
        _draw_groups(ax, curve, colours)
        ax.tick_params(labelleft=grid.is_left(place), labelbottom=grid.is_lowest(place))
    grid.name_axes("Top logit in the end", "Learned in epoch")
    return grid.figure


def _draw_groups(ax: Axes, curve: LearnedEpochs, theme: Theme) -> None:
    lines = len(curve.groups)
    for place, group in enumerate(curve.groups):
        base, look = lines - 1 - place, theme.bad if group.first is None else theme.good
        ax.axhline(base, color=theme.faint, linewidth=0.8, zorder=0)
        share = percent(group.share)
        layout.note(ax, theme, share, (1, base), (0, 3), xycoords=("axes fraction", "data"), ha="right")
        if group.rows:
            tallest = max(group.counts)
            heights = [base + _TALLEST * count / tallest for count in group.counts]
            ax.stairs(heights, curve.edges, baseline=base, fill=True, linewidth=0.8, zorder=2, **look)
            ax.vlines(group.mean, base, base + _TALLEST, color=theme.ink, linewidth=1.8, zorder=3)
    ends = [[group.first, group.last] for group in reversed(curve.groups)]
    spans = ["never" if None in pair else "–".join(dict.fromkeys(map(str, pair))) for pair in ends]
    ax.set_yticks(range(lines), spans)
    for label in ax.get_yticklabels():
        label.set(va="bottom", color=theme.ink)
    room = 0.24 * (curve.edges[-1] - curve.edges[0])  # for the shares
    ax.set(xlim=(curve.edges[0], curve.edges[-1] + room), ylim=(-0.05, lines))
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.xaxis.set_major_locator(MaxNLocator(5))

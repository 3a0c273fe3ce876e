"""Reliability diagrams: one set with its bars, two sets as curves, and small panels class by class."""

import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar, Unpack

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from calibrant import diagrams
from calibrant.diagrams import ClassReliability, ClasswiseDiagram, ReliabilityBins, ReliabilityDiagram
from calibrant.evidence import Corp
from calibrant.plots import layout
from calibrant.plots.layout import DOT, SIZES, Look, Theme, ThemeName
from calibrant.predictions import Arrays, Predictions, TopLabel, as_predictions, as_risk, has_risk
from calibrant.slices import Slice, samples_of
from calibrant.text import counted, percent, without_middle

_FEW_SAMPLES = 10  # bins of fewer are drawn faint
_FAINT, _BAND = 0.35, 0.2  # opacity
_MANY_BINS = 25
_LONGEST_NAME = 52
# The strip below zero that shows how many samples a bin holds. It lies on the same axes, where it needs no layout of
# its own; ``ax.set_ylim(0, 1)`` hides it.
_STRIP_FLOOR, _STRIP_HEIGHT = -0.21, 0.13
_STRIP_SHARE = -_STRIP_FLOOR / (1 - _STRIP_FLOOR)  # share of the height of the axes

Diagram = TypeVar("Diagram")


def diagram_of(
    given: tuple[object, ...], arrays: Arrays, kind: type[Diagram], make: Callable[[Any], Diagram], caller: str
) -> Diagram:
    """Return the diagram that the function ``caller`` received, or make that of its predictions or arrays."""
    if len(given) == 1 and isinstance(given[0], kind) and not arrays:
        return given[0]
    return make(as_predictions(given, caller, arrays))


def plot_reliability(
    *predictions: Predictions | TopLabel | ReliabilityDiagram,
    other: Predictions | TopLabel | ReliabilityDiagram | None = None,
    set_names: tuple[str, str] = ("uncalibrated", "calibrated"),
    name: str = "",
    n_bins: int = 15,
    of_class: str = "",
    ax: Axes | None = None,
    theme: ThemeName = "light",
    **arrays: Unpack[Arrays],
) -> Axes:
    """Draw accuracy against confidence: bars with their gaps, and the CORP curve.

    The curve is isotonic regression (:func:`calibrant.evidence.corp`): no bins, no bandwidth. It is thick where a block
    of it holds ten samples or more. Its band along the diagonal is where 95 of 100 calibrated models with these
    confidences would have theirs, point by point.

    Overconfident gaps are hatched and stand on the bar; underconfident ones are dark, dotted and part of it. Gaps are
    pale where chance explains them or the bin holds fewer than ten samples. The strip below shows the share of samples
    in every bin. With ``other``, both sets are drawn as curves, each with its band, and a mark for every bin.

    Args:
        predictions: Predictions, or their diagram from :func:`calibrant.diagrams.reliability`.
        other: A second set to compare with.
        set_names: Names of the two sets.
        name: Name of the data, such as their file, for the title.
        n_bins: Number of equal-width bins, for predictions; a diagram has its own.
        of_class: Name of the class that the confidences are probabilities of, and correctness the membership in.
        ax: Axes to draw on; those of a new figure by default.
        theme: "light" or "dark"; the figure behind the axes takes its background too.
        arrays: The predictions as arrays by keyword: ``plot_reliability(probs=p, labels=y)``.

    Returns:
        The axes.

    Raises:
        InputError: If there are neither predictions, their diagram nor such arrays.

    Example:
        >>> ax = plot_reliability(TopLabel([0.9] * 80, [True] * 50 + [False] * 30), name="answers.csv")
        >>> ax.get_title(loc="left")[:21]
        'Reliability: ECE 27.5'
    """
    draw = partial(diagrams.reliability, n_bins=n_bins)
    first = diagram_of(predictions, arrays, ReliabilityDiagram, draw, "plot_reliability")
    second = other if other is None or isinstance(other, ReliabilityDiagram) else draw(other)
    ax, colours = layout.open_axes(ax, theme, width=5.2, height=6.3, lines=False)
    ax.plot([0, 1], [0, 1], zorder=2.5, **colours.dashes)
    words = _words_of(of_class)
    source = DOT.join(filter(None, [of_class, without_middle(name, _LONGEST_NAME - len(of_class))]))
    if second is None:
        _draw_corp(ax, first.corp, {"color": colours.ink, "linewidth": 2}, band=colours.muted)
        handles = [
            Line2D([], [], color=colours.ink, linewidth=2, label=words.curve),
            Patch(facecolor=colours.muted, alpha=_BAND, linewidth=0, label="its 95 % range if calibrated"),
            *_draw_bars(ax, first.bins, words, colours),
        ]
        _draw_strip(ax, [first], colours, note="share of samples")
        reach = np.maximum(first.bins.accuracy.numpy(), first.bins.confidence.numpy())
        reaches_up = (reach[first.bins.low.numpy() < 0.5] > 0.62).any()  # bars of low confidence: the corner is taken
        layout.key(ax, colours, handles, place="lower right" if reaches_up else "upper left", floor=_STRIP_SHARE)
        ece = layout.percent_with_interval(first.ece, first.ece_low, first.ece_high)
        numbers = f"{words.observed} {percent(first.accuracy)}{DOT}{words.claimed} {percent(first.confidence)}"
        size = layout.size_text(first.n, first.effective_n)
        size += "" if math.isnan(first.ece_low) else f"{DOT}in brackets: 95 % interval"
        layout.title(ax, colours, f"Reliability: ECE {ece}", source, numbers, size)
    else:
        handles = _draw_two(ax, (first, second), set_names, colours)
        _draw_strip(ax, [first, second], colours, note="share of samples (first filled, second outlined)")
        layout.key(ax, colours, handles, floor=_STRIP_SHARE)
        texts = (layout.size_text(diagram.n, diagram.effective_n) for diagram in (first, second))
        sizes = " and ".join(dict.fromkeys(texts)).replace(" and n = ", " and ")
        notes = "brackets: 95 % intervals"
        if any((diagram.bins.count < _FEW_SAMPLES).any() for diagram in (first, second)):
            notes += f"{DOT}faint: under {_FEW_SAMPLES} samples"
        heading = DOT.join(filter(None, [source, sizes]))
        layout.title(ax, colours, "Reliability compared", heading, "bands: 95 % range if calibrated", notes)
    ax.set(xlim=(0, 1), ylim=(_STRIP_FLOOR, 1), aspect="equal")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(np.linspace(0, 1, 6))
        layout.percent_axis(axis)
    ax.spines["left"].set_bounds(0, 1)
    layout.name_axes(ax, colours, words.x, words.y)
    ax.yaxis.set_label_coords(-0.11, (1 + _STRIP_SHARE) / 2)  # centred on the panel, not on panel and strip
    return ax


def _draw_bars(ax: Axes, bins: ReliabilityBins, words: "_Words", theme: Theme) -> list[Artist]:
    """Draw accuracy as bars, and their distance from the confidence hatched; return the legend's entries."""
    low, width = bins.low.numpy(), (bins.high - bins.low).numpy()
    accuracy, confidence = bins.accuracy.numpy(), bins.confidence.numpy()
    lower, upper = np.minimum(accuracy, confidence), np.maximum(accuracy, confidence)
    ax.bar(low, lower, width, align="edge", facecolor=theme.bar, edgecolor=theme.background, linewidth=0.8, zorder=1)
    few = bins.count.numpy() < _FEW_SAMPLES
    pale = few | ~bins.outside.numpy()
    handles: list[Artist] = []
    over: Look = {**theme.bad, "linewidth": 0}
    under: Look = {**theme.good, "hatch": "....", "linewidth": 0}
    kinds = ((words.over, accuracy < confidence, over), (words.under, accuracy > confidence, under))
    for label, chosen, look in kinds:
        for here, opacity in _by_opacity(chosen, pale):
            ax.bar(low[here], (upper - lower)[here], width[here], lower[here], align="edge", alpha=opacity,
                   zorder=1.5, **look)  # fmt: skip
        if chosen.any():
            handles.append(Patch(label=label, **look))
    if (pale & (accuracy != confidence)).any():
        look = under if (pale & (accuracy > confidence)).any() else over
        handles.append(Patch(label=f"pale: within chance,\nor under {_FEW_SAMPLES} samples", alpha=_FAINT, **look))
    ax.hlines(accuracy, low, low + width, color=theme.ink, linewidth=1.1, alpha=np.where(few, _FAINT, 1.0), zorder=3)
    size = 4.5 if len(bins.count) <= _MANY_BINS else 3
    _draw_marks(ax, bins, theme, {"marker": "o", "markersize": size, "markeredgewidth": 1.1, "color": theme.ink})
    return handles


def _by_opacity(chosen: np.ndarray, faint: np.ndarray) -> Iterator[tuple[np.ndarray, float]]:
    """Yield those of the chosen that are drawn in full, and those that are drawn faint, with their opacity."""
    for here, opacity in ((chosen & ~faint, 1.0), (chosen & faint, _FAINT)):
        if here.any():
            yield here, opacity


def _draw_marks(ax: Axes, bins: ReliabilityBins, theme: Theme, look: Look) -> None:
    """Draw a mark at the mean confidence and accuracy of every bin, faint where it holds few samples."""
    few = (bins.count < _FEW_SAMPLES).numpy()
    for here, opacity in _by_opacity(np.ones_like(few), few):
        ax.plot(bins.confidence.numpy()[here], bins.accuracy.numpy()[here], linestyle="none", clip_on=False,
                zorder=5, markerfacecolor=theme.background, alpha=opacity, **look)  # fmt: skip


def _draw_corp(ax: Axes, curve: Corp, line: Look, *, band: str) -> None:
    x = curve.confidence.numpy()
    ax.fill_between(x, curve.band_low.numpy(), curve.band_high.numpy(), color=band, alpha=_BAND, linewidth=0, zorder=2)
    ax.plot(*(part.numpy() for part in curve.points), zorder=4, **{**line, "linewidth": 1})
    # Thick, where a block holds enough samples: lines that are joined at their ends, with gaps between.
    shown = (curve.count >= _FEW_SAMPLES).numpy()
    ends = np.stack([part.numpy() for part in curve.points], axis=1).reshape(-1, 2, 2)[shown]
    broken = np.concatenate([ends, np.full((len(ends), 1, 2), np.nan)], axis=1).reshape(-1, 2)
    ax.plot(*broken.T, zorder=4, solid_capstyle="round", **{**line, "linestyle": "-"})


def _draw_two(
    ax: Axes, diagrams: tuple[ReliabilityDiagram, ReliabilityDiagram], labels: tuple[str, str], theme: Theme
) -> list[Artist]:
    """Draw both curves, each with its band and a mark for every bin: dashed with squares, solid with circles."""
    handles: list[Artist] = []
    for diagram, label, line, marker in zip(diagrams, labels, theme.pair, "so", strict=True):
        colour = line["color"]
        _draw_corp(ax, diagram.corp, line, band=colour)
        dots: Look = {"marker": marker, "markersize": 5, "markeredgewidth": 1.3}
        _draw_marks(ax, diagram.bins, theme, {"color": colour, **dots})
        ece = layout.percent_with_interval(diagram.ece, diagram.ece_low, diagram.ece_high)
        words = f"{textwrap.fill(label, 30)}\nECE {ece}"
        handles.append(Line2D([], [], label=words, markerfacecolor=theme.background, **line, **dots))
    return handles


def _draw_strip(ax: Axes, diagrams: list[ReliabilityDiagram], theme: Theme, *, note: str) -> None:
    """Draw the share of samples in every bin: filled for the first set, an outline for the second."""
    ax.axhline(0, color=theme.muted, linewidth=0.8, zorder=3)
    shares = [diagram.bins.count / diagram.bins.count.sum() for diagram in diagrams]
    largest = max(float(share.max()) for share in shares)
    for diagram, share, first in zip(diagrams, shares, (True, False), strict=False):
        bins = diagram.bins
        ax.bar(
            bins.low.numpy(), (_STRIP_HEIGHT / largest * share).numpy(), (bins.high - bins.low).numpy(), _STRIP_FLOOR,
            align="edge", facecolor=theme.band if first else "none",
            edgecolor=theme.background if first else theme.ink, linewidth=0.8 if first else 1.0, zorder=1,
        )  # fmt: skip
    # The share of the largest bin above it, and what the strip is at the other side.
    bins = diagrams[0].bins
    place = int(bins.count.argmax())
    on_the_right = float(bins.confidence[place]) > 0.5
    near, far = ("right", "left") if on_the_right else ("left", "right")
    edge = float((bins.high if on_the_right else bins.low)[place])
    words = percent(float(shares[0][place]), 0) if len(diagrams) == 1 else ""
    y = _STRIP_FLOOR + _STRIP_HEIGHT + 0.008
    for text, x, side, colour in ((words, edge, near, theme.ink), (note, 1.0 - on_the_right, far, theme.muted)):
        ax.text(x, y, text, ha=side, va="bottom", fontsize=SIZES["note"], color=colour)


def plot_classwise(
    *predictions: Predictions | ClasswiseDiagram,
    name: str = "",
    figure: Figure | None = None,
    theme: ThemeName = "light",
    **arrays: Unpack[Arrays],
) -> Figure:
    """Draw a small reliability diagram for each class, the worst first.

    Triangles mark bins that have left the diagonal further than chance allows, and point to the side where they are;
    hollow circles are within chance. Bins of fewer than ten samples are faint, without their range. Arrays are given by
    keyword: ``plot_classwise(probs=p, labels=y)``.
    """
    diagram = diagram_of(predictions, arrays, ClasswiseDiagram, diagrams.classwise_reliability, "plot_classwise")
    shown = len(diagram.classes)
    which = f"the {shown} worst of {diagram.n_classes} classes" if shown < diagram.n_classes else f"{shown} classes"
    numbers = [which, f"classwise ECE {percent(diagram.sce, 2)}", layout.size_text(diagram.n, diagram.effective_n)]
    detail = DOT.join(filter(None, [without_middle(name, 22), *numbers]))
    return _small_multiples(diagram.classes, "Reliability by class", detail, _OF_CLASS, figure, theme)


class _Words(NamedTuple):
    """Words of reliability diagrams: axes, gaps on either side of the diagonal, and those of the larger diagram."""

    x: str
    y: str
    over: str
    under: str
    curve: str = "accuracy, isotonic (CORP)"
    observed: str = "accuracy"
    claimed: str = "mean confidence"


_OF_CLASS = _Words("Probability of the class, %", "Samples of the class, %", "probability too high", "too low")
_OF_CONFIDENCE = _Words("Confidence, %", "Accuracy, %", "overconfident", "underconfident")


def _words_of(name: str) -> _Words:
    """Return the words for the probability of a class, or for confidence without one."""
    if not name:
        return _OF_CONFIDENCE
    x, y = f"Probability of {name}, %", f"Samples that are {name}, %"
    curve = "how often it occurs, isotonic (CORP)"
    return _Words(x, y, *_OF_CLASS[2:4], curve, "observed", "predicted")


def plot_slices(
    panels: Sequence[ClassReliability],
    *,
    column: str,
    of: int | None = None,
    name: str = "",
    of_class: bool = False,
    figure: Figure | None = None,
    theme: ThemeName = "light",
) -> Figure:
    """Draw a small reliability diagram for each slice, from :func:`~calibrant.diagrams.slice_reliability`.

    Marks are those of :func:`plot_classwise`. ``column`` names what the samples are sliced by, ``of`` the number of all
    slices; with ``of_class`` the words are for the probability of a class, not for confidence.
    """
    shown = len(panels)
    which = f"the {shown} worst of {of} slices" if of is not None and shown < of else f"{shown} slices"
    detail = DOT.join(filter(None, [without_middle(name, 22), which]))
    words = _OF_CLASS if of_class else _OF_CONFIDENCE
    return _small_multiples(panels, f"Reliability by {without_middle(column, 24)}", detail, words, figure, theme)


_MOST_SLICES = 12  # in a figure


def slice_figures(
    predictions: Predictions | TopLabel,
    slices: Sequence[Slice],
    by: Mapping[str, Any],
    *,
    n_bins: int = 15,
    theme: ThemeName = "light",
    name: str = "",
) -> dict[str, Figure]:
    """Draw the worst slices of every column, from :func:`~calibrant.slices.evaluate_slices` and its columns."""
    drawn: dict[str, Figure] = {}
    of_class = has_risk(predictions)
    predictions = as_risk(predictions) if of_class else predictions
    for column, values in by.items():
        own = [one for one in slices if one.column == column]
        members = zip(own, samples_of(own, {column: values}), strict=True)
        # Of a stream, none of the samples of a slice may have been kept.
        shown = [(one, inside) for one, inside in members if bool(inside.any())][:_MOST_SLICES]
        chosen = [inside.to(predictions.device) for _, inside in shown]
        panels = diagrams.slice_reliability(predictions, [one.value for one, _ in shown], chosen, n_bins=n_bins)
        key = "by_" + re.sub(r"\W+", "_", column)
        drawn[key] = plot_slices(panels, column=column, of=len(own), name=name, of_class=of_class, theme=theme)
    return drawn


def _small_multiples(
    panels: Sequence[ClassReliability], title: str, detail: str, words: _Words, figure: Figure | None, theme: ThemeName
) -> Figure:
    """Draw a panel for each class or slice, with one head and one pair of axis labels for all."""
    colours, shown = layout.theme_named(theme), len(panels)
    columns = shown if shown <= 4 else min((4, 5, 3), key=lambda number: -shown % number)  # few empty places
    rows = math.ceil(shown / columns)
    handles = _class_handles([of.bins for of in panels], words, colours)
    narrowest, head = {4: 7.2, 5: 8.8}.get(len(handles), 6.6), 0.7  # inches: the legend across, title and legend down
    side = min(3.2, max(2.2, narrowest / columns))
    width, height = max(narrowest, side * columns) + 0.6, (side + 0.2) * rows + 1.3
    figure = layout.open_figure(figure, colours, width=width, height=height)
    grid = figure.add_gridspec(rows + 1, columns, height_ratios=[head / side] + [1.0] * rows)
    layout.draw_head(figure.add_subplot(grid[0, :]), colours, title, detail, handles)
    for place, of in enumerate(panels):
        ax = figure.add_subplot(grid[place // columns + 1, place % columns])
        _draw_class(ax, of, colours)
        for axis, labelled in ((ax.xaxis, place + columns >= shown), (ax.yaxis, place % columns == 0)):
            axis.set_ticks(np.linspace(0, 1, 3))
            layout.percent_axis(axis)
            axis.set_tick_params(labelleft=labelled, labelbottom=labelled)
    figure.supxlabel(words.x, color=colours.muted, fontsize=SIZES["label"])
    figure.supylabel(words.y, color=colours.muted, fontsize=SIZES["label"])
    return figure


def _draw_class(ax: Axes, of: ClassReliability, theme: Theme) -> None:
    layout.bare_axes(ax, theme)
    ax.plot([0, 1], [0, 1], zorder=2.5, **theme.dashes)
    bins = of.bins
    x, accuracy, outside = bins.confidence.numpy(), bins.accuracy.numpy(), bins.outside.numpy()
    few = (bins.count < _FEW_SAMPLES).numpy()
    band_low, band_high = bins.band_low.numpy()[~few], bins.band_high.numpy()[~few]
    ax.vlines(x[~few], band_low, band_high, color=theme.band, alpha=0.5, linewidth=4, zorder=2)
    kinds = {"within": ~outside, "over": outside & (accuracy < x), "under": outside & (accuracy > x)}
    for kind, chosen in kinds.items():
        look = _class_look(kind, theme)
        for here, opacity in _by_opacity(chosen, few):
            if kind != "within":
                stem: Look = {"color": look["color"], "alpha": opacity, "linewidth": 1.4, "zorder": 3}
                ax.vlines(x[here], accuracy[here], x[here], **stem)
            ax.plot(x[here], accuracy[here], linestyle="none", clip_on=False, zorder=4, alpha=opacity, **look)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    layout.bold_title(ax, theme, without_middle(of.name, 20), pad=18)
    numbers = f"error {percent(of.error, 2)}{DOT}{counted(of.samples, 'sample')}"
    layout.note(ax, theme, numbers, (0, 1), (0, 5), va="bottom")


def _class_handles(bins: list[ReliabilityBins], words: _Words, theme: Theme) -> list[Artist]:
    """Return the legend's entries for what occurs in these bins."""
    enough = [of.count >= _FEW_SAMPLES for of in bins]
    gaps = np.concatenate([of.gap[of.outside].numpy() for of in bins])
    kinds = {"over": words.over} if (gaps < 0).any() else {}
    kinds |= {"under": words.under} if (gaps > 0).any() else {}
    handles: list[Artist] = [
        Line2D([], [], linestyle="none", label=label, **_class_look(kind, theme))
        for kind, label in {**kinds, "within": "within chance"}.items()
    ]
    if any(of.any() for of in enough):
        handles.append(Line2D([], [], color=theme.band, alpha=0.5, linewidth=4, label="95 % range if calibrated"))
    if not all(of.all() for of in enough):
        faint: Look = {**_class_look("within", theme), "alpha": _FAINT, "linestyle": "none"}
        handles.append(Line2D([], [], label=f"faint: under {_FEW_SAMPLES} samples", **faint))
    return handles


def _class_look(kind: str, theme: Theme) -> Look:
    if kind == "within":
        return {"marker": "o", "markersize": 3.8, "color": theme.muted, "markerfacecolor": theme.background,
                "markeredgewidth": 1}  # fmt: skip
    over = kind == "over"
    return {"marker": "v" if over else "^", "markersize": 6.5, "color": theme.over if over else theme.under,
            "markeredgewidth": 0}  # fmt: skip

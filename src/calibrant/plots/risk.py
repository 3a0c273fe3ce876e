"""Figures of a risk, the probability of the positive class of two: how often it occurs, and what acting on it gains."""

from collections.abc import Sequence
from typing import TypeAlias, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from calibrant.evidence import NetBenefit, Risk, decision_curve, evaluate_risk
from calibrant.plots import layout
from calibrant.plots.layout import DASHED, DOT, Look, ThemeName
from calibrant.predictions import Arrays, Predictions, TopLabel, as_predictions
from calibrant.text import percent, without_middle

DecisionCurve: TypeAlias = Sequence[NetBenefit]
_LONGEST_NAME = 52
_BAND = 0.2  # opacity
_MARGIN = 1.15  # of an axis beyond what it shows
_LEAST = 0.35  # the part of the axis below 0, of that above


def plot_risk(
    *predictions: Predictions | TopLabel | Risk,
    other: Predictions | TopLabel | Risk | None = None,
    set_names: tuple[str, str] = ("uncalibrated", "calibrated"),
    positive: str | None = None,
    name: str = "",
    ax: Axes | None = None,
    theme: ThemeName = "light",
    **arrays: Unpack[Arrays],
) -> Axes:
    """Draw how often the positive class of two occurs at each probability of it: tenths of the samples, and a curve.

    Circles are tenths of the samples, with 95 % intervals; the curve is a logistic regression on a spline of the
    log-odds, with its 95 % band. On the dashed line, risks come true as often as they say. ``positive`` names the
    positive class.
    """
    first, of = _risk_of(predictions, arrays, positive)
    risks = [first] if other is None else [first, other if isinstance(other, Risk) else evaluate_risk(other)]
    ax, colours = layout.open_axes(ax, theme)
    single: Look = {"color": colours.ink, "linewidth": 2}
    looks = [single] if len(risks) == 1 else list(colours.pair)
    ends = [group.observed.high for risk in risks for group in risk.tenths]
    ends += [risk.highest.high if risk.curve is None else risk.curve.risk[-1] for risk in risks]
    top = min(1.0, _MARGIN * max(ends))
    ax.plot([0, 1], [0, 1], color=colours.muted, linewidth=1, linestyle=DASHED, zorder=1)
    handles: list[Line2D | Patch] = []
    for risk, look, label, marker in zip(risks, looks, ("", "") if other is None else set_names, "os", strict=False):
        colour = look["color"]
        if risk.curve is not None:
            x, curve = np.array(risk.curve.risk), risk.curve
            ax.fill_between(x, curve.low, curve.high, color=colour, alpha=_BAND, linewidth=0, zorder=2)
            ax.plot(x, curve.observed, zorder=3, **look)
        x, y, low, high = np.array(
            [(group.predicted, group.observed.value, group.observed.low, group.observed.high) for group in risk.tenths]
        ).T
        ax.errorbar(
            x, y, yerr=[y - low, high - y], fmt=marker, markersize=5, color=colour, elinewidth=1,
            markerfacecolor=colours.background, markeredgewidth=1.2, zorder=4,
        )  # fmt: skip
        words = f"{percent(risk.predicted.value)} predicted, {percent(risk.observed.value)} observed"
        drawn = "tenths, curve" if risk.curve else "tenths"
        handles.append(Line2D([], [], marker=marker, label=f"{label}: {words}" if label else drawn, **look))
    if any(risk.curve for risk in risks):
        handles.append(Patch(facecolor=looks[0]["color"], alpha=_BAND, linewidth=0, label="95 % band of the curve"))
    layout.key(ax, colours, handles, place="upper left")
    ax.set(xlim=(0, top), ylim=(0, top))
    layout.percent_axis(ax.xaxis)
    layout.percent_axis(ax.yaxis)
    layout.name_axes(ax, colours, f"Probability of {of}, %", f"Samples that are {of}, %")
    mean = layout.percent_with_interval(first.observed.value, first.observed.low, first.observed.high)
    detail = f"{percent(first.predicted.value)} predicted{DOT}{mean} observed" if other is None else ""
    layout.title(ax, colours, f"How often {of} occurs", without_middle(name, _LONGEST_NAME), detail)
    return ax


def plot_decisions(
    *predictions: Predictions | TopLabel | DecisionCurve,
    other: Predictions | TopLabel | DecisionCurve | None = None,
    set_names: tuple[str, str] = ("uncalibrated", "calibrated"),
    positive: str | None = None,
    name: str = "",
    ax: Axes | None = None,
    theme: ThemeName = "light",
    **arrays: Unpack[Arrays],
) -> Axes:
    """Draw the net benefit of acting on samples above each threshold of the risk, beside acting on all and on none.

    A model is of use at the thresholds where its curve is above both others. At a threshold of t, a missed positive
    costs (1 − t)/t times a needless act. ``positive`` names the positive class; ``other`` is of the same samples.
    """
    if predictions and isinstance(predictions[0], Sequence):
        first, of = predictions[0], positive or "class 1"
    else:
        given = as_predictions(predictions, "plot_decisions", arrays)
        first, of = decision_curve(given), positive or name_of(given)
    curves = [first]
    if other is not None:
        curves.append(other if isinstance(other, Sequence) else decision_curve(other))
    ax, colours = layout.open_axes(ax, theme)
    looks: list[Look] = [{"color": colours.ink, "linewidth": 2}] if len(curves) == 1 else list(colours.pair)
    handles: list[Line2D | Patch] = []
    for curve, look, label in zip(curves, looks, ("by this probability",) if other is None else set_names, strict=True):
        x, y, low, high = np.array(
            [(one.threshold, one.net_benefit.value, one.net_benefit.low, one.net_benefit.high) for one in curve]
        ).T
        ax.fill_between(x, low, high, color=look["color"], alpha=_BAND, linewidth=0, zorder=2)
        ax.plot(x, y, zorder=4, **look)
        handles.append(Line2D([], [], label=label, **look))
    x, y = np.array([(one.threshold, one.treat_all.value) for one in first]).T
    everyone: Look = {"color": colours.muted, "linewidth": 1.4, "linestyle": (0, (1, 1.4))}
    ax.plot(x, y, zorder=3, **everyone)
    ax.axhline(0, color=colours.muted, linewidth=1.2, linestyle=DASHED, zorder=3)
    handles += [
        Patch(facecolor=looks[0]["color"], alpha=_BAND, linewidth=0, label="95 % interval"),
        Line2D([], [], label="acting on all samples", **everyone),
        Line2D([], [], label="acting on none", color=colours.muted, linewidth=1.2, linestyle=DASHED),
    ]
    top = max(1e-3, *(one.net_benefit.high for curve in curves for one in curve), *y)
    reached = [one.threshold for curve in curves for one in curve if one.treated.value > 0]
    ax.set(xlim=(0, min(1.0, _MARGIN * max(reached, default=1.0))), ylim=(-_LEAST * top, _MARGIN * top))
    layout.key(ax, colours, handles, place="upper right")
    layout.percent_axis(ax.xaxis)
    layout.percent_axis(ax.yaxis)
    layout.name_axes(ax, colours, f"Act from this probability of {of}, %", "Net benefit, true positives per 100")
    heading = "What acting on the probability gains"
    layout.title(ax, colours, heading, without_middle(name, _LONGEST_NAME))
    return ax


def _risk_of(given: tuple[object, ...], arrays: Arrays, positive: str | None) -> tuple[Risk, str]:
    """Return the risk that was given, or that of predictions, and the name of its class."""
    if len(given) == 1 and isinstance(given[0], Risk) and not arrays:
        return given[0], positive or "class 1"
    predictions = as_predictions(given, "plot_risk", arrays)
    return evaluate_risk(predictions), positive or name_of(predictions)


def name_of(predictions: Predictions | TopLabel) -> str:
    """Return the positive class as a figure names it."""
    names = getattr(predictions, "class_names", None)
    return f"“{without_middle(names[1], 24)}”" if names else "right" if isinstance(predictions, TopLabel) else "class 1"

"""Draw comparisons: of methods, dots with intervals, a line each; and of periods, a panel for each metric over time."""

import itertools
import math
import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from calibrant.comparison import UNCALIBRATED, Comparison
from calibrant.diagrams import ComparisonDiagram, Dot, comparison_diagram, reliability
from calibrant.errors import check_kind
from calibrant.evidence import Side
from calibrant.plots import layout
from calibrant.plots.layout import SIZES, Look, Theme, ThemeName
from calibrant.plots.reliability import plot_reliability
from calibrant.plots.risk import name_of, plot_decisions, plot_risk
from calibrant.predictions import Predictions, as_risk
from calibrant.scale.trend import Trend
from calibrant.text import percent, samples_text, without_middle

# Dots worse than a good one (a third of the way down) by more than this many times its distance from the best are
# shown at the edge, so that differences between the good ones are visible.
_FAR = 3
_LINE, _HEAD = 0.37, 0.75  # inches: a method; title and legend
_LONGEST_TITLE = 34  # characters in a line of a method's title


class Panel(NamedTuple):
    """Content of one panel: a dot a line from the top, and that of the baseline, where a line is drawn through."""

    dots: list[Dot]
    baseline: Dot | None
    number: Callable[[float], str]  # text of a value beyond the edge
    high_is_good: bool = False
    floor: float = -math.inf


def comparison_figures(
    comparison: Comparison, test: Predictions, *, n_bins: int = 15, theme: ThemeName = "light", name: str = ""
) -> dict[str, Figure]:
    """Draw all figures of a comparison.

    Args:
        comparison: Methods fitted on other samples and evaluated on these.
        test: The samples they were evaluated on.
        n_bins: Number of equal-width bins of the reliability diagram.
        theme: "light" or "dark".
        name: Name of the data, such as their file, for the titles.

    Returns:
        Figures by name: comparison, and before_and_after the recommended method (or else the best); of two classes
        also risk and decisions before and after it.
    """
    drawn = {"comparison": plot_comparison(comparison, name=name, theme=theme)}
    shown = comparison.recommended if comparison.recommended.name != UNCALIBRATED else comparison.best
    if shown.evaluated is not None and shown.name != UNCALIBRATED:
        pairs = ((test, comparison.find(UNCALIBRATED)), (shown.evaluated.transform(test), shown))
        of_class = name_of(test) if test.n_classes == 2 else ""
        before, after = (
            reliability(as_risk(samples) if of_class else samples, n_bins=n_bins, ece=method and method.metrics["ece"])
            for samples, method in pairs
        )
        set_names = (layout.method_title(UNCALIBRATED), layout.method_title(shown.name))
        ax = plot_reliability(before, other=after, set_names=set_names, of_class=of_class, name=name, theme=theme)
        drawn["before_and_after"] = cast("Figure", ax.figure)
        if test.n_classes == 2:
            both: dict[str, Any] = {"other": pairs[1][0], "set_names": set_names, "name": name, "theme": theme}
            for kind, draw in (("risk", plot_risk), ("decisions", plot_decisions)):
                drawn[kind] = cast("Figure", draw(test, **both).figure)
    return drawn


def plot_comparison(
    comparison: Comparison | ComparisonDiagram,
    *,
    name: str = "",
    figure: Figure | None = None,
    theme: ThemeName = "light",
) -> Figure:
    """Draw every method's log-loss minus the baseline's, beside it its ECE, and its AUROC minus the baseline's.

    Upright triangles are better than the baseline beyond noise, inverted ones worse; hollow circles differ by no more
    than noise. Methods far outside the range of the others are shown at the edge, with their number.
    """
    check_kind(comparison, (Comparison, ComparisonDiagram), "comparison", "Make one with calibrant.compare.")
    diagram = comparison_diagram(comparison) if isinstance(comparison, Comparison) else comparison
    colours = layout.theme_named(theme)
    words = layout.method_title(diagram.baseline)
    baseline_words = "the uncalibrated model" if diagram.baseline == UNCALIBRATED else words[0].lower() + words[1:]
    methods, body = diagram.methods, _LINE * len(diagram.methods) + 0.3
    figure = layout.open_figure(figure, colours, width=11.2, height=_HEAD + body + 0.75)
    grid = figure.add_gridspec(2, 3, height_ratios=(_HEAD / body, 1), width_ratios=(1.7, 1, 1.2))
    sides: dict[Side, str] = {"better": f"better than {baseline_words} (dashed line)", "worse": "worse"}
    sides["alike"] = "no difference beyond noise"
    handles = [Line2D([], [], label=text, linestyle="none", **dot_look(side, colours)) for side, text in sides.items()]
    handles.append(Line2D([], [], label="95 % interval", color=colours.muted, linewidth=1.6))
    size = samples_text(diagram.n, diagram.effective_n, "test sample")
    parts = [without_middle(name, 32), size, "marks: corrected paired tests"]
    parts += [f"{len(diagram.left_out)} could not be fitted"] if diagram.left_out else []
    detail = layout.DOT.join(filter(None, parts))
    layout.draw_head(figure.add_subplot(grid[0, :]), colours, "Calibration methods compared", detail, handles)
    first = figure.add_subplot(grid[1, 0])
    second, third = (figure.add_subplot(grid[1, column], sharey=first) for column in (1, 2))
    baseline = next((method for method in methods if method.name == diagram.baseline), None)
    nll = Panel([method.nll_change for method in methods], baseline and baseline.nll_change, _signed(3))
    ece = Panel([method.ece for method in methods], baseline and baseline.ece, percent, floor=0.0)
    auroc = [method.auroc_change for method in methods]
    points = Panel(auroc, baseline and baseline.auroc_change, _signed(1, 100), high_is_good=True)
    for ax, panel, text in (
        (first, nll, f"Log-loss minus that of {baseline_words}\n← better"),
        (second, ece, f"ECE{' of the positive class' if diagram.of_two else ''}, %\n← better"),
        (third, points, "AUROC difference, points\nbetter →"),
    ):
        layout.bare_axes(ax, colours)
        across = ax.get_yaxis_transform()
        ax.hlines(range(len(methods)), 0, 1, transform=across, color=colours.faint, linewidth=0.8, zorder=0)
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        draw_dots(ax, panel, colours)
        ax.xaxis.set_major_locator(MaxNLocator(5 if ax is first else 4))
        ticks = layout.percent_ticks() if ax is second else _signed_ticks(1 if ax is first else 100)
        ax.xaxis.set_major_formatter(ticks)
        ax.tick_params(labelleft=ax is first)
        layout.name_axes(ax, colours, text)
    _name_methods(first, diagram, colours)
    return figure


def _signed(decimals: int, scale: int = 1) -> Callable[[float], str]:
    return lambda value: f"{scale * value:+.{decimals}f}".replace("-", "−")


def _signed_ticks(scale: int) -> FuncFormatter:
    return FuncFormatter(lambda value, _: f"{scale * value:+.4g}".replace("-", "−") if abs(value) > 1e-12 else "0")


def _name_methods(ax: Axes, diagram: ComparisonDiagram, theme: Theme) -> None:
    """Spell out the methods from the best down, the recommended one in bold, with the name that commands take below."""
    labels = []
    for method in diagram.methods:
        title = layout.method_title(method.name)
        if len(title) > _LONGEST_TITLE:  # on two lines, with the name behind it, if that is enough
            lines = textwrap.fill(f"{title} ({method.name})", _LONGEST_TITLE)
            title = lines if lines.count("\n") < 2 else without_middle(title, _LONGEST_TITLE)
        labels.append(title)
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    for place, (label, method) in enumerate(zip(ax.get_yticklabels(), diagram.methods, strict=True)):
        label.set(color=theme.ink, fontweight="bold" if method.recommended else "normal", linespacing=1.0)
        if "\n" in labels[place] or labels[place] == method.name:
            label.set(fontsize=SIZES["note"])
            continue
        label.set(va="bottom")
        look: Look = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "top", "fontsize": 7.5}
        layout.note(ax, theme, without_middle(method.name, _LONGEST_TITLE), (0, place), (-3.5, -2), **look)


def draw_dots(ax: Axes, panel: Panel, theme: Theme) -> None:
    """Draw the dots, and set the limits so that those that matter have room."""
    low, high = _limits(panel)
    ax.set_xlim(low, high)
    if panel.baseline is not None and low <= panel.baseline.value <= high:
        ax.axvline(panel.baseline.value, zorder=1, **theme.dashes)
    for place, dot in enumerate(panel.dots):
        if math.isnan(dot.value):
            continue
        look = dot_look(dot.side, theme)
        if low <= dot.value <= high:
            if not math.isnan(dot.low):
                ax.hlines(place, max(dot.low, low), min(dot.high, high), color=look["color"], linewidth=1.6, zorder=2)
            ax.plot(dot.value, place, linestyle="none", zorder=3, **look)
            continue
        # At the edge, the number with an arrow that points to where the dot would be.
        text, right = panel.number(dot.value), dot.value > high
        words, at, offset, side = (f"{text} ▸", 1, -2, "right") if right else (f"◂ {text}", 0, 2, "left")
        box: Look = {"facecolor": theme.background, "edgecolor": "none", "pad": 0.6}
        layout.note(ax, theme, words, (at, place), (offset, 0), xycoords=("axes fraction", "data"), ha=side,
                    va="center", color=look["color"], bbox=box)  # fmt: skip


def dot_look(side: Side, theme: Theme) -> Look:
    """Return the look of a dot, by shape and colour: better points up, worse down, alike is hollow."""
    if side == "alike":
        return {"marker": "o", "markersize": 5, "color": theme.muted, "markerfacecolor": theme.background,
                "markeredgewidth": 1.2}  # fmt: skip
    better = side == "better"
    return {"marker": "^" if better else "v", "markersize": 7, "markeredgewidth": 0,
            "color": theme.under if better else theme.over}  # fmt: skip


def _limits(panel: Panel) -> tuple[float, float]:
    """Return limits with room for every interval, except those of dots that are far worse than a good one."""
    sign = -1 if panel.high_is_good else 1
    known = [dot for dot in panel.dots if not math.isnan(dot.value)]
    if not known:
        return 0.0, 1.0
    # Ends as they would be if low were good.
    ends = [sorted(sign * end for end in (dot.value, dot.low, dot.high) if not math.isnan(end)) for dot in known]
    values = [sign * dot.value for dot in known]
    best, good = min(end[0] for end in ends), sorted(values)[len(values) // 3]
    furthest = good + _FAR * (good - best)
    if panel.baseline is not None and not math.isnan(panel.baseline.value):
        furthest = max(furthest, sign * panel.baseline.value)
    worst = max(end[-1] for value, end in zip(values, ends, strict=True) if value <= furthest)
    room = 0.06 * (worst - best) or 0.01
    low, high = sorted((sign * (best - room), sign * (worst + room)))
    return max(low, panel.floor), high


_PANEL, _MOST_NAMES, _LONGEST = 1.9, 12, 14  # inches of a metric over time; names of periods, characters of one
_ACROSS = 92  # characters that have room below a panel


def plot_trend(trend: Trend, *, name: str = "", figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw every metric over the periods with its 95 % interval, and the level since the last change as a dashed line.

    A diamond marks a period in which a metric changed beyond chance.
    """
    colours, panels = layout.theme_named(theme), len(trend.metrics)
    figure = layout.open_figure(figure, colours, width=8.4, height=_HEAD + _PANEL * panels + 0.4)
    grid = figure.add_gridspec(1 + panels, 1, height_ratios=(_HEAD / _PANEL, *[1] * panels))
    handles = [
        Line2D([], [], label="value and 95 % interval", **_dot(colours)),
        Line2D([], [], label="changed beyond chance", linestyle="none", **_diamond(colours)),
        Line2D([], [], label="mean since the last change", **colours.dashes),
    ]
    n = sum(period.n for period in trend.periods)
    parts = [without_middle(name, 32), f"{len(trend.periods)} periods", f"{n:,} samples"]
    head = figure.add_subplot(grid[0])
    layout.draw_head(head, colours, "Over time", layout.DOT.join(filter(None, parts)), handles)
    first: Axes | None = None
    for row, metric in enumerate(trend.metrics, start=1):
        ax = figure.add_subplot(grid[row], sharex=first)
        first = first or ax
        layout.bare_axes(ax, colours, lines=True)
        _draw_periods(ax, trend, metric, colours)
        axis = layout.metric_axis(metric)
        axis.set_ticks(ax.yaxis, 4)
        layout.name_axes(ax, colours, "", axis.words)
        ax.tick_params(labelbottom=row == panels)
    assert first is not None
    longest = min(_LONGEST, max(len(period.name) for period in trend.periods))
    step = -(-len(trend.periods) // min(_MOST_NAMES, int(_ACROSS / (longest + 2))))
    places = range(0, len(trend.periods), step)
    first.set_xticks(places, [without_middle(trend.periods[place].name, _LONGEST) for place in places])
    first.set_xlim(-0.5, len(trend.periods) - 0.5)
    return figure


def _draw_periods(ax: Axes, trend: Trend, metric: str, theme: Theme) -> None:
    estimates = [period.metrics[metric] for period in trend.periods]
    places, values = range(len(estimates)), [one.value for one in estimates]
    ax.vlines(places, [one.low for one in estimates], [one.high for one in estimates], color=theme.muted, linewidth=1.6)
    ax.plot(places, values, linestyle="none", zorder=3, **_dot(theme, line=False))
    changed = [trend.periods.index(period) for period in trend.changed(metric)]
    ax.plot(changed, [values[place] for place in changed], linestyle="none", zorder=4, **_diamond(theme))
    levels = trend.levels(metric)
    for start, end in itertools.pairwise([0, *changed, len(values)]):
        ax.hlines(levels[start], start - 0.4, end - 0.6, zorder=1, **theme.dashes)


def _dot(theme: Theme, *, line: bool = True) -> Look:
    look: Look = {"marker": "o", "markersize": 5.5, "markerfacecolor": theme.ink, "markeredgecolor": theme.background}
    return {**look, "color": theme.muted, "linewidth": 1.6} if line else look


def _diamond(theme: Theme) -> Look:
    return {"marker": "D", "markersize": 8, "markerfacecolor": theme.over, "markeredgecolor": theme.background}

"""Figures of the Neural Clamping study: the ablation, the sweep over γ, and the spread over starts of δ."""

from collections.abc import Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from calibrant.checks import check_known
from calibrant.evidence import Side
from calibrant.plots.comparison import Panel, dot_look, draw_dots
from calibrant.plots.layout import (
    SIZES,
    Look,
    Theme,
    ThemeName,
    bare_axes,
    draw_head,
    metric_axis,
    name_axes,
    new_figure,
    percent_ticks,
    theme_named,
)
from calibrant.text import percent
from experiments.neural_clamping.ablation import AblationDiagram, AblationPanel
from experiments.neural_clamping.sweeps import GammaSweep, StartSpread

__all__ = ["plot_ablation", "plot_gamma_sweep", "plot_start_spread"]

_ABLATION_LINE, _ABLATION_HEAD = 0.33, 0.8  # inches a row, and that title and key need
_ABLATION_WIDTH, _ABLATION_NAMES = 2.7, 1.9  # inches a panel, and that the names need
_ABLATION_NARROWEST = 8.2  # for the key
_SWEEP_WIDTH, _SWEEP_HEIGHT, _SWEEP_HEAD = 9.6, 4.0, 0.8  # inches, and those that title and key need
_SWEEP_BAND = 0.35
_SWEEP_FEW = 12  # points that are marked one by one
_STARTS_WIDTH, _STARTS_HEIGHT, _STARTS_HEAD = 2.4, 3.9, 0.6  # inches a panel, of the figure, and that the title needs
_STARTS_NARROWEST, _STARTS_LETTER = 6.4, 0.08
_STARTS_HALF = 0.26  # of a box's width, in steps from one start to the next
_STARTS_ROOM = 0.2  # of the span, above and below


def plot_ablation(diagram: AblationDiagram, *, figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw every row's numbers on the test samples, a panel a metric.

    Upright triangles are better than the head without δ beyond noise, inverted ones worse; hollow circles are not
    distinguishable from it. The marks follow paired tests of single differences, not overlapping intervals: two that
    overlap can still differ for certain, as the test samples are the same. A row so far off that it would squeeze the
    others is drawn at the edge, with its number.

    Args:
        diagram: From :meth:`Ablation.diagram`.
        figure: Where to draw; a new one unless given.
        theme: "light" or "dark"; the figure takes its background too.

    Returns:
        The figure.
    """
    colours = theme_named(theme)
    lines, columns = len(diagram.names), len(diagram.panels)
    body = _ABLATION_LINE * lines + 0.3
    if figure is None:
        width = max(_ABLATION_NARROWEST, _ABLATION_NAMES + _ABLATION_WIDTH * columns)
        figure = new_figure(colours, width=width, height=_ABLATION_HEAD + body + 0.75)
    grid = figure.add_gridspec(2, columns, height_ratios=(_ABLATION_HEAD / body, 1))
    _ablation_draw_head(figure.add_subplot(grid[0, :]), diagram, colours)
    first: Axes | None = None
    for column, panel in enumerate(diagram.panels):
        ax = figure.add_subplot(grid[1, column], sharey=first)
        _ablation_draw_panel(ax, panel, diagram, colours)
        ax.tick_params(labelleft=first is None)
        first = first or ax
    if first is not None:
        _ablation_name_rows(first, diagram, colours)
    return figure


def _ablation_draw_panel(ax: Axes, panel: AblationPanel, diagram: AblationDiagram, theme: Theme) -> None:
    bare_axes(ax, theme)
    across = ax.get_yaxis_transform()
    ax.hlines(range(len(panel.dots)), 0, 1, transform=across, color=theme.faint, linewidth=0.8, zorder=0)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    axis = metric_axis(panel.metric)
    baseline = panel.dots[diagram.names.index(diagram.baseline)]
    draw_dots(ax, Panel(list(panel.dots), baseline, axis.number, high_is_good=panel.lower_is_better is False), theme)
    axis.set_ticks(ax.xaxis, 4)
    words = {True: f"← better    {axis.words}", False: f"{axis.words}    better →", None: axis.words}
    ax.set_xlabel(words[panel.lower_is_better], color=theme.muted, fontsize=SIZES["label"])


def _ablation_name_rows(ax: Axes, diagram: AblationDiagram, theme: Theme) -> None:
    """Names in the order of the table, with the temperature of each."""
    shown = [
        name if temperature is None else f"{name}   T = {temperature:.2f}"
        for name, temperature in zip(diagram.names, diagram.temperatures, strict=True)
    ]
    ax.set_yticks(range(len(shown)), shown)
    ax.set_ylim(len(shown) - 0.4, -0.6)
    for label in ax.get_yticklabels():
        label.set(color=theme.ink)


def _ablation_draw_head(ax: Axes, diagram: AblationDiagram, theme: Theme) -> None:
    words: dict[Side, str] = {
        "better": f"better than {diagram.baseline} (dashed line)",
        "worse": "worse",
        "alike": "not distinguishable",
    }
    handles = [Line2D([], [], label=text, linestyle="none", **dot_look(side, theme)) for side, text in words.items()]
    handles.append(Line2D([], [], label="95 % interval", color=theme.muted, linewidth=1.6))
    detail = f"‖δ*‖ = {diagram.norm:.3g}  ·  evaluated on {diagram.n:,} test samples  ·  marks: paired tests"
    draw_head(ax, theme, "What δ and T bring, apart and together", detail, handles)


def plot_gamma_sweep(diagram: GammaSweep, *, figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw the calibration error, the objective and the entropy over γ.

    Args:
        diagram: From :func:`gamma_sweep`.
        figure: Where to draw; a new one unless given.
        theme: "light" or "dark"; the figure takes its background too.

    Returns:
        The figure: three panels.
    """
    colours = theme_named(theme)
    if figure is None:
        figure = new_figure(colours, width=_SWEEP_WIDTH, height=_SWEEP_HEIGHT)
    grid = figure.add_gridspec(2, 3, height_ratios=(_SWEEP_HEAD, _SWEEP_HEIGHT - _SWEEP_HEAD))
    _sweep_draw_head(figure.add_subplot(grid[0, :]), diagram, colours)
    error, objective, entropy = (figure.add_subplot(grid[1, column]) for column in range(3))
    _sweep_draw_error(error, diagram, colours)
    for ax, values, words, look in (
        (objective, diagram.objective, "Objective", _sweep_calibration_look(colours)),
        (entropy, diagram.entropy, "Entropy, nats", _sweep_test_look(colours)),
    ):
        _sweep_frame(ax, diagram, colours, words)
        _sweep_line(ax, diagram, values, look)
        ax.yaxis.set_major_locator(MaxNLocator(5))
    return figure


def _sweep_draw_error(ax: Axes, diagram: GammaSweep, theme: Theme) -> None:
    _sweep_frame(ax, diagram, theme, "ECE, %")
    x = diagram.gamma.numpy()
    ax.fill_between(
        x,
        diagram.ece_low.numpy(),
        diagram.ece_high.numpy(),
        color=theme.under_tint,
        alpha=_SWEEP_BAND,
        linewidth=0,
        zorder=1,
    )
    ax.plot(x, diagram.ece_floor.numpy(), zorder=2, **_sweep_floor_look(theme))
    _sweep_line(ax, diagram, diagram.calibration_ece, _sweep_calibration_look(theme))
    _sweep_line(ax, diagram, diagram.ece, _sweep_test_look(theme))
    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_locator(MaxNLocator(5))
    ax.yaxis.set_major_formatter(percent_ticks())


def _sweep_line(ax: Axes, diagram: GammaSweep, values: Tensor, look: Look) -> None:
    """A line over γ, its points marked where they are few, and in any case the one that the rule chooses."""
    x, chosen = diagram.gamma.numpy(), diagram.chosen
    marked = None if len(x) <= _SWEEP_FEW else [chosen]
    ax.plot(x, values.numpy(), marker="o", markersize=5, markevery=marked, zorder=3, **look)


def _sweep_frame(ax: Axes, diagram: GammaSweep, theme: Theme, words: str) -> None:
    bare_axes(ax, theme, lines=True)
    ax.axvline(float(diagram.gamma[diagram.chosen]), color=theme.muted, linewidth=0.9, linestyle=(0, (1, 2)), zorder=0)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    name_axes(ax, theme, "γ", words)


def _sweep_test_look(theme: Theme) -> Look:
    return {"color": theme.under, "linewidth": 2.2}


def _sweep_calibration_look(theme: Theme) -> Look:
    return {"color": theme.over, "linewidth": 1.8, "linestyle": (0, (4, 1.6)), "markerfacecolor": theme.background}


def _sweep_floor_look(theme: Theme) -> Look:
    return {"color": theme.muted, "linewidth": 1.2, "linestyle": (0, (1, 1.5))}


def _sweep_draw_head(ax: Axes, diagram: GammaSweep, theme: Theme) -> None:
    chosen, best = diagram.chosen, int(diagram.nll.argmin())
    detail = (
        f"least calibration-set ECE at γ = {float(diagram.gamma[chosen]):g} (dotted line): "
        f"ECE {percent(float(diagram.ece[chosen]))} on {diagram.n:,} test samples  ·  "
        f"least test log-loss at γ = {float(diagram.gamma[best]):g}"
    )
    handles = [
        Line2D([], [], label="test samples", **_sweep_test_look(theme)),
        Patch(facecolor=theme.under_tint, alpha=_SWEEP_BAND, linewidth=0, label="95 % interval"),
        Line2D([], [], label=f"the {diagram.n_calibration:,} calibration samples", **_sweep_calibration_look(theme)),
        Line2D([], [], label="a calibrated model on test samples", **_sweep_floor_look(theme)),
    ]
    draw_head(ax, theme, "Neural Clamping and the focal loss's γ", detail, handles)


def plot_start_spread(
    diagram: StartSpread,
    *,
    metrics: Sequence[str] = ("entropy", "ece", "ace", "sce"),
    figure: Figure | None = None,
    theme: ThemeName = "light",
) -> Figure:
    """Draw the quartiles and every single fit of each start.

    The axes do not begin at 0, as the spread is what matters; look at the numbers on them before you call it large.

    Args:
        diagram: From :func:`start_spread`.
        metrics: A panel each.
        figure: Where to draw; a new one unless given.
        theme: "light" or "dark"; the figure takes its background too.

    Returns:
        The figure.

    Raises:
        UnknownNameError: If a metric was not measured.
    """
    for name in metrics:
        check_known(name, diagram.values, "a metric of the spread")
    colours = theme_named(theme)
    if figure is None:
        names = 0.6 + sum(0.25 + _STARTS_LETTER * len(name) for name in diagram.starts)
        width = max(_STARTS_NARROWEST, max(_STARTS_WIDTH, names) * len(metrics))
        figure = new_figure(colours, width=width, height=_STARTS_HEIGHT)
    grid = figure.add_gridspec(2, len(metrics), height_ratios=(_STARTS_HEAD, _STARTS_HEIGHT - _STARTS_HEAD))
    _starts_draw_head(figure.add_subplot(grid[0, :]), diagram, colours)
    for column, name in enumerate(metrics):
        _starts_draw_panel(figure.add_subplot(grid[1, column]), diagram, name, colours)
    return figure


def _starts_draw_panel(ax: Axes, diagram: StartSpread, name: str, theme: Theme) -> None:
    bare_axes(ax, theme, lines=True)
    values, axis = diagram.values[name], metric_axis(name)
    for place, line in enumerate(values):
        _starts_draw_box(ax, place, line, theme)
    low, high = float(values.min()), float(values.max())
    room = _STARTS_ROOM * (high - low) or 0.01 * abs(high) or 0.01
    ax.set(xlim=(-0.6, len(values) - 0.4), ylim=(low - room, high + room))
    axis.set_ticks(ax.yaxis, 5)
    ax.set_xticks(range(len(values)), diagram.starts)
    ax.tick_params(axis="x", length=0, labelcolor=theme.ink)
    ax.set_title(axis.words, loc="left", color=theme.ink, fontsize=SIZES["label"], fontweight="bold", pad=10)


def _starts_draw_box(ax: Axes, place: int, values: Tensor, theme: Theme) -> None:
    """Quartiles as a box with the median across, and the fits beside each other in the order of their seeds."""
    first, median, third = values.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=values.dtype)).tolist()
    colour, tint = ((theme.under, theme.under_tint), (theme.over, theme.over_tint))[place % 2]
    ax.bar(
        place,
        third - first,
        2 * _STARTS_HALF,
        first,
        facecolor=tint,
        edgecolor=colour,
        alpha=0.45,
        linewidth=1,
        zorder=2,
    )
    ax.hlines(median, place - _STARTS_HALF, place + _STARTS_HALF, color=colour, linewidth=2.2, zorder=3)
    shift = torch.linspace(-0.6, 0.6, len(values)) * _STARTS_HALF if len(values) > 1 else torch.zeros(1)
    ax.plot(
        (place + shift).numpy(), values.numpy(), linestyle="none", marker="os"[place % 2], markersize=5, color=colour,
        markerfacecolor=theme.background, markeredgewidth=1.3, zorder=4,
    )  # fmt: skip


def _starts_draw_head(ax: Axes, diagram: StartSpread, theme: Theme) -> None:
    fits = len(diagram.seeds)
    detail = (
        f"one mark per fit, {fits} seed{'s' * (fits > 1)} per start; box: quartiles and median  ·  all evaluated on "
        f"the same {diagram.n:,} test samples"
    )
    draw_head(ax, theme, "Neural Clamping from different starts of δ", detail)

"""An ablation as dots with their intervals, one line a row of the table."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from calibrant.diagrams.ablation import AblationDiagram, AblationPanel
from calibrant.diagrams.leaderboard import DotSide
from calibrant.plots.dots import Panel, dot_look, draw_dots
from calibrant.plots.head import draw_head
from calibrant.plots.layout import bare_axes, new_figure
from calibrant.plots.metric_axes import metric_axis
from calibrant.plots.style import SIZES, Theme, ThemeName, theme_named

__all__ = ["plot_ablation"]

_LINE, _HEAD = 0.33, 0.8  # inches a row, and that title and key need
_WIDTH, _NAMES = 2.7, 1.9  # inches a panel, and that the names need
_NARROWEST = 8.2  # for the key


def plot_ablation(diagram: AblationDiagram, *, figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw every row's numbers on the test rows, a panel a metric.

    Upright triangles are better than the head without δ beyond noise, inverted ones worse; hollow circles cannot be
    told from it. The marks go by paired tests of single differences, not by whether intervals overlap: two that do can
    still differ for certain, as the test rows are the same. A row so far off that it would squeeze the others stands at
    the edge, with its number.

    Args:
        diagram: From :meth:`calibrant.clamping.study.ablation_record.Ablation.diagram`.
        figure: Where to draw; a new one unless given.
        theme: "light" or "dark"; the figure takes its background too.

    Returns:
        The figure.
    """
    colours = theme_named(theme)
    lines, columns = len(diagram.names), len(diagram.panels)
    body = _LINE * lines + 0.3
    if figure is None:
        width = max(_NARROWEST, _NAMES + _WIDTH * columns)
        figure = new_figure(colours, width=width, height=_HEAD + body + 0.75)
    grid = figure.add_gridspec(2, columns, height_ratios=(_HEAD / body, 1))
    _draw_head(figure.add_subplot(grid[0, :]), diagram, colours)
    first: Axes | None = None
    for column, panel in enumerate(diagram.panels):
        ax = figure.add_subplot(grid[1, column], sharey=first)
        _draw_panel(ax, panel, diagram, colours)
        ax.tick_params(labelleft=first is None)
        first = first or ax
    if first is not None:
        _name_rows(first, diagram, colours)
    return figure


def _draw_panel(ax: Axes, panel: AblationPanel, diagram: AblationDiagram, theme: Theme) -> None:
    bare_axes(ax, theme)
    across = ax.get_yaxis_transform()
    ax.hlines(range(len(panel.dots)), 0, 1, transform=across, color=theme.faint, linewidth=0.8, zorder=0)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    axis = metric_axis(panel.metric)
    rival = panel.dots[diagram.names.index(diagram.rival)]
    draw_dots(ax, Panel(list(panel.dots), rival, axis.number, high_is_good=panel.lower_is_better is False), theme)
    axis.set_ticks(ax.xaxis, 4)
    words = {True: f"← better    {axis.words}", False: f"{axis.words}    better →", None: axis.words}
    ax.set_xlabel(words[panel.lower_is_better], color=theme.muted, fontsize=SIZES["label"])


def _name_rows(ax: Axes, diagram: AblationDiagram, theme: Theme) -> None:
    """Names in the order of the table, with the temperature of each."""
    shown = [
        name if temperature is None else f"{name}   T = {temperature:.2f}"
        for name, temperature in zip(diagram.names, diagram.temperatures, strict=True)
    ]
    ax.set_yticks(range(len(shown)), shown)
    ax.set_ylim(len(shown) - 0.4, -0.6)
    for label in ax.get_yticklabels():
        label.set(color=theme.ink)


def _draw_head(ax: Axes, diagram: AblationDiagram, theme: Theme) -> None:
    words: dict[DotSide, str] = {
        "better": f"better than {diagram.rival} (dashed line)",
        "worse": "worse",
        "alike": "cannot be told from it",
    }
    handles = [Line2D([], [], label=text, linestyle="none", **dot_look(side, theme)) for side, text in words.items()]
    handles.append(Line2D([], [], label="95 % interval", color=theme.muted, linewidth=1.6))
    detail = f"‖δ*‖ = {diagram.norm:.3g}  ·  judged on {diagram.n:,} test rows  ·  marks: paired tests"
    draw_head(ax, theme, "What δ and T bring, apart and together", detail, handles)

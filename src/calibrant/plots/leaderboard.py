"""A leaderboard as dots with their intervals, one line a method."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import ScaledTranslation

from calibrant.diagrams.leaderboard import DotSide, LeaderboardDiagram
from calibrant.plots.dots import Panel, dot_look, draw_dots
from calibrant.plots.layout import bare_axes, new_figure, percent, percent_ticks
from calibrant.plots.style import SIZES, Theme, ThemeName, theme_named

__all__ = ["plot_leaderboard"]

_LINE, _HEAD = 0.27, 0.75  # inches a method, and that title and key need
_LONGEST_NAME = 26


def plot_leaderboard(
    diagram: LeaderboardDiagram, *, figure: Figure | None = None, theme: ThemeName = "light"
) -> Figure:
    """Draw every method's log-loss against temperature scaling's, beside it its ECE, and its AUROC against the same.

    Upright triangles are better than temperature scaling beyond noise, inverted ones worse; hollow circles cannot be
    told from it. Methods so far off that they would squeeze the others stand at the edge, with their number.

    Args:
        diagram: From :func:`calibrant.report.comparison_diagram`.
        figure: Where to draw; a new one unless given.
        theme: "light" or "dark"; the figure takes its background too.

    Returns:
        The figure: three panels with the methods in one order.
    """
    colours = theme_named(theme)
    methods, body = diagram.methods, _LINE * len(diagram.methods) + 0.3
    if figure is None:
        figure = new_figure(colours, width=10.4, height=_HEAD + body + 0.75)
    grid = figure.add_gridspec(2, 3, height_ratios=(_HEAD / body, 1), width_ratios=(1.7, 1, 1.2))
    _head(figure.add_subplot(grid[0, :]), diagram, colours)
    first = figure.add_subplot(grid[1, 0])
    second, third = (figure.add_subplot(grid[1, column], sharey=first) for column in (1, 2))
    rival = next((method for method in methods if method.name == diagram.rival), None)
    for ax, panel, text in (
        (
            first,
            Panel([method.nll_change for method in methods], rival and rival.nll_change, _nats),
            f"← better    Log-loss minus that of {diagram.rival_words}",
        ),
        (
            second,
            Panel([method.ece for method in methods], rival and rival.ece, percent, floor=0.0),
            "← better    ECE, %",
        ),
        (
            third,
            Panel(
                [method.auroc_change for method in methods], rival and rival.auroc_change, _points, high_is_good=True
            ),
            "AUROC change, points   better →",
        ),
    ):
        _frame(ax, len(methods), colours)
        draw_dots(ax, panel, colours)
        ax.xaxis.set_major_locator(MaxNLocator(5 if ax is first else 4))
        ax.xaxis.set_major_formatter(percent_ticks() if ax is second else _signed(1 if ax is first else 100))
        ax.tick_params(labelleft=ax is first)
        ax.set_xlabel(text, color=colours.muted, fontsize=SIZES["label"])
    _name_methods(first, diagram, colours)
    return figure


def _frame(ax: Axes, lines: int, theme: Theme) -> None:
    """A faint line for every method, and no axis on the left."""
    bare_axes(ax, theme)
    across = ax.get_yaxis_transform()
    ax.hlines(range(lines), 0, 1, transform=across, color=theme.faint, linewidth=0.8, zorder=0)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def _signed(scale: int) -> FuncFormatter:
    """Differences with their sign."""
    return FuncFormatter(lambda value, _: f"{scale * value:+.4g}".replace("-", "−") if abs(value) > 1e-12 else "0")


def _nats(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def _points(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", "−")


def _name_methods(ax: Axes, diagram: LeaderboardDiagram, theme: Theme) -> None:
    """Names from the best down, the recommended one in bold."""
    names = [method.name for method in diagram.methods]
    shown = [name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…" for name in names]
    ax.set_yticks(range(len(names)), shown)
    ax.set_ylim(len(names) - 0.4, -0.6)
    for label, method in zip(ax.get_yticklabels(), diagram.methods, strict=True):
        label.set(color=theme.ink, fontweight="bold" if method.recommended else "normal")


def _head(ax: Axes, diagram: LeaderboardDiagram, theme: Theme) -> None:
    """Title on the left, the numbers and the key under it."""
    ax.axis("off")
    heading = ax.text(
        0, 1, "Calibration methods compared", color=theme.ink, fontsize=SIZES["title"], fontweight="bold", va="top"
    )
    detail = ax.annotate(
        _detail(diagram), (0, 1), xytext=(0, -19), textcoords="offset points", color=theme.muted,
        fontsize=SIZES["detail"], va="top",
    )  # fmt: skip
    words: dict[DotSide, str] = {
        "better": f"better than {diagram.rival_words} (dashed line)",
        "worse": "worse",
        "alike": "cannot be told from it",
    }
    handles = [Line2D([], [], label=text, linestyle="none", **dot_look(side, theme)) for side, text in words.items()]
    handles.append(Line2D([], [], label="95 % interval", color=theme.muted, linewidth=1.6))
    below = ax.transAxes + ScaledTranslation(0, -38 / 72, ax.figure.dpi_scale_trans)
    legend = ax.legend(
        handles=handles, loc="upper left", ncols=len(handles), fontsize=SIZES["note"], labelcolor=theme.ink,
        frameon=False, borderaxespad=0, borderpad=0, handlelength=1.6, columnspacing=1.6, bbox_to_anchor=(0, 1),
        bbox_transform=below,
    )  # fmt: skip
    for artist in (heading, detail, legend):
        artist.set_in_layout(False)  # the panels need not make room: this row has its own


def _detail(diagram: LeaderboardDiagram) -> str:
    parts = [f"judged on {diagram.n:,} test rows", "marks: paired tests, corrected for the number of methods"]
    if diagram.left_out:
        count = len(diagram.left_out)
        parts.append(f"{count} method{'s' * (count > 1)} did not fit")
    return "  ·  ".join(parts)

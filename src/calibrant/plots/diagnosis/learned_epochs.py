"""Top logits of the training rows by when they were learned: a panel a candidate."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from calibrant.diagnosis import Diagnosis, LearnedEpochs, LearnedGroup
from calibrant.errors import InputError
from calibrant.plots.diagnosis.panels import panel_grid, panel_title
from calibrant.plots.head import draw_head
from calibrant.plots.layout import bare_axes, percent
from calibrant.plots.marks import OVER_HATCH
from calibrant.plots.style import SIZES, Look, Theme, ThemeName, theme_named

__all__ = ["plot_learned_epochs"]

_LINE = 0.38  # inches a group
_TALLEST = 0.86  # of a line


def plot_learned_epochs(diagnosis: Diagnosis, *, figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw histograms of the top logit in the end, one line a group of rows that were learned in the same epochs.

    Every histogram is as tall as its line, whatever the number of its rows, which stands beside it. Where lines slope
    to the left from top to bottom, the network still gives rows that it learned late a lower logit; where they lie
    under each other, it no longer tells hard rows from easy ones.

    Args:
        diagnosis: From :func:`calibrant.diagnosis.diagnose`, of runs that were traced.
        figure: Where to draw; a new one unless given.
        theme: "light" or "dark"; the figure takes its background too.

    Returns:
        The figure.

    Raises:
        InputError: If no run was traced.

    Reference:
        Wang, Feng & Zhang (2021), Rethinking Calibration of Deep Neural Networks: Do Not Be Afraid of Overconfidence,
        Figure 5.
    """
    found = diagnosis.learned_epochs
    if not found:
        raise InputError("a run must have been traced to tell when rows were learned; none was. Train with --trace.")
    colours = theme_named(theme)
    groups = len(found[0].groups)
    grid = panel_grid([each.candidate for each in found], colours, figure=figure, heights=(_LINE * groups,))
    handles = [
        Patch(label="learned", linewidth=0.8, **_look(colours, never=False)),
        Patch(label="never learned", linewidth=0.8, **_look(colours, never=True)),
        Line2D([], [], label="mean", color=colours.ink, linestyle="none", marker="|", markersize=9, markeredgewidth=2),
    ]
    detail = "training rows by the epoch from which they are answered right; their share on the right"
    detail += "  ·  all seeds" * any(len(each.seeds) > 1 for each in diagnosis.candidates)
    draw_head(grid.head, colours, "Top logits by when rows were learned", detail, handles)
    for place, each in enumerate(found):
        ax = grid.figure.add_subplot(grid.cells[place][0])
        _draw(ax, each, grid.names[place], colours)
        ax.tick_params(labelleft=grid.is_left(place), labelbottom=grid.is_lowest(place))
    grid.name_axes(colours, "Top logit in the end", "Learned in epoch")
    return grid.figure


def _draw(ax: Axes, found: LearnedEpochs, name: str, theme: Theme) -> None:
    bare_axes(ax, theme)
    lines = len(found.groups)
    for place, group in enumerate(found.groups):
        base = lines - 1 - place
        ax.axhline(base, color=theme.faint, linewidth=0.8, zorder=0)
        ax.annotate(percent(group.share), (1, base), xycoords=("axes fraction", "data"), xytext=(0, 3),
                    textcoords="offset points", ha="right", color=theme.muted, fontsize=SIZES["note"])  # fmt: skip
        if group.rows:
            tallest = max(group.counts)
            heights = [base + _TALLEST * count / tallest for count in group.counts]
            ax.stairs(heights, found.edges, baseline=base, fill=True, linewidth=0.8, zorder=2,
                      **_look(theme, never=group.first is None))  # fmt: skip
            ax.vlines(group.mean, base, base + _TALLEST, color=theme.ink, linewidth=1.8, zorder=3)
    ax.set_yticks(range(lines), [_words(group) for group in reversed(found.groups)])
    for label in ax.get_yticklabels():
        label.set(va="bottom", color=theme.ink)
    room = 0.24 * (found.edges[-1] - found.edges[0])  # for the shares
    ax.set(xlim=(found.edges[0], found.edges[-1] + room), ylim=(-0.05, lines))
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    correlation = found.rank_correlation.mean
    known = correlation == correlation  # noqa: PLR0124  # not NaN
    told = f"rank correlation {correlation:+.2f}".replace("-", "−") if known else "all learned in one epoch"
    panel_title(ax, theme, name, told)


def _look(theme: Theme, *, never: bool) -> Look:
    if never:
        return {"facecolor": theme.over_tint, "edgecolor": theme.over, "hatch": OVER_HATCH}
    return {"facecolor": theme.under_tint, "edgecolor": theme.under}


def _words(group: LearnedGroup) -> str:
    if group.first is None:
        return "never"
    return str(group.first) if group.first == group.last else f"{group.first}–{group.last}"

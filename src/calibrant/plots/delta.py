"""The figure of a clamped model's δ, beside inputs with and without it."""

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from calibrant.diagrams import DeltaPicture
from calibrant.plots.layout import DOT, SIZES, Theme, ThemeName, draw_head, open_figure, theme_named
from calibrant.text import percent

# Inches: least width of an input; title; colour scale of δ with its numbers; a line of text.
_SIDE, _HEAD, _SCALE, _WORDS = 1.3, 0.55, 0.75, 0.25
_SMALLEST = 0.95  # inches: least width of a map of δ
_NARROWEST = 6.6


def plot_delta(picture: DeltaPicture, *, figure: Figure | None = None, theme: ThemeName = "light") -> Figure:
    """Draw δ in signed colours, amplified, beside the inputs without and with it, which are not."""
    colours = theme_named(theme)
    maps, inputs = len(picture.maps), len(picture.inputs)
    tall = picture.maps.shape[1] / picture.maps.shape[2]
    body = max(2 * (_SIDE * tall + _WORDS), maps * (_SMALLEST * tall + _WORDS))
    wide, side = ((body / lines - _WORDS) / tall for lines in (maps, 2))  # inches: width of a map, and side of an input
    width = max(_NARROWEST, wide + _SCALE + side * inputs + 0.6)
    figure = open_figure(figure, colours, width=width, height=_HEAD + body + 0.3)
    grid = figure.add_gridspec(2, 3, height_ratios=(_HEAD, body), width_ratios=(wide, _SCALE, side * inputs))
    detail = "δ = 0: nothing is added"
    if picture.maps.any():
        beyond = f"{DOT}{percent(picture.outside)} of x + δ beyond black or white" if picture.outside > 0 else ""
        unit = "pixels" if picture.in_pixels else "units of the network's inputs"
        detail = f"in {unit}, drawn {picture.factor:.2g} × as strong as x{DOT}‖δ‖ = {picture.norm:.3g}{beyond}"
    draw_head(figure.add_subplot(grid[0, :]), colours, "The δ that is added to every input", detail)
    scale = Normalize(-picture.limit, picture.limit)
    # The background is at 0, so that pixels that δ does not change are invisible.
    signed = LinearSegmentedColormap.from_list("signed", [colours.under, colours.background, colours.over])
    places = grid[1, 0].subgridspec(maps, 1)
    for row, (values, name) in enumerate(zip(picture.maps, picture.map_names, strict=True)):
        ax = figure.add_subplot(places[row])
        ax.imshow(values.numpy(), cmap=signed, norm=scale, interpolation="nearest")
        _frame(ax, colours, name)
    _draw_scale(figure.add_subplot(grid[1, 1]), ScalarMappable(scale, signed), picture.limit, colours)
    places = grid[1, 2].subgridspec(2, inputs)
    for row, (images, name) in enumerate(((picture.inputs, "x"), (picture.perturbed, "x + δ"))):
        for column, image in enumerate(images):
            ax = figure.add_subplot(places[row, column])
            shown = ((image - picture.low) / (picture.high - picture.low)).clamp(0, 1).permute(1, 2, 0).numpy()
            shown = shown[..., 0] if shown.shape[2] == 1 else shown  # grey, or in colour
            ax.imshow(shown, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            _frame(ax, colours, picture.captions[column] if picture.captions and not row else "")
            if not column:
                ax.set_ylabel(name, color=colours.ink, fontsize=SIZES["label"])
    return figure


def _draw_scale(ax: Axes, signed: ScalarMappable, limit: float, theme: Theme) -> None:
    """Draw the colours of δ with their numbers."""
    ax.axis("off")
    bar = ax.figure.colorbar(signed, cax=ax.inset_axes((0, 0.04, 0.16, 0.88)), ticks=[-limit, 0, limit])
    signed_ticks = FuncFormatter(lambda value, _: f"{value:+.2g}".replace("-", "−") if value else "0")
    bar.ax.yaxis.set_major_formatter(signed_ticks)
    bar.ax.tick_params(length=3, width=0.8, color=theme.muted, labelcolor=theme.muted, labelsize=SIZES["tick"])
    bar.outline.set(edgecolor=theme.muted, linewidth=0.8)


def _frame(ax: Axes, theme: Theme, words: str) -> None:
    ax.set(xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set(color=theme.muted, linewidth=0.8, visible=True)
    ax.set_title(words, loc="left", color=theme.muted, fontsize=SIZES["note"], pad=3)

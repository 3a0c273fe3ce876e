"""Figures of the meta-regularisation study: epochs (Fig. 3), numbers of bins (Fig. 5), reliability (Fig. 2 and 4)."""

from collections import defaultdict
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from experiments.diagrams import draw_key, draw_reliability
from experiments.page import save
from experiments.records import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["bins_section", "epochs_section", "reliability_section"]

# Colour of the theme and line of each loss, the same in all figures.
LOOKS = {
    "CE": ("ink", "--"),
    "Focal": ("ink", "-"),
    "FLγ-SECE": ("under", "-"),
    "FLγ-DECE": ("over", "-"),
    "LS (0.05)": ("muted", "-"),
    "MMCE": ("muted", "--"),
    "FLγ-SECE, constant rate": ("under", "--"),
    "FLγ": ("over", "--"),
    "FLSD": ("ink", ":"),
    "LS (0.1)": ("muted", ":"),
    "Mixup (1.0)": ("muted", "-."),
    "CE-DECE": ("over", ":"),
    "CE-SECE": ("under", ":"),
    "MbLS": ("under", "-."),
    "MbLS, no margin": ("over", "-."),
    "Focal + MDCA": ("ink", "-."),
    "Focal + SB-ECE": ("under", (0, (1, 3))),
    "Focal + SB-AvUC": ("over", (0, (1, 3))),
}


def epochs_section(records: Sequence[Record], title: str, data: str, images: Path | None) -> str:
    """Return the section of test ECE, test log-loss and γ over the epochs, and draw its figure into a folder."""
    name = f"meta-regularization-epochs-{data}.png"
    if images is not None:
        _draw_epochs(records, images / name)
    return (
        "### Over the epochs\n\nThe network's rate falls at three and five sevenths of the epochs. Lines are means "
        "over as many networks as the brackets say, bands their lowest and highest.\n\n"
        f"![{title}: test ECE, test log-loss and mean γ over the epochs](images/{name})"
    )


def bins_section(records: Sequence[Record], title: str, data: str, images: Path | None) -> str:
    """Return the section of ECE and MCE by the number of bins, of records that have them, and draw its figure."""
    records = [record for record in records if "bins" in record["numbers"]]
    if not records:
        return ""
    name = f"meta-regularization-bins-{data}.png"
    if images is not None:
        _draw_bins(records, images / name)
    return (
        "### By the number of bins\n\nFig. 5 of the paper, at the epoch of the best validation error. Bins of few "
        "samples make both errors large by chance, the more so the more bins there are: compare losses, not numbers "
        "of bins. Lines are means over as many networks as the brackets say, bands their lowest and highest.\n\n"
        f"![{title}: ECE and MCE by the number of bins](images/{name})"
    )


def reliability_section(records: Sequence[Record], title: str, data: str, images: Path | None) -> str:
    """Return the section of reliability in 15, 20, 50 and 100 bins, of the last seed that has it, with its figure."""
    last = {record["cell"]["method"]: record for record in records if "diagrams" in record["numbers"]}
    if not last:
        return ""
    name = f"meta-regularization-reliability-{data}.png"
    if images is not None:
        panels = {}
        for n_bins in (15, 20, 50, 100):
            for method, record in last.items():
                diagrams, cell = record["numbers"]["diagrams"], record["cell"]
                bins = diagrams["15"] if n_bins == 15 else merged(diagrams["100"], 100 // n_bins)
                error = 100 * (1 - record["numbers"]["rules"]["best"]["rows"]["none"]["accuracy"][0])
                panels[f"{method}, seed {cell['seed']}\n{n_bins} bins (error {error:.2f} %)"] = bins
        draw_reliability(panels, images / name, columns=len(last))
    return (
        "### Reliability\n\nFig. 2 and 4 of the paper: accuracy by confidence in 15, 20, 50 and 100 bins, at the epoch "
        "of the best validation error. A dot's area is its share of the test images.\n\n"
        f"![{title}: accuracy by confidence](images/{name})"
    )


def merged(bins: Sequence[Sequence[float]], width: int) -> list[list[float]]:
    """Return bins of equal width, so many of which are one, from those of 100 that have samples.

    Args:
        bins: Count, mean confidence and accuracy of each.
        width: How many of the hundred become one.
    """
    parts = defaultdict[int, list[Sequence[float]]](list)
    for bin_ in bins:
        # A mean lies inside its bin, which is open below and closed above; a mean of 0 is in the first.
        place = max(ceil(100 * bin_[1] - 1e-7), 1) - 1
        parts[place // width].append(bin_)
    merged_bins = []
    for _, inside in sorted(parts.items()):
        n = sum(count for count, _, _ in inside)
        merged_bins.append([n, *(sum(bin_[0] * bin_[column] for bin_ in inside) / n for column in (1, 2))])
    return merged_bins


def _draw_epochs(records: Sequence[Record], path: Path) -> None:
    from calibrant.plots.layout import new_figure, theme_named

    figure = new_figure(theme_named("light"), width=11.0, height=3.9)
    panels = (("test_ece", 100, "Test ECE, %"), ("test_nll", 1, "Test log-loss"), ("gamma_mean", 1, "Mean γ"))
    for place, (name, scale, words) in enumerate(panels):
        curves = [
            (
                record["cell"]["method"],
                {entry["epoch"]: scale * entry[name] for entry in record["numbers"]["epochs"] if name in entry},
            )
            for record in records
        ]
        ax = figure.add_subplot(1, len(panels), place + 1)
        _lines(ax, curves, ("Epoch", words))
        if name != "test_nll":
            ax.set_ylim(bottom=0)
    draw_key(figure, "outside lower center", 4)
    save(figure, path)


def _draw_bins(records: Sequence[Record], path: Path) -> None:
    from calibrant.plots.layout import new_figure, theme_named

    figure = new_figure(theme_named("light"), width=9.0, height=3.9)
    for place, words in enumerate(("Test ECE, %", "Test MCE, %")):
        curves = [
            (record["cell"]["method"], {int(n): 100 * errors[n][place] for n in sorted(errors, key=int)})
            for record in records
            for errors in [record["numbers"]["bins"]]
        ]
        ax = figure.add_subplot(1, 2, place + 1)
        _lines(ax, curves, ("Bins", words))
        ax.set_xscale("log")
        ticks = [10, 20, 50, 100, 200, 500, 1000]
        ax.set_xticks(ticks, [f"{n:,}" for n in ticks])
        ax.minorticks_off()
        ax.set_ylim(bottom=0)
    draw_key(figure, "outside lower center", 4)
    save(figure, path)


def _lines(ax: "Axes", curves: Sequence[tuple[str, dict[int, float]]], names: tuple[str, str]) -> None:
    """Draw the mean over networks of each loss, and the band from the lowest to the highest."""
    from calibrant.plots.layout import bare_axes, name_axes, theme_named

    theme = theme_named("light")
    bare_axes(ax, theme, lines=True)
    for method in dict.fromkeys(method for method, _ in curves):
        points = defaultdict[int, list[float]](list)
        for x, y in (point for name, curve in curves if name == method for point in curve.items()):
            points[x].append(y)
        if points:
            colour, line = LOOKS[method]
            low, mean, high = zip(*[(min(y), fmean(y), max(y)) for y in points.values()], strict=True)
            label = f"{method} ({len(next(iter(points.values())))})"
            colour = getattr(theme, colour)
            ax.plot(list(points), mean, color=colour, linestyle=line, linewidth=1.6, label=label)
            ax.fill_between(list(points), low, high, color=colour, alpha=0.1, linewidth=0)
    name_axes(ax, theme, *names)

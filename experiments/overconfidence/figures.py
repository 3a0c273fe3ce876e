"""Reliability (Fig. 2), calibration samples (Fig. 3), logits by learned epoch (Fig. 5): numbers, text and figures."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from experiments.diagrams import draw_learned, draw_reliability
from experiments.numbers import Estimate, Number, minus, pooled
from experiments.overconfidence.pools import DATA, FAMILIES, Groups, Runs, order, title_of
from experiments.page import claims, save
from experiments.published import Finding

if TYPE_CHECKING:
    from calibrant.plots.layout import Theme

__all__ = ["figure_numbers", "figure_sections"]

MAPS = ("TS (grid)", "HB", "TS", "HB (equal mass)")  # the first two are the paper's
ROWS = {"none": "uncalibrated", "TS (grid)": "after TS (grid)"}
RELIABILITY = """
## Reliability

Fig. 2 of the paper: accuracy by confidence in 15 bins, of the first seed that has them, before and after the paper's
temperature. A dot's area is its share of the test samples. The paper says that regularised networks are overconfident
where confidence is low, whether a temperature is used or not: the claims are of all bins below one half together.
"""
SIZES = """
## The number of calibration samples

Fig. 3 of the paper: the test ECE after a map fitted on so many calibration samples. Lines are means over seeds and five
draws, the areas reach from the lowest to the highest; where a line ends, all calibration samples were used.

![Test ECE by the number of calibration samples, by map and loss](images/overconfidence-sizes.png)
"""
LEARNED = """
## Logits by the epoch of learning

Fig. 5 of the paper: the largest logits of the unaugmented training samples at the end, by the epoch since which each is
classified correctly; of one seed. The rank correlation of the two tells whether the network still separates samples
that it learned early from those that it learned late, the standard deviation how far the logits spread.
"""


def figure_numbers(groups: Groups) -> dict[str, Number]:
    """Return what the paper's claims about Fig. 2, 3 and 5 are held against.

    Args:
        groups: Numbers of the records.
    """
    numbers: dict[str, Number] = {}
    for (data, method), runs in groups.items():
        plain = groups.get((data, "CE"), {}) if method != "CE" else {}
        for row in ROWS:
            if gaps := [_gap_below_half(run["diagrams"][row]) for run in runs.values() if "diagrams" in run]:
                numbers[f"{data}.{method}.{row}.gap below half"] = pooled(gaps)
        numbers |= _size_numbers(data, method, runs, plain)
        for what in ("correlation", "spread"):
            ours, theirs = (_learned(group, what) for group in (runs, plain))
            if ours:
                numbers[f"{data}.{method}.learned.{what}"] = pooled(list(ours.values()))
            if shared := sorted(ours.keys() & theirs.keys()):
                number = pooled([minus(ours[seed], theirs[seed]) for seed in shared])
                about = "1 seed, training samples" if len(shared) == 1 else f"{len(shared)} seeds"
                numbers[f"{data}.{method} - CE.learned.{what}"] = number._replace(about=about)
    return numbers


def _gap_below_half(bins: Sequence[Sequence[float]]) -> Estimate:
    """Return by how much confidence exceeds accuracy in bins below one half, in percent, with a binomial interval."""
    low = [bin_ for bin_ in bins if bin_[1] < 0.5]
    n = sum(count for count, _, _ in low)
    if not n:
        return 0.0, -100.0, 100.0
    gap = 100 * sum(count * (confidence - accuracy) for count, confidence, accuracy in low) / n
    half = 196 * math.sqrt(sum(count * accuracy * (1 - accuracy) for count, _, accuracy in low)) / n
    return gap, gap - half, gap + half


def _size_numbers(data: str, method: str, runs: Runs, plain: Runs) -> dict[str, Number]:
    """Return the ECE by number of calibration samples beside the cross-entropy's, and of HB beside TS, in percent."""
    numbers: dict[str, Number] = {}
    for name in MAPS:
        for size in dict.fromkeys(size for run in runs.values() for size in _sizes(run, name)):
            ours = {seed: _draws(run, name, size) for seed, run in runs.items() if size in _sizes(run, name)}
            theirs = {seed: _draws(run, name, size) for seed, run in plain.items() if size in _sizes(run, name)}
            place = f"{size} samples.ece"
            numbers[f"{data}.{method}.{name}.{place}"] = _pooled(list(ours.values()))
            if shared := sorted(ours.keys() & theirs.keys()):
                numbers[f"{data}.{method} - CE.{name}.{place}"] = _pooled(
                    [[minus(*pair) for pair in zip(ours[seed], theirs[seed], strict=True)] for seed in shared]
                )
            if name == "HB":
                others = {seed: _draws(runs[seed], "TS (grid)", size) for seed in ours}
                numbers[f"{data}.{method}.HB - TS (grid).{place}"] = _pooled(
                    [[minus(*pair) for pair in zip(ours[seed], others[seed], strict=True)] for seed in ours]
                )
    return numbers


def _sizes(run: Mapping[str, Any], name: str) -> Mapping[str, list[float]]:
    sizes: Mapping[str, list[float]] = run.get("sizes", {}).get(name, {})
    return sizes


def _draws(run: Mapping[str, Any], name: str, size: str) -> list[Estimate]:
    """Return the ECE of each draw in percent, with the error that the test samples give that of all samples."""
    value, low, high = (100 * end for end in run["rows"][name]["ece"])
    return [(100 * error, 100 * error + low - value, 100 * error + high - value) for error in _sizes(run, name)[size]]


def _pooled(draws: Sequence[Sequence[Estimate]]) -> Number:
    """Return the mean; its interval has the error of the test samples and of the draws, or of the seeds' means."""
    if len(draws) == 1:
        return pooled(draws[0])._replace(about=f"1 seed, {len(draws[0])} draws and the test samples")
    return pooled([tuple(map(fmean, zip(*one, strict=True))) for one in draws])


def _learned(runs: Runs, what: str) -> dict[int, Estimate]:
    return {seed: tuple(run["learned"][what]) for seed, run in runs.items() if "learned" in run}


def figure_sections(groups: Groups, entries: Sequence[Finding], images: Path | None) -> list[str]:
    """Return the sections of Fig. 2, 3 and 5 for which there are records, and draw them where a folder is given.

    Args:
        groups: Numbers of the records.
        entries: The paper's claims about them.
        images: Folder of the figures; None draws none.
    """
    kinds = {"diagrams": RELIABILITY, "sizes": SIZES, "learned": LEARNED}
    ends = {"diagrams": (".gap below half",), "sizes": (" samples.ece",), "learned": (".correlation", ".spread")}
    sections = []
    for kind, text in kinds.items():
        own, lines = _having(groups, kind), list[str]()
        if not own:
            continue
        if kind == "sizes" and images is not None:
            _draw_sizes(own, images / "overconfidence-sizes.png")
        for data in dict.fromkeys(data for data, _ in own) if kind != "sizes" else ():
            name = f"overconfidence-{'reliability' if kind == 'diagrams' else kind}-{data}.png"
            lines.append(f"{title_of(data)}:\n\n![{title_of(data)}](images/{name})")
            if images is not None:
                runs = {method: next(iter(runs.values()))[kind] for (at, method), runs in own.items() if at == data}
                _draw_of_data(kind, runs, images / name)
        verdicts = claims([entry for entry in entries if entry.published.id.endswith(ends[kind])], "")
        sections.append("\n\n".join(part for part in (text.strip("\n"), *lines, verdicts) if part))
    return sections


def _draw_of_data(kind: str, runs: Mapping[str, Any], path: Path) -> None:
    """Draw the reliability of each loss, or its logits by learned epoch, of one data set."""
    if kind == "learned":
        draw_learned(runs, path, columns=len(runs))
        return
    shown = {f"{method}\n{words}": runs[method][row] for row, words in ROWS.items() for method in runs}
    draw_reliability(shown, path, columns=len(runs))


def _having(groups: Groups, kind: str) -> dict[tuple[str, str], Runs]:
    """Return the runs that have something, by data set and loss; not losses of pools, which have seed 0 alone."""
    results = {
        place: {seed: run for seed, run in sorted(runs.items()) if kind in run}
        for place, runs in groups.items()
        if place[0] in DATA
    }
    most = {data: max(len(runs) for (name, _), runs in groups.items() if name == data) for data, _ in results}
    chosen = [place for place, runs in results.items() if runs and (any(groups[place]) or most[place[0]] == 1)]
    return {
        place: results[place]
        for place in sorted(chosen, key=lambda place: (list(DATA).index(place[0]), order(place[1])))
    }


def _draw_sizes(groups: Groups, path: Path) -> None:
    from calibrant.plots.layout import SIZES, bare_axes, name_axes, new_figure, theme_named

    theme = theme_named("light")
    panels = list(dict.fromkeys(data for data, _ in groups))
    figure = new_figure(theme, width=10.4, height=0.6 + 2.7 * len(panels))
    axes = figure.subplots(len(panels), len(MAPS), squeeze=False, sharey="row", sharex="row")
    handles: dict[str, Any] = {}
    for line, data in zip(axes, panels, strict=True):
        for ax, name in zip(line, MAPS, strict=True):
            bare_axes(ax, theme, lines=True)
            for method in (method for where, method in groups if where == data):
                points = _points(groups[data, method], name)
                colour, dash = _look(method, theme)
                means = [fmean(values) for values in points.values()]
                (line_of_mean,) = ax.plot(list(points), means, color=colour, linestyle=dash, linewidth=1.6)
                handles[re.sub(r" \([\d.]+\)", "", method)] = line_of_mean
                low, high = ([end(values) for values in points.values()] for end in (min, max))
                ax.fill_between(list(points), low, high, color=colour, alpha=0.1, linewidth=0)
            ax.set_xscale("log")
            ticks = sorted(
                {size for (where, _), runs in groups.items() if where == data for size in _points(runs, name)}
            )
            ax.set_xticks(ticks[::2], [f"{size:,}" for size in ticks[::2]])
            ax.minorticks_off()
            ax.set_title(f"{title_of(data)}: {name}", loc="left", color=theme.ink, fontsize=SIZES["note"])
            name_axes(
                ax, theme, "Calibration samples" if data == panels[-1] else "", "Test ECE, %" if ax is line[0] else ""
            )
        line[0].set_ylim(bottom=0)
    figure.legend(
        list(handles.values()), list(handles), frameon=False, fontsize=SIZES["note"], labelcolor=theme.ink,
        loc="outside upper left", ncols=6, handlelength=3,
    )  # fmt: skip
    save(figure, path)


def _look(method: str, theme: "Theme") -> tuple[str, str]:
    """Return colour and line of a loss: a colour for each family, another line where it is not the paper's."""
    _, family, _, form = order(method)
    colour = {"LS": theme.under, "L1": theme.over, "Focal": theme.muted}.get(family, theme.ink)
    return colour, "--" if form else "-" if method == "CE" or family in FAMILIES else ":"


def _points(runs: Runs, name: str) -> dict[int, list[float]]:
    """Return the ECE in percent of every draw and seed by the number of calibration samples, at last of all."""
    points: dict[int, list[float]] = {}
    for run in runs.values():
        for size, errors in _sizes(run, name).items():
            points.setdefault(int(size), []).extend(100 * error for error in errors)
        if _sizes(run, name):
            points.setdefault(run["calibration_samples"], []).append(100 * run["rows"][name]["ece"][0])
    return dict(sorted(points.items()))

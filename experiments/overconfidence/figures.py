"""Reliability (Fig. 2), calibration samples (Fig. 3), logits by learned epoch (Fig. 5): numbers, text and figures."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.diagrams import draw_learned, draw_reliability
from experiments.numbers import Estimate, Number, minus, pooled
from experiments.overconfidence.pools import DATA, Groups, Runs, order, title_of
from experiments.page import claims, save
from experiments.published import Finding

__all__ = ["figure_numbers", "figure_sections"]

MAPS = ("TS (grid)", "HB", "TS", "HB (equal mass)")  # the first two are the paper's
ROWS = {"none": "uncalibrated", "TS (grid)": "after TS (grid)"}
RELIABILITY = """
## Reliability

Fig. 2 of the paper: accuracy by confidence in 15 bins, of the first seed that has them, before and after the paper's
temperature. A dot's area is its share of the test samples. The paper says that regularised networks are overconfident
where confidence is low, whether a temperature is used or not: the claims are of all bins below one half together.

![Accuracy by confidence of each loss, before and after a temperature](images/overconfidence-reliability.png)

{claims}"""
SIZES = """
## The number of calibration samples

Fig. 3 of the paper: the test ECE after a map fitted on so many calibration samples. Lines are means over seeds and five
draws, the areas reach from the lowest to the highest; where a line ends, all calibration samples were used.

![Test ECE by the number of calibration samples, by map and loss](images/overconfidence-sizes.png)

{claims}"""
LEARNED = """
## Logits by the epoch of learning

Fig. 5 of the paper: the largest logits of the unaugmented training samples at the end, by the epoch since which each is
classified correctly; of one seed. The rank correlation of the two tells whether the network still separates samples
that it learned early from those that it learned late, the standard deviation how far the logits spread.

![Histograms of the largest logits by learned epoch](images/overconfidence-learned.png)

{claims}"""


def figure_numbers(groups: Groups) -> dict[str, Number]:
    """Return what the paper's claims about Fig. 2, 3 and 5 are held against.

    Args:
        groups: Numbers of the records.
    """
    found: dict[str, Number] = {}
    for (data, method), runs in groups.items():
        plain = groups.get((data, "CE"), {}) if method != "CE" else {}
        for row in ROWS:
            if gaps := [_gap_below_half(run["diagrams"][row]) for run in runs.values() if "diagrams" in run]:
                found[f"{data}.{method}.{row}.gap below half"] = pooled(gaps)
        found |= _size_numbers(data, method, runs, plain)
        for what in ("correlation", "spread"):
            ours, theirs = (_learned(each, what) for each in (runs, plain))
            if ours:
                found[f"{data}.{method}.learned.{what}"] = pooled(list(ours.values()))
            if shared := sorted(ours.keys() & theirs.keys()):
                number = pooled([minus(ours[seed], theirs[seed]) for seed in shared])
                about = "1 seed, training samples" if len(shared) == 1 else f"{len(shared)} seeds"
                found[f"{data}.{method} - CE.learned.{what}"] = number._replace(about=about)
    return found


def _gap_below_half(bins: Sequence[Sequence[float]]) -> Estimate:
    """Return by how much confidence exceeds accuracy in bins below one half, in percent, with a binomial interval."""
    low = [each for each in bins if each[1] < 0.5]
    n = sum(count for count, _, _ in low)
    if not n:
        return 0.0, -100.0, 100.0
    gap = 100 * sum(count * (confidence - accuracy) for count, confidence, accuracy in low) / n
    half = 196 * math.sqrt(sum(count * accuracy * (1 - accuracy) for count, _, accuracy in low)) / n
    return gap, gap - half, gap + half


def _size_numbers(data: str, method: str, runs: Runs, plain: Runs) -> dict[str, Number]:
    """Return the ECE by number of calibration samples beside the cross-entropy's, and of HB beside TS, in percent."""
    found: dict[str, Number] = {}
    for name in MAPS:
        for size in dict.fromkeys(size for run in runs.values() for size in _sizes(run, name)):
            ours = {seed: _draws(run, name, size) for seed, run in runs.items() if size in _sizes(run, name)}
            theirs = {seed: _draws(run, name, size) for seed, run in plain.items() if size in _sizes(run, name)}
            place = f"{size} samples.ece"
            found[f"{data}.{method}.{name}.{place}"] = _pooled(list(ours.values()))
            if shared := sorted(ours.keys() & theirs.keys()):
                found[f"{data}.{method} - CE.{name}.{place}"] = _pooled(
                    [[minus(*pair) for pair in zip(ours[seed], theirs[seed], strict=True)] for seed in shared]
                )
            if name == "HB":
                others = {seed: _draws(runs[seed], "TS (grid)", size) for seed in ours}
                found[f"{data}.{method}.HB - TS (grid).{place}"] = _pooled(
                    [[minus(*pair) for pair in zip(ours[seed], others[seed], strict=True)] for seed in ours]
                )
    return found


def _sizes(run: Mapping[str, Any], name: str) -> Mapping[str, list[float]]:
    sizes: Mapping[str, list[float]] = run.get("sizes", {}).get(name, {})
    return sizes


def _draws(run: Mapping[str, Any], name: str, size: str) -> list[Estimate]:
    """Return the ECE of each draw in percent, with the error that the test samples give that of all samples."""
    value, low, high = (100 * end for end in run["rows"][name]["ece"])
    return [(100 * each, 100 * each + low - value, 100 * each + high - value) for each in _sizes(run, name)[size]]


def _pooled(draws: Sequence[Sequence[Estimate]]) -> Number:
    """Return the mean; its interval has the error of the test samples and of the draws, or of the seeds' means."""
    if len(draws) == 1:
        return pooled(draws[0])._replace(about=f"1 seed, {len(draws[0])} draws and the test samples")
    low, middle, high = 1, 0, 2
    means = [tuple(fmean(each[end] for each in one) for end in (middle, low, high)) for one in draws]
    return pooled(means)


def _learned(runs: Runs, what: str) -> dict[int, Estimate]:
    return {seed: tuple(run["learned"][what]) for seed, run in runs.items() if "learned" in run}


def figure_sections(groups: Groups, entries: Sequence[Finding], images: Path | None) -> list[str]:
    """Return the sections of Fig. 2, 3 and 5 that traced networks give, and draw them where a folder is given.

    Args:
        groups: Numbers of the records.
        entries: The paper's claims about them.
        images: Folder of the figures; None draws none.
    """
    traced = {place: seed for place, runs in groups.items() for seed, run in sorted(runs.items()) if "learned" in run}
    traced = {
        place: traced[place]
        for place in sorted(traced, key=lambda place: (list(DATA).index(place[0]), order(place[1])))
    }
    if not traced:
        return []
    if images is not None:
        shown = {place: groups[place][seed] for place, seed in traced.items()}
        columns = max(sum(data == name for name, _ in shown) for data, _ in shown)
        panels = {
            f"{title_of(data)}, {words}\n{method}": shown[data, method]["diagrams"][row]
            for data in dict.fromkeys(data for data, _ in shown)
            for row, words in ROWS.items()
            for method in (method for name, method in shown if name == data)
        }
        draw_reliability(panels, images / "overconfidence-reliability.png", columns=columns)
        learned = {f"{title_of(data)}\n{method}": run["learned"] for (data, method), run in shown.items()}
        draw_learned(learned, images / "overconfidence-learned.png", columns=columns)
        _draw_sizes({place: groups[place] for place in traced}, images / "overconfidence-sizes.png")
    ends = {RELIABILITY: (".gap below half",), SIZES: (" samples.ece",), LEARNED: (".correlation", ".spread")}
    return [
        text.format(claims=claims([each for each in entries if each.published.id.endswith(end)], ""))
        for text, end in ends.items()
    ]


def _draw_sizes(groups: Groups, path: Path) -> None:
    from calibrant.plots.layout import SIZES, bare_axes, name_axes, new_figure, theme_named

    theme = theme_named("light")
    panels = list(dict.fromkeys(data for data, _ in groups))
    figure = new_figure(theme, width=10.4, height=0.6 + 2.7 * len(panels))
    axes = figure.subplots(len(panels), len(MAPS), squeeze=False, sharey="row", sharex="row")
    methods = sorted(dict.fromkeys(method for _, method in groups), key=order)
    colours = (theme.ink, theme.under, theme.over, theme.muted)
    looks = {method: (colours[place % 4], ("-", "--", ":")[place // 4 % 3]) for place, method in enumerate(methods)}
    handles: dict[str, Any] = {}
    for line, data in zip(axes, panels, strict=True):
        for ax, name in zip(line, MAPS, strict=True):
            bare_axes(ax, theme, lines=True)
            for method in (method for where, method in groups if where == data):
                points = _points(groups[data, method], name)
                colour, dash = looks[method]
                (handles[method],) = ax.plot(
                    list(points), [fmean(each) for each in points.values()], color=colour, linestyle=dash, linewidth=1.6
                )
                low, high = ([end(each) for each in points.values()] for end in (min, max))
                ax.fill_between(list(points), low, high, color=colour, alpha=0.1, linewidth=0)
            ax.set_xscale("log")
            ticks = sorted({size for method in methods for size in _points(groups.get((data, method), {}), name)})
            ax.set_xticks(ticks[::2], [f"{size:,}" for size in ticks[::2]])
            ax.minorticks_off()
            ax.set_title(f"{title_of(data)}: {name}", loc="left", color=theme.ink, fontsize=SIZES["note"])
            name_axes(
                ax, theme, "Calibration samples" if data == panels[-1] else "", "Test ECE, %" if ax is line[0] else ""
            )
        line[0].set_ylim(bottom=0)
    figure.legend(
        [handles[method] for method in methods], methods, frameon=False, fontsize=SIZES["note"], labelcolor=theme.ink,
        loc="outside upper left", ncols=min(len(methods), 6), handlelength=3,
    )  # fmt: skip
    save(figure, path)


def _points(runs: Runs, name: str) -> dict[int, list[float]]:
    """Return the ECE in percent of every draw and seed by the number of calibration samples, at last of all."""
    points: dict[int, list[float]] = {}
    for run in runs.values():
        for size, errors in _sizes(run, name).items():
            points.setdefault(int(size), []).extend(100 * each for each in errors)
        if _sizes(run, name):
            points.setdefault(run["calibration_samples"], []).append(100 * run["rows"][name]["ece"][0])
    return dict(sorted(points.items()))

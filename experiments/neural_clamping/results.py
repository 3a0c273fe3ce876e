"""What the records of the Neural Clamping study say: numbers to check, and the page with its figures."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from calibrant.clamping import GAMMA_POOL
from experiments.diagrams import draw_reliability
from experiments.neural_clamping.sweeps import GammaSweep, StartSpread
from experiments.numbers import Number, over_seeds, pooled
from experiments.page import claims, interval, joined, number_by_number, provenance, save
from experiments.published import Finding, Published, findings, read_published
from experiments.records import Record

__all__ = ["numbers_of", "page_of"]

PUBLISHED = Path(__file__).parent / "published.toml"
# Names of the rows, as in the paper's Table 4; the last is not there.
ROWS = {
    "none": "uncalibrated",
    "TS": "temperature scaling",
    "TS (focal)": "temperature scaling, focal loss (γ = 1)",
    "TS (grid)": "temperature by grid search (ECE)",
    "δ* only": "δ* without T*",
    "T* only": "T* without δ*",
    "joint": "**Neural Clamping**",
    "TS on δ*": "temperature scaling at δ*",
}
SCALES = {"accuracy": 100, "entropy": 1, "ece": 100, "ace": 100, "sce": 100, "nll": 1, "auroc": 100}
HEADINGS = {
    "accuracy": "accuracy",
    "entropy": "entropy",
    "ece": "ECE",
    "ace": "AECE",
    "sce": "SCE",
    "nll": "log-loss",
    "auroc": "AUROC",
}
DIGITS = {"accuracy": 2, "entropy": 4, "ece": 2, "ace": 2, "sce": 4, "nll": 4, "auroc": 2}


def numbers_of(records: Sequence[Record]) -> dict[str, Number]:
    """Return every number and difference that the paper's are held against.

    Args:
        records: Successful ones of one network.
    """
    numbers: dict[str, Number] = {}
    for one in _only(records, method="baselines"):
        for name, scale in SCALES.items():
            for row, entry in one["rows"].items():
                numbers[f"table4.{row}.{name}"] = _pooled([entry["metrics"][name]], scale)
            numbers[f"table4.TS (focal) - TS.{name}"] = _difference([one], "TS (focal) - TS", name)
    ce, chosen = _fits(records, 0.0), _chosen(records)
    for prefix, some in (("table4", _fits(records, 1.0)), ("ce", ce), ("chosen", chosen)):
        numbers |= _numbers_of_fits(prefix, some)
    for name in HEADINGS:
        numbers |= _paired(f"fig2.chosen - ce.{name}", ce, chosen, name)
        numbers |= _paired(f"fig2.focal - ce.{name}", ce, _fits(records, 1.0), name)
        numbers |= _numbers_of_starts(_fits(records, 1.0), _fits(records, 1.0, start="data-driven"), name)
        for one in _only(records, method="efficient"):
            label = f"efficient.{one['eta']}.{one['images']}"
            numbers[f"{label}.{name}"] = _difference([one], "efficient - TS", name)
    return numbers


def _numbers_of_fits(prefix: str, fits: Sequence[dict[str, Any]]) -> dict[str, Number]:
    if not fits:
        return {}
    numbers = {f"{prefix}.{name}": over_seeds([fit[name] for fit in fits]) for name in ("T", "norm")}
    for name, scale in SCALES.items():
        for row in fits[0]["rows"]:
            numbers[f"{prefix}.{row}.{name}"] = _pooled([fit["rows"][row]["metrics"][name] for fit in fits], scale)
        for pair in fits[0]["differences"]:
            numbers[f"{prefix}.{pair}.{name}"] = _difference(fits, pair, name)
    return numbers


def _numbers_of_starts(
    random: Sequence[dict[str, Any]], driven: Sequence[dict[str, Any]], name: str
) -> dict[str, Number]:
    if min(len(random), len(driven)) < 2:
        return {}
    first, second = (stdev(fit["rows"]["joint"]["metrics"][name][0] for fit in fits) for fits in (driven, random))
    ratio = _ratio_of_spreads(first, second, len(driven), len(random))
    return {f"fig3.spread.{name}": ratio} | _paired(f"fig3.driven - random.{name}", random, driven, name)


def _paired(
    id_: str, first: Sequence[dict[str, Any]], second: Sequence[dict[str, Any]], name: str
) -> dict[str, Number]:
    """Return the second fits' joint models minus the first's, seed by seed; nothing where they share no seed."""
    by_seed = [{fit["seed"]: fit["rows"]["joint"]["metrics"][name][0] for fit in fits} for fits in (first, second)]
    shared = sorted(by_seed[0].keys() & by_seed[1].keys())
    return (
        {id_: over_seeds([SCALES[name] * (by_seed[1][seed] - by_seed[0][seed]) for seed in shared])} if shared else {}
    )


def page_of(records: Sequence[Record], *, images: Path | None) -> str:
    """Return the page, and draw its figures where a folder is given.

    Args:
        records: Successful ones of one network.
        images: Folder of the figures; None draws none.
    """
    numbers = numbers_of(records)
    entries = findings(read_published(PUBLISHED), numbers) if PUBLISHED.exists() else []
    parts: list[Callable[[], str]] = [
        lambda: _introduction(records),
        lambda: claims(entries),
        lambda: _ablation(numbers, entries),
        lambda: _sweep(records, images),
        lambda: _starts(records, images),
        lambda: _bins(records, images),
        lambda: _reliability(records, images),
        lambda: _efficient(records, numbers),
        lambda: number_by_number(entries),
    ]
    return joined([part() for part in parts])


# The parts of the page.


def _introduction(records: Sequence[Record]) -> str:
    baselines = _only(records, method="baselines")
    sizes = baselines[0]["images"] if baselines else {"calibration": 0, "test": 0}
    fits = [record for record in records if record["cell"]["method"] == "clamping"]
    seconds = [record["numbers"]["seconds"] for record in fits if "seconds" in record["numbers"]]
    network = {"resnet110": "ResNet-110 on CIFAR-100", "digits-cnn": "small network on digits"}[
        records[0]["cell"]["network"]
    ]
    typical = f"{sorted(seconds)[len(seconds) // 2]:.0f}" if seconds else "?"
    return f"""
# Neural Clamping's ablation, sweeps and appendices

<!-- Written by `python -m experiments table neural-clamping` from experiments/neural_clamping/records.jsonl. -->

Table 4, Fig. 2, Fig. 3 and appendices D to F of the paper, with one {network} of our own:
{sizes["calibration"]:,} images that it was not trained on calibrate, {sizes["test"]:,} test images evaluate.
Every fit is `NeuralClamping.paper_protocol()`: SGD at rate .001, batches of 512, 100 epochs, T from 1, λ a tenth of the
initial loss. Accuracy, ECE, adaptive ECE and AUROC in percent, classwise ECE (SCE) times 100, 15 bins unless
said otherwise.

Means over seeds have a 95 % interval by Student's t. A difference to temperature scaling also has the error of the test
images (paired bootstrap) in its interval. A fit took {typical} s beside others. {provenance(records)}
"""


def _ablation(numbers: dict[str, Number], entries: Sequence[Finding]) -> str:
    theirs = {entry.published.id: entry.published.value for entry in entries if isinstance(entry.published, Published)}
    lines = [
        "## Table 4: which part does it",
        "",
        f"| | {' | '.join(HEADINGS.values())} | the paper's: accuracy, entropy, ECE, AECE, SCE |",
        "|---" * (len(HEADINGS) + 2) + "|",
    ]
    for row, title in ROWS.items():
        if f"table4.{row}.ece" not in numbers:
            continue
        cells = [interval(numbers[f"table4.{row}.{name}"], DIGITS[name]) for name in HEADINGS]
        known = [f"{theirs[key]:g}" for name in HEADINGS if (key := f"table4.{row}.{name}") in theirs]
        lines.append(f"| {title} | {' | '.join(cells)} | {', '.join(known)} |")
    pairs = {
        "joint - TS": "Neural Clamping to temperature scaling: what the paper compares; T differs as well as δ",
        "TS on δ* - TS": "temperature scaling at δ* to temperature scaling: what δ alone brings",
        "joint - T* only": "Neural Clamping to T* without δ*",
    }
    lines += ["", "Differences:", "", f"| | {' | '.join(f'Δ {name}' for name in HEADINGS.values())} |"]
    lines.append("|---" * (len(HEADINGS) + 1) + "|")
    for prefix, words in (("table4", "γ = 1"), ("ce", "γ = 0"), ("chosen", "γ of the lowest calibration ECE")):
        for pair, title in pairs.items():
            if f"{prefix}.{pair}.ece" in numbers:
                cells = [interval(numbers[f"{prefix}.{pair}.{name}"], DIGITS[name], signed=True) for name in HEADINGS]
                lines.append(f"| {words}: {title} | {' | '.join(cells)} |")
    reached = [
        f"γ {words}: T* {interval(numbers[f'{prefix}.T'], 3)}, ‖δ*‖ {interval(numbers[f'{prefix}.norm'], 3)}"
        for prefix, words in (("table4", "= 1"), ("ce", "= 0"), ("chosen", "by calibration ECE"))
        if f"{prefix}.T" in numbers
    ]
    return "\n".join([*lines, "", "; ".join(reached) + "."])


def _sweep(records: Sequence[Record], images: Path | None) -> str:
    gammas = sorted({record["cell"]["gamma"] for record in records if record["cell"]["method"] == "clamping"})
    by_gamma = {gamma: fits for gamma in gammas if (fits := _fits(records, gamma))}
    if len(by_gamma) < 2:
        return ""
    # Of other seeds some γ are missing: means over different seeds would jump from one γ to the next.
    whole = set.intersection(*({fit["seed"] for fit in fits} for fits in by_gamma.values()))
    by_gamma = {gamma: [fit for fit in fits if fit["seed"] in whole] for gamma, fits in by_gamma.items()}
    if not whole:
        return ""
    n = max(len(fits) for fits in by_gamma.values())
    columns = ["γ", "test ECE", "test ECE, T refitted", "calibration ECE", "objective", "entropy", "log-loss"]
    columns += ["accuracy", "T", "‖δ‖"]
    lines = [
        f"## Fig. 2: γ from {min(by_gamma):g} to {max(by_gamma):g}",
        "",
        f"Random start; the {n} of the seeds for which every γ was fitted{', mean ± standard deviation' * (n > 1)}.",
        "",
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
    ]
    for gamma, fits in by_gamma.items():
        joint = [fit["rows"]["joint"]["metrics"] for fit in fits]
        cells = [
            _plain_spread([100 * entry["ece"][0] for entry in joint], 2),
            _plain_spread([100 * fit["rows"]["TS on δ*"]["metrics"]["ece"][0] for fit in fits], 2),
            _plain_spread([100 * fit["calibration"]["ece"] for fit in fits], 2),
            _plain_spread([fit["objective"] for fit in fits], 4),
            _plain_spread([entry["entropy"][0] for entry in joint], 3),
            _plain_spread([entry["nll"][0] for entry in joint], 4),
            _plain_spread([100 * entry["accuracy"][0] for entry in joint], 2),
            _plain_spread([fit["T"] for fit in fits], 3),
            _plain_spread([fit["norm"] for fit in fits], 2),
        ]
        lines.append(f"| {gamma:g} | {' | '.join(cells)} |")
    chosen = _chosen(records)
    if chosen:
        picked = ", ".join(f"{fit['gamma']:g}" for fit in chosen)
        lines += ["", f"The lowest calibration ECE, the paper's rule, chooses γ = {picked} (one per seed)."]
    lines += ["", "![Error, objective and entropy over γ](images/neural-clamping-gamma.png)"]
    if images is not None:
        _draw_sweep(by_gamma, records, images / "neural-clamping-gamma.png")
    return "\n".join(lines)


def _starts(records: Sequence[Record], images: Path | None) -> str:
    starts = {start: _fits(records, 1.0, start=start) for start in ("random", "data-driven")}
    if not all(len(fits) > 1 for fits in starts.values()):
        return ""
    names = ("entropy", "ece", "ace", "sce", "nll", "accuracy")
    lines = [
        "## Fig. 3: random against data-driven start",
        "",
        f"γ = 1; mean ± standard deviation over {' and '.join(str(len(fits)) for fits in starts.values())} seeds.",
        "",
        f"| start | {' | '.join(HEADINGS[name] for name in names)} | T | ‖δ‖ |",
        "|---" * (len(names) + 3) + "|",
    ]
    for start, fits in starts.items():
        cells = [
            _plain_spread([SCALES[name] * fit["rows"]["joint"]["metrics"][name][0] for fit in fits], DIGITS[name])
            for name in names
        ]
        cells += [_plain_spread([fit[name] for fit in fits], 3) for name in ("T", "norm")]
        lines.append(f"| {start} | {' | '.join(cells)} |")
    lines += ["", "![Spread over seeds of both starts](images/neural-clamping-starts.png)"]
    if images is not None:
        _draw_starts(starts, records, images / "neural-clamping-starts.png")
    return "\n".join(lines)


def _bins(records: Sequence[Record], images: Path | None) -> str:
    rows = _rows_by_name(records)
    if "joint" not in rows or "TS" not in rows:
        return ""
    bins = sorted(rows["TS"][0]["bins"], key=int)
    lines = ["## Appendix D: other numbers of bins", ""]
    for place, name in enumerate(("ECE", "AECE", "SCE")):
        lines += [f"| {name} with bins: | {' | '.join(bins)} |", "|---" * (len(bins) + 1) + "|"]
        for row, title in ROWS.items():
            if row in rows:
                cells = [
                    _plain_spread([100 * one["bins"][n][place] for one in rows[row]], 3 if place == 2 else 2)
                    for n in bins
                ]
                lines.append(f"| {title} | {' | '.join(cells)} |")
        lines.append("")
    lines += ["![ECE against the number of bins](images/neural-clamping-bins.png)"]
    if images is not None:
        _draw_bins(rows, bins, images / "neural-clamping-bins.png")
    return "\n".join(lines)


def _reliability(records: Sequence[Record], images: Path | None) -> str:
    rows = _rows_by_name(records)
    if "joint" not in rows or "none" not in rows:
        return ""
    if images is not None:
        names = {"none": "uncalibrated", "TS": "temperature scaling", "joint": "Neural Clamping"}
        shown = {
            f"{names[row]}\nECE {100 * rows[row][0]['metrics']['ece'][0]:.2f} %": rows[row][0]
            for row in names
            if row in rows
        }
        panels = {title: one["reliability"] for title, one in shown.items()}
        draw_reliability(panels, images / "neural-clamping-reliability.png")
    return (
        "## Appendix E: reliability\n\n"
        "Mean confidence and accuracy of 15 bins; of Neural Clamping the first seed. A dot's area shows its share of\n"
        "the images.\n\n"
        "![Reliability before and after calibration](images/neural-clamping-reliability.png)"
    )


def _efficient(records: Sequence[Record], numbers: dict[str, Number]) -> str:
    results = _only(records, method="efficient")
    if not results:
        return ""
    baselines = _only(records, method="baselines")
    lines = [
        "## Appendix F: the efficient variant",
        "",
        "δ̃ of Theorem 3.2 as it is, and T fitted behind it. `epsilon` and `quantile` are not the paper's: they still",
        "move where every pixel is somewhere black and somewhere white, and the theorem's δ̃ is 0. Differences to",
        "temperature scaling on the same images.",
        "",
        "| η | images | share of δ̃ not 0 | ‖δ̃‖ | T | accuracy | Δ accuracy | Δ ECE | Δ log-loss | seconds |",
        "|---" * 10 + "|",
    ]
    for one in results:
        row, label = one["rows"]["efficient"], f"efficient.{one['eta']}.{one['images']}"
        lines.append(
            f"| {one['eta']} | {one['images']:,} | {100 * one['moved']:.1f} % | {one['norm']:.3f} | {row['T']:.3f} | "
            f"{100 * row['metrics']['accuracy'][0]:.2f} | {interval(numbers[f'{label}.accuracy'], 2, signed=True)} | "
            f"{interval(numbers[f'{label}.ece'], 2, signed=True)} | "
            f"{interval(numbers[f'{label}.nll'], 4, signed=True)} | {one['seconds']:.2f} |"
        )
    if baselines:
        fits = _fits(records, 1.0)
        whole = f", {mean(fit['seconds'] for fit in fits):.0f} s for the whole method (beside others)" if fits else ""
        lines += ["", f"Temperature scaling took {baselines[0]['seconds']['TS']:.2f} s with its forward pass{whole}."]
    return "\n".join(lines)


# Records and statistics.


def _only(records: Iterable[Record], **settings: object) -> list[dict[str, Any]]:
    """Return numbers joined with settings of the records whose cells have these settings."""
    return [
        record["cell"] | record["numbers"]
        for record in records
        if all(record["cell"].get(name) == value for name, value in settings.items())
    ]


def _fits(records: Sequence[Record], gamma: float, *, start: str = "random") -> list[dict[str, Any]]:
    """Return the fits of a γ that ended with a model, by seed."""
    results = [fit for fit in _only(records, method="clamping", gamma=gamma, start=start) if "rows" in fit]
    return sorted(results, key=lambda fit: fit["seed"])


def _chosen(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return, for each seed whose whole pool of γ was fitted, the fit that the paper's rule chooses."""
    fits = [fit for fit in _only(records, method="clamping", start="random") if "rows" in fit]
    results = []
    for seed in sorted({fit["seed"] for fit in fits}):
        own = [fit for fit in fits if fit["seed"] == seed]
        if {fit["gamma"] for fit in own} >= set(GAMMA_POOL):
            results.append(min(own, key=lambda fit: (fit["calibration"]["ece"], fit["gamma"])))
    return results


def _rows_by_name(records: Sequence[Record]) -> dict[str, list[dict[str, Any]]]:
    """Return each row of Table 4 with its entries, one per seed where it has seeds."""
    baselines, fits = _only(records, method="baselines"), _fits(records, 1.0)
    rows = {name: [entry] for name, entry in baselines[0]["rows"].items()} if baselines else {}
    for name in fits[0]["rows"] if fits else ():
        rows[name] = [fit["rows"][name] for fit in fits]
    return rows


def _difference(fits: Sequence[dict[str, Any]], pair: str, name: str) -> Number:
    return _pooled([fit["differences"][pair][name] for fit in fits], SCALES[name])


def _pooled(estimates: Sequence[Sequence[float]], scale: float) -> Number:
    return pooled([[scale * value for value in one[:3]] for one in estimates])


def _ratio_of_spreads(first: float, second: float, n_first: int, n_second: int) -> Number:
    """Return the natural logarithm of a ratio of standard deviations, with the usual normal approximation."""
    if not (first > 0 and second > 0):
        return Number(-math.inf if first < second else 0.0, math.nan, math.nan, "one of them is 0")
    value = math.log(first / second)
    half = 1.96 * math.sqrt(1 / (2 * (n_first - 1)) + 1 / (2 * (n_second - 1)))
    return Number(value, value - half, value + half, f"{n_first} and {n_second} seeds")


def _plain_spread(values: Sequence[float], digits: int) -> str:
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{spread}"


# Figures.


def _draw_sweep(by_gamma: dict[float, list[dict[str, Any]]], records: Sequence[Record], path: Path) -> None:
    from experiments.neural_clamping.figures import plot_gamma_sweep

    def column(read: Callable[[dict[str, Any]], float]) -> torch.Tensor:
        return torch.tensor([mean(read(fit) for fit in fits) for fits in by_gamma.values()], dtype=torch.float64)

    def joint(name: str, place: int = 0) -> torch.Tensor:
        return column(lambda fit: fit["rows"]["joint"]["metrics"][name][place])

    sizes = _only(records, method="baselines")[0]["images"]
    diagram = GammaSweep(
        gamma=torch.tensor(list(by_gamma), dtype=torch.float64),
        ece=joint("ece"),
        ece_low=joint("ece", 1),
        ece_high=joint("ece", 2),
        ece_floor=column(lambda fit: fit["rows"]["joint"]["ece_floor"]),
        calibration_ece=column(lambda fit: fit["calibration"]["ece"]),
        objective=column(lambda fit: fit["objective"]),
        entropy=joint("entropy"),
        nll=joint("nll"),
        accuracy=joint("accuracy"),
        temperature=column(lambda fit: fit["T"]),
        norm=column(lambda fit: fit["norm"]),
        strength=column(lambda fit: fit["strength"]),
        n=sizes["test"],
        n_calibration=sizes["calibration"],
    )
    _save(plot_gamma_sweep(diagram), path)


def _draw_starts(starts: dict[str, list[dict[str, Any]]], records: Sequence[Record], path: Path) -> None:
    from experiments.neural_clamping.figures import plot_start_spread

    seeds = sorted(set.intersection(*({fit["seed"] for fit in fits} for fits in starts.values())))
    kept = {start: [fit for fit in fits if fit["seed"] in seeds] for start, fits in starts.items()}

    def grid(read: Callable[[dict[str, Any]], float]) -> torch.Tensor:
        return torch.tensor([[read(fit) for fit in fits] for fits in kept.values()], dtype=torch.float64)

    def value_of(fit: dict[str, Any], name: str) -> float:
        return fit["rows"]["joint"]["metrics"][name][0]

    names = ("entropy", "ece", "ace", "sce", "nll", "accuracy")
    diagram = StartSpread(
        starts=tuple(kept),
        seeds=tuple(seeds),
        values={name: grid(partial(value_of, name=name)) for name in names},
        temperature=grid(lambda fit: fit["T"]),
        norm=grid(lambda fit: fit["norm"]),
        n=_only(records, method="baselines")[0]["images"]["test"],
    )
    _save(plot_start_spread(diagram), path)


def _draw_bins(rows: dict[str, list[dict[str, Any]]], bins: Sequence[str], path: Path) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

    from calibrant.plots.layout import SIZES, name_axes, open_axes, title

    ax, theme = open_axes(None, "light", width=6.6, height=4.3)
    x = [int(bin_) for bin_ in bins]
    looks = {
        "TS": (theme.muted, "s", "temperature scaling"),
        "T* only": (theme.over, "^", "T* without δ*"),
        "joint": (theme.under, "o", "Neural Clamping"),
        "TS on δ*": (theme.ink, "D", "TS at δ*"),
    }
    for row, (colour, marker, label) in looks.items():
        if row in rows:
            values = [100 * mean(one["bins"][n][0] for one in rows[row]) for n in bins]
            ax.plot(x, values, color=colour, marker=marker, markersize=5, linewidth=1.8, label=label)
    ax.set(xscale="log", xlim=(x[0] / 1.08, x[-1] * 1.08))
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_locator(FixedLocator(x))
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.xaxis.set_minor_locator(NullLocator())
    ax.legend(frameon=False, fontsize=SIZES["note"], labelcolor=theme.ink)
    name_axes(ax, theme, "Number of bins", "ECE, %")
    title(ax, theme, "ECE against the number of bins", "test images; means over seeds, γ = 1")
    _save(ax.figure, path)


def _save(figure: Any, path: Path) -> None:
    save(figure, path)

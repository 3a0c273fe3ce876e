"""Writes ``docs/comparison.md`` from the records of the study."""

from collections import Counter, defaultdict
from statistics import mean, stdev
from typing import Any

__all__ = ["page_of"]

INTRODUCTION = """\
# All calibrators on one network

<!-- Written by `python -m experiments table comparison` from its records.jsonl. -->

A public DenseNet-BC-100's probabilities on the CIFAR-100 test set (accuracy 75.4 %, mean confidence 89.6 %), split
into halves by five seeds: 5,000 samples to fit on and 5,000 to evaluate, as with `calibrant compare calibration.npz
test.npz --methods all`. Numbers are means over the seeds; ± is the standard deviation over them. **Δ log-loss** is the
difference from temperature scaling on the same samples, and **wins / losses** counts the seeds in which the paired test
(corrected for the number of methods) finds it lower or higher. *changed* is the share of test samples whose predicted
class changes. Errors are in percent; *fit* is the processor time of a fit on one core, in seconds.

The five test halves overlap, so the seeds are not independent: ± shows how much the split matters, and is not a
standard error.

| method | log-loss | Δ log-loss | wins / losses | Brier | ECE | ACE | SCE | AUROC | AURC | accuracy | changed | fit |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
"""

READING = """\

**Reading.** Structured vector scaling beats a temperature on every split, and separates right from wrong a little
better; structured matrix scaling gains as much on average, but not on every split; order-preserving networks gain less
than half of that without changing a prediction. `auto`, which never saw the test halves, took {auto}. Methods of
the top label calibrate the confidence and leave the other classes overconfident: the lowest ECE is theirs, with a
log-loss .13 above that of a temperature; after a temperature that difference is gone. One-vs-rest methods fit a hundred
curves and pay for it. Choosing the temperature by ECE instead of log-loss gains hardly anything even in ECE. Matrix
scaling without a penalty has no optimum on 5,000 samples, or a useless one.
"""

SIZES = """\

## How many samples each method needs

Reduction of the log-loss on the test half (mean over the seeds; 0 without calibration, and below 0 a method does harm)
when fitted on the first so many calibration samples. "–": it could not be fitted on every split.
Recorded with an earlier version; on the first split the current one differs for `platt`, `beta` and `quadratic` with
500 samples or fewer.

"""


def page_of(records: list[dict[str, Any]]) -> str:
    """Return the whole page."""
    board = _by_method([record for record in records if record["kind"] == "board"])
    sizes = [record for record in records if record["kind"] == "size"]
    fitted = {method: cells for method, cells in board.items() if not any(cell["failure"] for cell in cells)}
    lines = [_row(method, fitted[method]) for method in sorted(fitted, key=lambda method: _mean(fitted[method], "nll"))]
    failures = [_failure(method, cells) for method, cells in board.items() if method not in fitted]
    reasons = ["\nNot fitted on every split:\n", *failures] if failures else []
    table = "\n".join([*lines, *reasons]) + "\n"
    picks = Counter(_pick(cell) for cell in board["auto"])
    auto = " and ".join(f"`{name}` on {count} of {len(board['auto'])} splits" for name, count in picks.most_common())
    return INTRODUCTION + table + READING.format(auto=auto) + SIZES + _size_table(sizes)


def _failure(method: str, cells: list[dict[str, Any]]) -> str:
    reasons = [cell["failure"] for cell in cells if cell["failure"]]
    fitted = [cell["values"]["nll"] for cell in cells if not cell["failure"]]
    others = f" Log-loss on the others: {', '.join(f'{value:.2f}' for value in fitted)}." if fitted else ""
    return f"- `{method}`, on {len(reasons)} of {len(cells)} splits: {reasons[0]}{others}"


def _pick(cell: dict[str, Any]) -> str:
    """The method that ``auto`` took, from the first note of its fit."""
    return str(cell["notes"][0].partition(": ")[2].partition(" (")[0])


def _by_method(records: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    by_method: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        by_method[record["method"]].append(record)
    return by_method


def _mean(cells: list[dict[str, Any]], metric: str) -> float:
    return mean(cell["values"][metric] for cell in cells)


def _row(method: str, cells: list[dict[str, Any]]) -> str:
    pairs = [cell["against"].get("temperature", {}).get("nll") for cell in cells]
    known = [pair for pair in pairs if pair is not None]
    gap = f"{mean(p[0] for p in known):+.4f} ± {stdev(p[0] for p in known):.4f}" if len(known) > 1 else ""
    wins = sum(p[0] < 0 and p[3] <= 0.05 for p in known)
    losses = sum(p[0] > 0 and p[3] <= 0.05 for p in known)
    percents = [f"{100 * _mean(cells, name):.2f}" for name in ("ece", "ace", "sce")]
    columns = [
        f"`{method}`",
        f"{_mean(cells, 'nll'):.4f}",
        gap,
        f"{wins} / {losses}" if known else "",
        f"{_mean(cells, 'brier'):.4f}",
        *percents,
        f"{_mean(cells, 'auroc'):.4f}",
        f"{_mean(cells, 'aurc'):.4f}",
        f"{100 * _mean(cells, 'accuracy'):.2f}",
        f"{100 * mean(cell['changed'] for cell in cells):.1f} %",
        f"{mean(cell['seconds'] for cell in cells):.2f}",
    ]
    return "| " + " | ".join(columns) + " |"


def _size_table(records: list[dict[str, Any]]) -> str:
    sizes = sorted({record["size"] for record in records})
    gains: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        if "gain" in record:
            gains[record["method"]][record["size"]].append(record["gain"])
    seeds = len({record["seed"] for record in records})
    rows = []
    for method in sorted(gains, key=lambda method: -mean(gains[method].get(sizes[-1], [-99.0]))):
        cells = [gains[method][size] for size in sizes]
        shown = [f"{mean(cell):+.3f}" if len(cell) == seeds else "–" for cell in cells]
        rows.append(f"| `{method}` | " + " | ".join(shown) + " |")
    heading = "| method | " + " | ".join(f"{size:,}" for size in sizes) + " |\n" + "|---" * (len(sizes) + 1) + "|\n"
    return heading + "\n".join(rows) + "\n"

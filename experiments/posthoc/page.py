"""Writes ``docs/comparison.md`` from the records of the study."""

from collections import defaultdict
from statistics import mean, stdev
from typing import Any

__all__ = ["page_of"]

INTRODUCTION = """\
# All calibrators on one network

<!-- Written by `python -m experiments table comparison` from its records.jsonl. -->

A public DenseNet-BC-100's probabilities on the CIFAR-100 test set (accuracy 75.4 %, mean confidence 89.6 %), dealt into
halves by five seeds: 5,000 rows calibrate, 5,000 judge, as `calibrant compare calibration.npz test.npz --methods all`
does. Numbers are means over the seeds; ± is the standard deviation over them. **Δ log-loss** is the difference to
temperature scaling on the same rows, and **wins / losses** counts the seeds in which the paired test (corrected for the
number of methods) calls it better or worse. *moved* is the share of test rows whose predicted class changes. Errors are
in percent.

The five test halves overlap, so the seeds are not independent: read ± as how much the split matters, not as a standard
error.

| method | log-loss | Δ log-loss | wins / losses | Brier | ECE | ACE | SCE | AUROC | AURC | accuracy | moved | fit, s |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
"""

READING = """\

**Reading.** Structured vector scaling beats a temperature on every split, by .0055 in log-loss, and separates right
from wrong a little better; structured matrix scaling gains as much on average, but not as surely; order-preserving
networks gain less than half of that without changing a prediction. `auto`, which never saw the test halves, took `svs`
four times and `sms` once. Methods of the top label mend the confidence and leave the rest of the row overconfident: the
lowest ECE is theirs, with a log-loss .13 above a temperature's; after a temperature that gap is gone. One-vs-rest
methods pay for having a hundred curves. Choosing the temperature by ECE instead of log-loss gains hardly anything even
in ECE. Matrix scaling without a penalty has no optimum on 5,000 rows. No method gives an infinite log-loss.
"""

SIZES = """\

## How many rows each method needs

Log-loss taken off the test half (mean over the seeds; doing nothing is 0, and below 0 a method does harm) when fitted
on the first so many calibration rows. "–": it could not be fitted (and said why).

"""


def page_of(records: list[dict[str, Any]]) -> str:
    """Return the whole page."""
    board = _by_method([record for record in records if record["kind"] == "board"])
    sizes = [record for record in records if record["kind"] == "size"]
    fitted = {method: cells for method, cells in board.items() if not any(cell["failure"] for cell in cells)}
    lines = [_row(method, fitted[method]) for method in sorted(fitted, key=lambda method: _mean(fitted[method], "nll"))]
    failures = [f"- `{method}`: {board[method][0]['failure']}" for method in board if method not in fitted]
    reasons = ["\nNot fitted:\n", *failures] if failures else []
    table = "\n".join([*lines, *reasons]) + "\n"
    return INTRODUCTION + table + READING + SIZES + _size_table(sizes)


def _by_method(records: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        found[record["method"]].append(record)
    return found


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
        told = [f"{mean(cell):+.3f}" if len(cell) == seeds else "–" for cell in cells]
        rows.append(f"| `{method}` | " + " | ".join(told) + " |")
    heading = "| method | " + " | ".join(f"{size:,}" for size in sizes) + " |\n" + "|---" * (len(sizes) + 1) + "|\n"
    return heading + "\n".join(rows) + "\n"

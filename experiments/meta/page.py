"""Writes ``docs/meta-study.md`` from the records of the study."""

from pathlib import Path
from statistics import mean, stdev
from typing import Any

__all__ = ["write_page"]

PAGE = Path(__file__).parents[2] / "docs" / "meta-study.md"

INTRODUCTION = """\
# Thirteen ways to train: raw, mended, and told apart

<!-- Written by experiments/meta/study.py from its records; edit that and page.py. -->

ResNet-18 on CIFAR-100, trained by `calibrant.training`: 40,000 images train, 5,000 tune the losses that are learned,
5,000 calibrate, 10,000 judge. Means ± standard deviations over seeds, in percent but for the log-loss; 15 bins. The
layout is that of Table 1 of *Towards Unbiased Calibration using Meta-Regularization*, with its numbers in italics.
"""

TITLES = {
    "ce": "cross-entropy",
    "ce (ts)": "cross-entropy, temperature scaling",
    "focal": "focal, γ = 1",
    "flsd": "FLSD-53",
    "ls-05": "label smoothing, .05",
    "ls-10": "label smoothing, .1",
    "mixup": "mixup, α = 1",
    "mmce": "MMCE",
    "inverse-focal": "inverse focal, γ = 2",
    "ce-dece": "CE-DECE (learned decay)",
    "ce-sece": "CE-SECE (learned decay)",
    "flg-dece": "FLγ-DECE (γ-Net)",
    "flg-sece": "FLγ-SECE (γ-Net)",
    "flg-sece-alone": "FLγ-SECE by eq. 2: no CE",
}
# Error, NLL, ECE, MCE, ACE, classwise ECE.
PUBLISHED = {
    "ce": "22.57, .997, 8.38, 23.25, 8.35, .233",
    "ce (ts)": "22.57, .959, 5.39, 13.45, 5.36, .208",
    "focal": "22.50, .900, 5.04, 12.45, 5.02, .203",
    "flsd": "22.66, .876, 5.96, 14.72, 5.96, .241",
    "ls-05": "21.81, 1.070, 8.11, 20.27, 8.11, .272",
    "ls-10": "22.24, 1.052, 4.75, 17.23, 4.78, .239",
    "mixup": "21.21, .917, 9.72, 16.01, 9.72, .315",
    "mmce": "22.49, 1.021, 8.71, 23.57, 8.67, .238",
    "ce-dece": "23.41, 1.148, 7.31, 22.57, 7.25, .241",
    "ce-sece": "23.45, 1.153, 7.67, 24.26, 7.61, .244",
    "flg-dece": "23.71, .888, 1.88, 8.27, 1.84, .195",
    "flg-sece": "23.69, .877, 1.94, 7.48, 1.94, .192",
}
COLUMNS = ("error", "nll", "ece", "mce", "ace", "sce")
HEADINGS = ["way", "error", "log-loss", "ECE", "MCE", "ACE", "classwise ECE", "AUROC", "T", "ECE at T", "paper"]


def write_page(records: list[dict[str, Any]], diagnosis: dict[str, Any]) -> None:
    """The whole page."""
    parts = [INTRODUCTION, _schedule(records), _table(records), _verdicts(diagnosis), _gammas(records)]
    PAGE.write_text("\n".join(part.strip("\n") + "\n" for part in parts if part), encoding="utf-8")


def _schedule(records: list[dict[str, Any]]) -> str:
    seeds = len({record["seed"] for record in records})
    first = records[0]
    return f"{first['epochs']} epochs in batches of {first['batch_size']}; {seeds} seeds."


def _table(records: list[dict[str, Any]]) -> str:
    lines = [f"| {' | '.join(HEADINGS)} |", "|---" * len(HEADINGS) + "|"]
    for name, title in TITLES.items():
        way = "ce" if name == "ce (ts)" else name
        runs = [record for record in records if record["run"] == way]
        if not runs:
            continue
        measured = [record["ts" if name == "ce (ts)" else "none"] for record in runs]
        cells = [_spread([_number(each, column) for each in measured], column) for column in COLUMNS]
        cells += [_spread([100 * each["auroc"] for each in measured], "auroc")]
        cells += [_spread([run["T"] for run in runs], "T"), _spread([100 * run["ts"]["ece"] for run in runs], "ece")]
        published = f"*{PUBLISHED[name]}*" if name in PUBLISHED else ""
        lines.append(f"| {title} | {' | '.join(cells)} | {published} |")
    return "\n".join(lines)


def _verdicts(diagnosis: dict[str, Any]) -> str:
    said = [f"- {verdict['words']}" for verdict in diagnosis["verdicts"]]
    return "\n## What `calibrant diagnose` says\n\n" + "\n".join(said)


def _gammas(records: list[dict[str, Any]]) -> str:
    lines = [
        "\n## What became of γ\n",
        "| way | seed | mean γ ± spread on calibration rows, over the epochs |",
        "|---|---|---|",
    ]
    for record in records:
        told = [each for each in record["learned"] if "gamma_mean" in each]
        if told:
            curve = ", ".join(f"{each['gamma_mean']:.2f} ± {each['gamma_std']:.2f} ({each['epoch']})" for each in told)
            lines.append(f"| {TITLES[record['run']]} | {record['seed']} | {curve} |")
    return "\n".join(lines)


def _number(measured: dict[str, float], column: str) -> float:
    if column == "error":
        return 100 * (1 - measured["accuracy"])
    return measured[column] if column == "nll" else 100 * measured[column]


def _spread(values: list[float], column: str) -> str:
    digits = 3 if column in {"nll", "sce"} else 2
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{spread}"

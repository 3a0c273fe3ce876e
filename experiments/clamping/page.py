"""Writes ``docs/clamping-study.md`` from the records of the study."""

from statistics import mean, stdev
from typing import Any

from experiments.page import joined

__all__ = ["page_of"]

INTRODUCTION = """\
# Neural Clamping on trained networks: when does δ help?

<!-- Written by `python -m experiments table clamping` from its records.jsonl. -->

Networks trained by `calibrant.training`, calibrated on samples that they were not trained on, and evaluated on others.
Numbers are means ± standard deviations over the draws or seeds named. Accuracy, ECE and adaptive ECE in percent,
classwise ECE (SCE) times 100, all with 15 bins. The last columns compare with temperature scaling on the same samples:
the mean change in log-loss, and in how many draws log-loss, ECE and accuracy are significantly better and worse (+ and
−; paired bootstrap, p < .05, not corrected for the number of comparisons). Where the paper has a network of that kind,
its numbers are in the last column.
"""

TITLES = {
    "none": "uncalibrated",
    "ts": "temperature scaling",
    "ts-grid": "temperature by grid search (ECE)",
    "vs": "vector scaling",
    "ms": "matrix scaling",
    "ms-odir": "MS-ODIR",
    "dir-odir": "Dir-ODIR",
    "svs": "SVS",
    "sms": "SMS",
    "nc": "**Neural Clamping, default**",
    "nc-low-frequencies": "Neural Clamping, 4 x 4 frequencies",
    "nc-channel": "Neural Clamping, one number per channel",
    "nc-augmented": "Neural Clamping, augmented samples",
    "nc-svs": "Neural Clamping, head SVS",
    "nc-tenth": "exact, λ a tenth of the loss (CE)",
    "nc-focal": "exact, λ a tenth of the loss (FL)",
    "paper-ce": "as in the paper (CE)",
    "paper-focal": "as in the paper (FL)",
    "paper-data-driven": "as in the paper (FL), data-driven start",
    "toolkit": "as in the authors' toolkit",
}
# The draws or networks of each part, and the fits that need the network itself; study.py runs these.
_OURS = ("nc", "nc-low-frequencies", "nc-focal", "nc-tenth")
_FEW = ("nc", "nc-low-frequencies")
_MORE = ("nc-channel", "nc-augmented", "nc-svs")
_PAPER = ("paper-focal", "paper-ce", "toolkit")
PLANNED: dict[str, tuple[range, tuple[str, ...]]] = {
    "resnet110": (range(5), (*_OURS, "paper-focal", "paper-ce")),
    "resnet32": (range(5), (*_FEW, *_MORE)),
    "resnet32-10k": (range(5), _FEW),
    "resnet32-pattern": (range(5), _FEW),
    "blood": (range(5), (*_OURS, *_PAPER, *_MORE, "paper-data-driven")),
    "digits-few": (range(5), (*_OURS, *_PAPER, "nc-svs")),
    "digits-many": (range(5), (*_OURS, *_PAPER, "nc-svs")),
    "blood-few": (range(3), _FEW),
}
HEADINGS = {
    "resnet110": "ResNet-110 on CIFAR-100: {n} draws of 5,000 from 15,000 unseen images",
    "blood": "ResNet-32 on blood cells: {n} networks, 1,708 images calibrate, 3,419 evaluate",
    "resnet32": "ResNet-32 on CIFAR-100: {n} draws of 5,000 from 15,000 unseen images",
    "resnet32-10k": "ResNet-32 on CIFAR-100: {n} draw of 10,000",
    "resnet32-pattern": "ResNet-32 on CIFAR-100 with the same noise on every image: {n} draw of 5,000",
    "blood-few": "ResNet-20 on 600 blood cells: {n} networks, 5,000 others calibrate",
    "digits-few": "Small network on 100 digits: {n} networks, 1,000 others calibrate, 697 evaluate",
    "digits-many": "The same network on 1,000 digits: {n} networks, 400 others calibrate, 397 evaluate",
}
# Tables 1 and 2 of the paper: accuracy, entropy, ECE, AECE, SCE.
PUBLISHED = {
    "blood": {
        "none": "85.79, .2256, 5.77, 5.76, 1.700",
        "ts": "85.79, .3726, 1.77, 1.66, 1.107",
        "ts-grid": "85.79, .3684, 2.13, 1.68, 1.104",
        "vs": "85.79, .3653, 1.97, 1.94, .926",
        "ms": "85.79, .2984, 4.96, 4.86, 1.467",
        "ms-odir": "85.79, .3726, 1.94, 1.70, .910",
        "dir-odir": "85.79, .3748, 1.55, 1.71, .837",
        "paper-ce": "85.79, .3820, 1.54, 1.57, 1.110",
        "paper-focal": "85.82, .4204, 1.05, 1.19, 1.080",
    },
    "resnet110": {
        "none": "74.15, .4742, 10.74, 10.71, .276",
        "ts": "74.15, .8991, 1.71, 1.63, .171",
        "ts-grid": "74.15, .9239, 1.35, 1.38, .172",
        "vs": "73.81, .8698, 2.29, 2.15, .195",
        "ms": "62.03, .1552, 31.85, 31.85, .684",
        "ms-odir": "74.07, .9035, 1.79, 1.75, .180",
        "dir-odir": "74.10, .9160, 1.36, 1.31, .178",
        "paper-ce": "74.17, .8928, 1.67, 1.63, .171",
        "paper-focal": "74.16, .9707, .89, 1.01, .175",
    },
}
COLUMNS = {"accuracy": 100, "entropy": 1, "ece": 100, "ace": 100, "sce": 100, "nll": 1}
LABELS = [
    "method",
    "accuracy",
    "entropy",
    "ECE",
    "AECE",
    "SCE",
    "log-loss",
    "T",
    "‖δ‖",
    "Δ log-loss",
    "log-loss",
    "ECE",
    "accuracy",
]

READINGS = {
    "resnet110": """
**Reading.** Here δ does not help. At no strength does it lower the log-loss of held-out samples by more than chance, so
the default result is δ = 0: temperature scaling. With the paper's λ, a tenth of the initial loss, δ is not 0, and on
other samples it has a higher log-loss than temperature scaling in every draw, and a lower accuracy. The focal variant's
lower ECE comes with a higher T; a temperature that is searched for the lowest ECE reaches the same. Maps of the logits
(SVS, SMS, MS-ODIR) lower the log-loss more than any δ. Matrix scaling without a penalty has no optimum here; the
paper's number is that of a descent that was stopped.
""",
    "blood": """
**Reading.** These networks are right on 98 % of images, the paper's on 86 %, so there is little left to calibrate. The
default keeps δ at or near 0, and is never significantly worse than temperature scaling; for one network it is better.
The paper's λ is far too small here: with δ (almost) every calibration image is predicted correctly, T falls below 1 or
has no optimum at all, and the log-loss on others rises. The data-driven start is not 0 on these images, whose pixels
are hardly ever black; from it the descent ends with a small δ and a T far above that of temperature scaling.
""",
    "resnet32": """
**Reading.** A free δ overfits 5,000 images: the default result is δ = 0. With few numbers to learn, 4 x 4 frequencies
or one per channel, cross-validation prefers a δ in most draws, and on other samples it lowers the log-loss by a few
thousandths; accuracy and ECE do not change. Augmented calibration images do not change the result of a free δ.
""",
    "resnet32-10k": """
**Reading.** Twice the images do not make a free δ worth its cost for this network either.
""",
    "resnet32-pattern": """
**Reading.** A check that the method does what it is made for. The same strong noise is added to every image, of the
calibration and the test set, as by a dirty lens; no network was trained with it. From 5,000 images δ learns to remove
most of it, on the others too: accuracy rises from 9 to 56 %, and the log-loss falls by more than half. The ECE is
higher than that of temperature scaling, which calibrates a network that is hardly better than chance: δ was fitted on
the same samples as T, and makes T too small for others. Where δ is that large, fit the head again on samples that δ has
not seen.
""",
    "blood-few": """
**Reading.** Here δ helps on real images. The network has seen 600 blood cells, and 5,000 others calibrate it: the
log-loss of test images falls for every network, significantly; accuracy and ECE do not change by more than chance.
Training on those 5,000 would of course do more: δ is for a network that cannot be trained any more.
""",
    "digits-few": """
**Reading.** Here δ helps: the log-loss falls by a quarter on samples that no part of the fit has seen, accuracy rises,
and all variants are better than temperature scaling, except the paper's descent with the cross-entropy, which diverges
for one network. The network was trained on 100 images and is calibrated on 1,000, from which δ learns what training
could not. A free δ gains more than a smooth one. The ECE does not change on average; for one of the five networks it is
higher, as it would be by chance in one of twenty comparisons.
""",
    "digits-many": """
**Reading.** The same network, trained on ten times as many digits, leaves nothing for δ to gain: the default is 0 or
nearly 0. Penalised as weakly as in the paper, with δ every calibration image is predicted correctly, so that T has no
optimum above 0, or a descent that is stopped ends on the way there, with a higher log-loss on other samples.
""",
}


def page_of(records: list[dict[str, Any]]) -> str:
    """Return the whole page."""
    parts = [INTRODUCTION]
    for part, heading in HEADINGS.items():
        mine = _whole_draws([record for record in records if record["part"] == part])
        if mine:
            seeds = len({record["seed"] for record in mine})
            parts += [f"\n## {heading.format(n=seeds)}\n", _table(part, mine), _not_run(part, records, len(mine))]
            parts.append(READINGS.get(part, ""))
    return joined(parts)


def _whole_draws(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of draws in which every method had its turn: means over different draws cannot be compared."""
    methods = {record["method"] for record in records}
    turns: dict[int, set[str]] = {}
    for record in records:
        turns.setdefault(record["seed"], set()).add(record["method"])
    return [record for record in records if turns[record["seed"]] == methods]


def _not_run(part: str, records: list[dict[str, Any]], shown: int) -> str:
    """Return what was planned for this part and not run, and what was run and is not in the table."""
    mine = [record for record in records if record["part"] == part]
    done = {(record["seed"], record["method"]) for record in mine}
    seeds, methods = PLANNED[part]
    missing: dict[tuple[int, ...], list[str]] = {}
    for method in methods:
        gaps = tuple(seed for seed in seeds if (seed, method) not in done)
        if gaps:
            missing.setdefault(gaps, []).append(TITLES[method].strip("*").removeprefix("Neural Clamping, "))
    if not missing:
        return ""
    planned = "; ".join(
        f"{len(gaps)} of {len(seeds)} draws of {' and '.join(names)}" for gaps, names in missing.items()
    )
    left_out = f" {len(mine) - shown} fits of draws that are not whole are in the records and not in the table."
    return f"**Planned and not run:** {planned}." + left_out * (len(mine) > shown)


def _table(part: str, records: list[dict[str, Any]]) -> str:
    published = PUBLISHED.get(part, {})
    headings = LABELS + ["the paper's: accuracy, entropy, ECE, AECE, SCE"] * bool(published)
    lines = [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    for method, title in TITLES.items():
        runs = _runs(method, records)
        if runs:
            cells = [title, *_cells(runs)] + [published.get(method, "")] * bool(published)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _runs(method: str, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if method in {"none", "ts"}:  # measured with every clamped network; once a seed suffices
        by_seed = {record["seed"]: record[method] for record in records if method in record}
        return [{"metrics": metrics} for metrics in by_seed.values()]
    return [record for record in records if record["method"] == method]


def _cells(runs: list[dict[str, Any]]) -> list[str]:
    fitted = [run for run in runs if "metrics" in run]
    if not fitted:
        return ["no optimum", *[""] * (len(LABELS) - 2)]
    cells = [_spread([run["metrics"][name] * scale for run in fitted], name) for name, scale in COLUMNS.items()]
    for name in ("T", "norm"):
        values = [run[name] for run in fitted if run.get(name) is not None]
        cells.append(_spread(values, "T") if values else "")
    compared = [run["to_ts"] for run in fitted if "to_ts" in run]
    if not compared:
        return [*cells, "", "", "", ""]
    failed = f" ({len(runs) - len(fitted)} without optimum)" * (len(runs) > len(fitted))
    counts = [_counts([run[name] for run in compared], up) for name, up in (("nll", -1), ("ece", -1), ("accuracy", 1))]
    return [*cells, f"{mean(run['nll'][0] for run in compared):+.4f}", counts[0] + failed, *counts[1:]]


def _counts(changes: list[list[float]], up: int) -> str:
    """In how many draws it is better and worse by more than chance; ``up`` is the sign of better."""
    better = sum(up * change > 0 and p < 0.05 for change, _, _, p in changes)
    worse = sum(up * change < 0 and p < 0.05 for change, _, _, p in changes)
    return f"+{better} −{worse} of {len(changes)}"


def _spread(values: list[float], name: str) -> str:
    digits = {"accuracy": 2, "ece": 2, "ace": 2, "T": 2}.get(name, 4 if name in {"entropy", "nll"} else 3)
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{spread}"

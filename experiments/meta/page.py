"""Writes ``docs/meta-study.md`` from the records of the study."""

from pathlib import Path
from statistics import mean, stdev
from typing import Any

__all__ = ["write_page"]

PAGE = Path(__file__).parents[2] / "docs" / "meta-study.md"

INTRODUCTION = """\
# Thirteen ways to train: as they are, after a map, and under shift

<!-- Written by experiments/meta/study.py from its records; edit page.py. -->
"""
ABOUT = """\
ResNet-18 on CIFAR-100, trained by `calibrant.training` with the division of *Towards Unbiased Calibration using
Meta-Regularization* (Wang & Golebiowski 2024): 40,000 images train, 5,000 tune the losses that are learned, 5,000
calibrate, 10,000 judge. {epochs} epochs in batches of {batch_size} (the paper: at most 350 in batches of 128), {seeds}
seeds, bfloat16 on one GPU, the last epoch's network. No public code of the paper exists; what it leaves open is told in
[the losses' own documentation](losses.md). Means ± standard deviations over seeds, in percent but for log-loss and T;
15 bins.
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
    "flg-sece-alone": "FLγ-SECE, eq. 2 to the letter",
}
# Error, log-loss, ECE, MCE, ACE, classwise ECE.
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
COLUMNS = {"error": 2, "nll": 3, "ece": 2, "mce": 2, "ace": 2, "sce": 3}  # and digits
MAPS = {"none": "as it is", "temperature": "temperature", "histogram": "histogram", "svs": "SVS"}
MARKS = {"better": " ✓", "worse": " ✗", "alike": "", "higher": " ▲", "lower": " ▼"}

AFTER_A_MAP = """\
## What a map leaves

The same networks by `calibrant diagnose`: ECE as it is and after maps fitted on each network's own 5,000 calibration
rows; the lowest that any temperature has on the test rows (an oracle, and no method); AUROC of right against wrong
answers; and the log-loss that no temperature mends. ✓ better, ✗ worse than cross-entropy on the same rows beyond the
noise of rows and of seeds, corrected for twelve comparisons (Holm).

![ECE after temperature scaling across, AUROC upwards: most ways stay near cross-entropy, label smoothing and inverse
focal lie to its right](images/meta-study/two_sided.png)
"""
GAMMAS = """\
## What became of γ

Mean and standard deviation of γ over the calibration rows of each run, which have no part in the training.

"""
SHIFT = """\
## Under shift

Test images with noise, blur, contrast, brightness and JPEG artefacts, made by the library; means over the five at each
severity. Each network keeps the temperature that its clean calibration rows gave. "gap" is mean confidence minus
accuracy. ▲ higher, ▼ lower than cross-entropy by a t-test over seeds at .05, not corrected.

![ECE, accuracy and AUROC by severity, a column a way to train](images/meta-study/shift.png)
"""
CONFIDENCE = """\
## Other confidences

On the networks trained with cross-entropy: the softmax against [ConfidNet and TrustScore](confidence.md), which read
the features before the last layer. ConfidNet's head learned for 40 epochs from the rows that had trained the network,
or for 200 from the 5,000 that tune learned losses, which it had not seen; the epoch was chosen on a tenth of them.

| confidence | fitted on | networks | AUROC | AUPR of errors | AURC |
|---|---|---|---|---|---|
"""
READINGS = {
    "run": """\
**Reading, beside the paper.** With a ninth of its epochs the error is five to ten points above the paper's; mixup,
which wants long training, loses most. Cross-entropy and the learned decays come out much as in the paper (8.86 to about
7.1 here, 8.38 to about 7.5 there). γ-Net does not: there it takes ECE from 5.04 (focal, γ = 1) to 1.94, here it has
4.24 ± 1.44 against 3.96 ± 0.18, and 4.08 ± 1.01 if tuned by DECE: no gain, and five times the spread over seeds. The
other large difference is temperature scaling of cross-entropy, which leaves 5.39 of 8.38 in the paper and 1.63 of 8.86
here: less than γ-Net has as it is. The large MCE of label smoothing .1 is that of one run, in a bin of three rows.
""",
    "way": """\
**Reading.** As they are, nine of twelve ways have a significantly lower ECE than cross-entropy. After a temperature
none has, and four have a significantly higher one. Label smoothing .05 shows it best: first of all as it is, tenth of
thirteen after a temperature. That is the finding of *Do Not Be Afraid of Overconfidence*; the remedy it proposes, the
inverse focal loss, is not one here: 3.16 against 1.63, with that paper's own temperature (`--maps paper`) 2.3 against
1.6, and by the oracle 2.05 against 1.34, at the highest AUROC of all (86.24, which a t-test over seeds tells from
cross-entropy, and the corrected comparison does not). MMCE has the lowest ECE after a temperature and nearly the
highest AUROC, both within noise, at .7 points of accuracy. No AUROC but that of eq. 2 differs from cross-entropy's
beyond noise. Where a temperature is not enough, bins are: after histogram binning all ways are
alike, between 1.3 and 2.1.

![ECE of each way as it is, after each map and at the best temperature, with its place among
all](images/meta-study/calibratability.png)
""",
    "gamma": """\
![γ over the epochs: it rises, falls, and ends elsewhere for each seed; by eq. 2 it stands at the
limit](images/meta-study/learned_loss.png)

**Reading.** γ begins at 1, about doubles within ten epochs and mostly falls again; where it ends differs tenfold from
seed to seed (0.44 to 4.50), and ECE goes with it: the smaller γ, the higher. So the objective hardly holds γ to a
place, and where γ ends near 1 the ECE is near that of the focal loss with γ = 1. By the paper's eq. 2 to the letter,
where the calibration error alone tunes γ and no cross-entropy is beside it, γ runs to its limit of 20 in every run: the
network learns less and is far too modest. The paper does not tell how γ-Net is made to begin at 1, nor how fast it
learns; other choices than ours may end elsewhere.
""",
    "shift": """\
**Reading.** As they are, networks that are too modest on clean images look best under shift: the ECE of mixup and of
eq. 2 falls while the images get worse, because accuracy comes down to their confidence. After the temperature of the
clean rows the ways are nearly alike: 18.5 to 25.1 at severity 5, every one of them some twenty points overconfident.
Label smoothing is the worst there; MMCE is the best, in ECE and in AUROC. No loss and no temperature of clean rows
makes confidence hold under shift.
""",
    "confidence": """\
**Reading.** Neither separates errors better than the softmax that is there already. TrustScore is two points of AUROC
below it, and ConfidNet's head ten: these networks are right on 98 % of the rows that trained them, which leaves it few
errors to learn from, and 5,000 unseen rows are few for 512 features. Its paper trains for 500 epochs and goes on to
fine-tune the encoder, which was not tried here.
""",
}
AGAIN = """\
## To see it again

```bash
python experiments/meta/study.py train DATA RUNS  # 13 networks of one seed together took 5 min 40 s on an H200
python experiments/meta/study.py judge RUNS
python experiments/meta/study.py shift DATA RUNS
python experiments/meta/study.py confidence DATA RUNS
```

`calibrant diagnose RUNS` gives the tables of the second, and all figures with `--figures`.
"""


def write_page(records: list[dict[str, Any]]) -> None:
    """The whole page, as far as there are records."""
    kinds = {
        kind: [each for each in records if each["about"] == kind] for kind in ("run", "way", "shift", "confidence")
    }
    parts = [INTRODUCTION]
    if kinds["run"]:
        parts += [_about(kinds["run"]), _table(kinds["run"]), READINGS["run"]]
    if kinds["way"]:
        parts += [AFTER_A_MAP, _ways(kinds["way"]), READINGS["way"], _gammas(kinds["run"]), READINGS["gamma"]]
    if kinds["shift"]:
        parts += [SHIFT, _shifts(kinds["shift"]), READINGS["shift"]]
    if kinds["confidence"]:
        parts += [CONFIDENCE.rstrip("\n") + "\n" + _confidences(kinds["confidence"]), READINGS["confidence"]]
    PAGE.write_text("\n".join(part.strip("\n") + "\n" for part in [*parts, AGAIN]), encoding="utf-8")


def _about(runs: list[dict[str, Any]]) -> str:
    first, seeds = runs[0], len({record["seed"] for record in runs})
    return ABOUT.format(epochs=first["epochs"], batch_size=first["batch_size"], seeds=seeds)


def _table(runs: list[dict[str, Any]]) -> str:
    """The layout of the paper's Table 1, with its numbers beside ours."""
    headings = ["way", "error", "log-loss", "ECE", "MCE", "ACE", "classwise ECE", "T", "the paper's, in this order"]
    lines = _heading(headings)
    for name, title in TITLES.items():
        mine = [record for record in runs if record["way"] == name.partition(" ")[0]]
        if not mine:
            continue
        measured = [record["ts" if name == "ce (ts)" else "none"] for record in mine]
        cells = [_over([_number(each, column) for each in measured], digits) for column, digits in COLUMNS.items()]
        temperature = "" if name == "ce (ts)" else _over([record["T"] for record in mine], 2)
        lines.append(f"| {title} | {' | '.join(cells)} | {temperature} | {PUBLISHED.get(name, '')} |")
    return "\n".join(lines)


def _ways(ways: list[dict[str, Any]]) -> str:
    lines = _heading(["way", *(f"ECE {title}" for title in MAPS.values()), "optimal", "AUROC", "log-loss that stays"])
    for way in ways:
        cells = [_pair(way["ece"][name], 100) + MARKS[way["sides"].get(name, "alike")] for name in MAPS]
        cells += [_pair(way["optimal_ece"], 100), _pair(way["auroc"], 100) + MARKS[way["auroc_side"]]]
        lines.append(f"| {TITLES[way['way']]} | {' | '.join(cells)} | {_pair(way['nll_rest'], 1, 3)} |")
    return "\n".join(lines)


def _gammas(runs: list[dict[str, Any]]) -> str:
    """γ of every run, where it was looked at."""
    told = [run for run in runs if any("gamma_mean" in each for each in run["learned"])]
    epochs = [each["epoch"] for each in told[0]["learned"]]
    lines = _heading(["way", "seed", *(f"epoch {epoch}" for epoch in epochs), "error", "ECE"])
    for run in told:
        cells = [f"{each['gamma_mean']:.2f} ± {each['gamma_std']:.2f}" for each in run["learned"]]
        result = f"{_number(run['none'], 'error'):.2f} | {_number(run['none'], 'ece'):.2f}"
        lines.append(f"| {TITLES[run['way']]} | {run['seed']} | {' | '.join(cells)} | {result} |")
    return GAMMAS + "\n".join(lines)


def _shifts(lines_of: list[dict[str, Any]]) -> str:
    severities = sorted({each["severity"] for each in lines_of})
    worst = severities[-1]
    headings = [f"ECE at {severity}" for severity in severities[1:]]
    lines = _heading(["way", f"accuracy at {worst}", *headings, *(f"{each}, after T" for each in headings),
                      f"gap at {worst}, after T", f"AUROC at {worst}"])  # fmt: skip
    found = {(each["way"], each["map"], each["severity"]): each for each in lines_of}
    for way, title in TITLES.items():
        if (way, "none", worst) not in found:
            continue
        cells = [_pair(found[way, "none", worst]["accuracy"], 100)]
        for name in ("none", "temperature"):
            cells += [_marked(found[way, name, severity], "ece") for severity in severities[1:]]
        cells += [
            f"{100 * found[way, 'temperature', worst]['gap'][0]:+.1f}",
            _marked(found[way, "none", worst], "auroc"),
        ]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _confidences(lines_of: list[dict[str, Any]]) -> str:
    methods = {"softmax": "softmax", "trust_score": "TrustScore", "confidnet": "ConfidNet"}
    rows = {"none": "", "train": "the training rows", "meta": "unseen rows"}
    lines = []
    for key in dict.fromkeys((each["method"], each["rows"]) for each in lines_of):
        mine = [each for each in lines_of if (each["method"], each["rows"]) == key]
        cells = [_over([100 * each[name] for each in mine], 2) for name in ("auroc", "aupr_error", "aurc")]
        lines.append(f"| {methods[key[0]]} | {rows[key[1]]} | {len(mine)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _heading(names: list[str]) -> list[str]:
    return [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]


def _number(measured: dict[str, float], column: str) -> float:
    if column == "error":
        return 100 * (1 - measured["accuracy"])
    return measured[column] if column == "nll" else 100 * measured[column]


def _over(values: list[float], digits: int) -> str:
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{spread}"


def _pair(numbers: list[float], scale: float, digits: int = 2) -> str:
    return f"{scale * numbers[0]:.{digits}f} ± {scale * numbers[1]:.{digits}f}"


def _marked(line: dict[str, Any], name: str) -> str:
    return f"{100 * line[name][0]:.1f}{MARKS[line['sides'].get(name, 'alike')]}"

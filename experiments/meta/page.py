"""Writes ``docs/meta-study.md`` from the records of the study."""

from collections.abc import Callable
from statistics import mean, stdev
from textwrap import fill
from typing import Any

from scipy.stats import spearmanr, ttest_ind

from experiments.page import joined

__all__ = ["page_of"]

INTRODUCTION = """\
# Thirteen ways to train: uncalibrated, after a map, and under shift

<!-- Written by `python -m experiments table meta` from its records.jsonl. -->
"""
ABOUT = """\
ResNet-18 on CIFAR-100, trained by `calibrant.training` with the division of *Towards Unbiased Calibration using
Meta-Regularization* (Wang & Golebiowski 2024): 40,000 images train, 5,000 tune the losses that are learned, 5,000
calibrate, 10,000 test. {epochs} epochs in batches of {batch_size} (the paper: at most 350 in batches of 128), {seeds}
seeds, bfloat16 on one GPU, the last epoch's network. No public code of the paper exists; what it leaves open is in
[the losses' documentation](losses.md). Means ± standard deviations over seeds, in percent but for log-loss and T;
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
MAPS = {"none": "uncalibrated", "temperature": "temperature", "histogram": "histogram", "svs": "SVS"}
_WHOLE_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
MARKS = {"better": " ✓", "worse": " ✗", "alike": "", "higher": " ▲", "lower": " ▼"}

AFTER_A_MAP = """\
## What a map leaves

The same networks by `calibrant diagnose`: ECE uncalibrated and after maps fitted on each network's own 5,000
calibration samples; the lowest ECE of any temperature on the test samples (an oracle, not a method); AUROC of right
against wrong predictions; and the log-loss that no temperature removes. ✓ better, ✗ worse than cross-entropy on the
same samples beyond the noise of samples and of seeds, corrected for twelve comparisons (Holm).

![ECE after temperature scaling across, AUROC upwards: most ways stay near cross-entropy, label smoothing and inverse
focal lie to its right](images/meta-study/two_sided.png)
"""
GAMMAS = """\
## Course of γ

Mean and standard deviation of γ over the calibration samples of each run, which have no part in the training.

"""
SHIFT = """\
## Under shift

Test images with noise, blur, contrast, brightness and JPEG artefacts, made by the library; means over the five at each
severity. Each network keeps the temperature fitted on its clean calibration samples. "gap" is mean confidence minus
accuracy. ▲ higher, ▼ lower than cross-entropy by a t-test over seeds at .05, not corrected.

![ECE, accuracy and AUROC by severity, a column a way to train](images/meta-study/shift.png)
"""
CONFIDENCE = """\
## Other confidences

On the networks trained with cross-entropy: the softmax against [ConfidNet and TrustScore](confidence.md), which read
the features before the last layer. ConfidNet's head learned for 40 epochs from the samples that trained the network,
or for 200 from the 5,000 that tune learned losses, which it had not seen; the epoch was chosen on a tenth of them.

| confidence | fitted on | networks | AUROC | AUPR of errors | AURC |
|---|---|---|---|---|---|
"""
# Numbers in braces are worked out from the records; the others are the paper's.
READINGS = {
    "run": """\
**Reading, beside the paper.** With {epochs} epochs instead of up to 350 the error is {error_least:.0f} to
{error_most:.0f} points above the paper's; mixup, which wants long training, loses most. Cross-entropy and the learned
decays come out much as in the paper ({ece_ce} to {ece_decays} here, 8.38 to 7.31 and 7.67 there). γ-Net does not:
there it takes ECE from 5.04 (focal, γ = 1) to 1.94, here it has {ece_flg_sece} against {ece_focal}, and
{ece_flg_dece} if tuned by DECE: no gain, and {spread_least:.1f} to {spread_most:.1f} times the standard deviation
over {seeds} seeds. The other large difference is temperature scaling of cross-entropy, which leaves 5.39 of 8.38 in
the paper and {ts_ce} of {ece_ce} here: less than γ-Net has uncalibrated. The large MCE of label smoothing .1 is that
of one run: {mces}.
""",
    "way": """\
**Reading.** Uncalibrated, {better} of {others} ways have a significantly lower ECE than cross-entropy. After a
temperature {better_ts} of {others} have, and {worse_ts} have a significantly higher one. Label smoothing .05 shows it
best: place {ls_place} of {ways} uncalibrated, place {ls_place_ts} after a temperature. That is the finding of *Do Not
Be Afraid of Overconfidence*; the remedy it proposes, the inverse focal loss, is not one here: {inverse_ts} against
{ts_ce}, and by the oracle {inverse_oracle} against {oracle_ce}, at an AUROC of {inverse_auroc} against {auroc_ce} (p
= {inverse_p:.3f} by a t-test over seeds alone; not significant in the corrected comparison). MMCE has an ECE of
{mmce_ts} after a temperature, place {mmce_place_ts}, and place {mmce_place_auroc} in AUROC, both within noise of
cross-entropy, at {mmce_accuracy:.1f} points of accuracy. {auroc_sides} of {others} AUROCs differs from
cross-entropy's beyond noise, that of eq. 2. Where a temperature is not enough, bins are: after histogram binning no
way differs from cross-entropy beyond noise, between {histogram_least:.1f} and {histogram_most:.1f}.

![ECE of each way uncalibrated, after each map and at the best temperature, with its place among
all](images/meta-study/calibratability.png)
""",
    "gamma": """\
![γ over the epochs: it rises, falls, and ends elsewhere for each seed; by eq. 2 it stands at the
limit](images/meta-study/learned_loss.png)

**Reading.** γ begins at 1, rises at first and mostly falls again; where its mean ends differs from seed to seed
({gamma_least:.2f} to {gamma_most:.2f}), and ECE goes with it: the smaller γ, the higher (rank correlation
{gamma_correlation:.2f} over {gamma_runs} runs). So the objective hardly holds γ to a place. By the paper's eq. 2 to
the letter, where the calibration error alone tunes γ and no cross-entropy is beside it, the mean γ ends at
{gamma_alone} (the limit is 20): the network learns less and is far underconfident. The paper does not say how γ-Net
is made to begin at 1, nor how fast it learns; other choices than ours may end elsewhere.
""",
    "shift": """\
**Reading.** Uncalibrated, networks that are underconfident on clean images look best under shift: the ECE of mixup
and of eq. 2 falls while the images get worse, because accuracy comes down to their confidence. After the temperature
of the clean samples the ways are nearly alike: {shift_least:.1f} to {shift_most:.1f} at severity {severity},
overconfident by {gap_least:.0f} to {gap_most:.0f} points. The highest ECE there is that of {shift_worst}, the lowest
that of {shift_best}; the highest AUROC is that of {shift_auroc}. No loss and no temperature of clean samples makes
confidence hold under shift.
""",
    "confidence": """\
**Reading.** Neither separates errors better than the softmax that is there already. TrustScore is {trust_below:.1f}
points of AUROC below it, and ConfidNet's head {confidnet_below:.1f}. Not measured here, but likely: a network makes
few errors on the samples that trained it, which leaves the head little to learn from, and 5,000 unseen ones are few
for 512 features. ConfidNet's paper trains for 500 epochs and goes on to fine-tune the encoder, which was not tried
here.
""",
}


def page_of(records: list[dict[str, Any]]) -> str:
    """Return the whole page, as far as there are records."""
    kinds = {
        kind: [record for record in records if record["about"] == kind]
        for kind in ("run", "way", "shift", "confidence")
    }
    parts = [INTRODUCTION]
    if kinds["run"]:
        parts += [_about(kinds["run"]), _table(kinds["run"]), _reading("run", _run_facts(kinds["run"]))]
    if kinds["way"]:
        reading = _reading("way", _way_facts(kinds["way"], kinds["run"]))
        gammas = _reading("gamma", _gamma_facts(kinds["run"]))
        parts += [AFTER_A_MAP, _ways(kinds["way"]), reading, _gammas(kinds["run"]), gammas]
    if kinds["shift"]:
        parts += [SHIFT, _shifts(kinds["shift"]), _reading("shift", _shift_facts(kinds["shift"]))]
    if kinds["confidence"]:
        reading = _reading("confidence", _confidence_facts(kinds["confidence"]))
        parts += [CONFIDENCE.rstrip("\n") + "\n" + _confidences(kinds["confidence"]), reading]
    return joined(parts)


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
        cells = [
            _over([_number(numbers, column) for numbers in measured], digits) for column, digits in COLUMNS.items()
        ]
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
    tracked = [run for run in runs if any("gamma_mean" in entry for entry in run["learned"])]
    epochs = [entry["epoch"] for entry in tracked[0]["learned"]]
    lines = _heading(["way", "seed", *(f"epoch {epoch}" for epoch in epochs), "error", "ECE"])
    for run in tracked:
        cells = [f"{entry['gamma_mean']:.2f} ± {entry['gamma_std']:.2f}" for entry in run["learned"]]
        result = f"{_number(run['none'], 'error'):.2f} | {_number(run['none'], 'ece'):.2f}"
        lines.append(f"| {TITLES[run['way']]} | {run['seed']} | {' | '.join(cells)} | {result} |")
    return GAMMAS + "\n".join(lines)


def _shifts(lines_of: list[dict[str, Any]]) -> str:
    severities = sorted({line["severity"] for line in lines_of})
    worst = severities[-1]
    headings = [f"ECE at {severity}" for severity in severities[1:]]
    lines = _heading(["way", f"accuracy at {worst}", *headings, *(f"{heading}, after T" for heading in headings),
                      f"gap at {worst}, after T", f"AUROC at {worst}"])  # fmt: skip
    by_setting = {(line["way"], line["map"], line["severity"]): line for line in lines_of}
    for way, title in TITLES.items():
        if (way, "none", worst) not in by_setting:
            continue
        cells = [_pair(by_setting[way, "none", worst]["accuracy"], 100)]
        for name in ("none", "temperature"):
            cells += [_marked(by_setting[way, name, severity], "ece") for severity in severities[1:]]
        cells += [
            f"{100 * by_setting[way, 'temperature', worst]['gap'][0]:+.1f}",
            _marked(by_setting[way, "none", worst], "auroc"),
        ]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _confidences(lines_of: list[dict[str, Any]]) -> str:
    methods = {"softmax": "softmax", "trust_score": "TrustScore", "confidnet": "ConfidNet"}
    rows = {"none": "", "train": "training samples", "meta": "unseen samples"}
    lines = []
    for key in dict.fromkeys((line["method"], line["rows"]) for line in lines_of):
        mine = [line for line in lines_of if (line["method"], line["rows"]) == key]
        cells = [_over([100 * record[name] for record in mine], 2) for name in ("auroc", "aupr_error", "aurc")]
        lines.append(f"| {methods[key[0]]} | {rows[key[1]]} | {len(mine)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _reading(name: str, facts: dict[str, Any]) -> str:
    """Return the reading with its numbers, its lines filled again; a picture stays on its lines."""
    paragraphs = READINGS[name].format(**facts).strip("\n").split("\n\n")
    return "\n\n".join(text if text.startswith("!") else fill(text, 120, **_WHOLE_WORDS) for text in paragraphs)


def _run_facts(runs: list[dict[str, Any]]) -> dict[str, Any]:
    def over(way: str, column: str = "ece", stage: str = "none") -> list[float]:
        return [_number(run[stage], column) for run in runs if run["way"] == way]

    published = {way: float(numbers.partition(",")[0]) for way, numbers in PUBLISHED.items() if way != "ce (ts)"}
    behind = {way: mean(over(way, "error")) - error for way, error in published.items() if over(way)}
    assert max(behind, key=behind.__getitem__) == "mixup", "the page says that mixup loses most"
    spreads = [stdev(over(way)) / stdev(over("focal")) for way in ("flg-dece", "flg-sece")]
    return {
        "epochs": runs[0]["epochs"],
        "seeds": len({run["seed"] for run in runs}),
        "error_least": min(behind.values()),
        "error_most": max(behind.values()),
        "ece_ce": f"{mean(over('ce')):.2f}",
        "ece_decays": " and ".join(f"{mean(over(way)):.2f}" for way in ("ce-dece", "ce-sece")),
        **{f"ece_{way.replace('-', '_')}": _over(over(way), 2) for way in ("focal", "flg-sece", "flg-dece")},
        "spread_least": min(spreads),
        "spread_most": max(spreads),
        "ts_ce": f"{mean(over('ce', stage='ts')):.2f}",
        "mces": ", ".join(f"{mce:.1f}" for mce in over("ls-10", "mce")),
    }


def _way_facts(ways: list[dict[str, Any]], runs: list[dict[str, Any]]) -> dict[str, Any]:
    by_way = {way["way"]: way for way in ways}
    others = [way for way in ways if way["way"] != "ce"]

    def place(name: str, of: Callable[[dict[str, Any]], float]) -> int:
        return 1 + sum(of(way) < of(by_way[name]) for way in ways)

    def sides(name: str, side: str) -> int:
        return sum(way["sides"][name] == side for way in others)

    def error(way: str) -> float:
        return mean(_number(run["none"], "error") for run in runs if run["way"] == way)

    differing = [way["way"] for way in others if way["auroc_side"] != "alike"]
    assert differing == ["flg-sece-alone"], "the page says that only eq. 2 differs in AUROC"
    assert all(way["sides"]["histogram"] == "alike" for way in others), "the page says that bins make all alike"
    aurocs = [[run["none"]["auroc"] for run in runs if run["way"] == way] for way in ("inverse-focal", "ce")]
    histogram = [100 * way["ece"]["histogram"][0] for way in ways]
    return {
        "ways": len(ways),
        "others": len(others),
        "better": sides("none", "better"),
        "better_ts": sides("temperature", "better"),
        "worse_ts": sides("temperature", "worse"),
        "ls_place": place("ls-05", lambda way: way["ece"]["none"][0]),
        "ls_place_ts": place("ls-05", lambda way: way["ece"]["temperature"][0]),
        "ts_ce": f"{100 * by_way['ce']['ece']['temperature'][0]:.2f}",
        "oracle_ce": f"{100 * by_way['ce']['optimal_ece'][0]:.2f}",
        "auroc_ce": f"{100 * by_way['ce']['auroc'][0]:.2f}",
        "inverse_ts": f"{100 * by_way['inverse-focal']['ece']['temperature'][0]:.2f}",
        "inverse_oracle": f"{100 * by_way['inverse-focal']['optimal_ece'][0]:.2f}",
        "inverse_auroc": f"{100 * by_way['inverse-focal']['auroc'][0]:.2f}",
        "inverse_p": ttest_ind(*aurocs, equal_var=False).pvalue,
        "mmce_ts": f"{100 * by_way['mmce']['ece']['temperature'][0]:.2f}",
        "mmce_place_ts": place("mmce", lambda way: way["ece"]["temperature"][0]),
        "mmce_place_auroc": place("mmce", lambda way: -way["auroc"][0]),
        "mmce_accuracy": error("mmce") - error("ce"),
        "auroc_sides": len(differing),
        "histogram_least": min(histogram),
        "histogram_most": max(histogram),
    }


def _gamma_facts(runs: list[dict[str, Any]]) -> dict[str, Any]:
    def ends(*ways: str) -> list[float]:
        return [run["learned"][-1]["gamma_mean"] for run in runs if run["way"] in ways]

    nets = ("flg-dece", "flg-sece")
    eces = [run["none"]["ece"] for run in runs if run["way"] in nets]
    return {
        "gamma_least": min(ends(*nets)),
        "gamma_most": max(ends(*nets)),
        "gamma_runs": len(eces),
        "gamma_correlation": spearmanr(ends(*nets), eces).statistic,
        "gamma_alone": " to ".join(
            f"{edge:.2f}" for edge in (min(ends("flg-sece-alone")), max(ends("flg-sece-alone")))
        ),
    }


def _shift_facts(lines_of: list[dict[str, Any]]) -> dict[str, Any]:
    worst = max(line["severity"] for line in lines_of)
    at_worst = [line for line in lines_of if (line["map"], line["severity"]) == ("temperature", worst)]
    by_ece = sorted(at_worst, key=lambda line: line["ece"][0])
    gaps = [100 * line["gap"][0] for line in at_worst]
    return {
        "severity": worst,
        "shift_least": 100 * by_ece[0]["ece"][0],
        "shift_most": 100 * by_ece[-1]["ece"][0],
        "shift_best": TITLES[by_ece[0]["way"]],
        "shift_worst": TITLES[by_ece[-1]["way"]],
        "shift_auroc": TITLES[max(at_worst, key=lambda line: line["auroc"][0])["way"]],
        "gap_least": min(gaps),
        "gap_most": max(gaps),
    }


def _confidence_facts(lines_of: list[dict[str, Any]]) -> dict[str, Any]:
    def auroc(method: str) -> float:
        return mean(100 * line["auroc"] for line in lines_of if line["method"] == method)

    return {name: auroc("softmax") - auroc(method) for name, method in
            (("trust_below", "trust_score"), ("confidnet_below", "confidnet"))}  # fmt: skip


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

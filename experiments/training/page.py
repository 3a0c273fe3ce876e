"""Writes ``docs/training-study.md`` from the records of the study."""

from textwrap import fill
from typing import Any

from experiments.page import joined

__all__ = ["page_of"]

INTRODUCTION = """\
# Five losses: what training does to confidence

<!-- Written by `python -m experiments table training` from its records.jsonl. -->

Networks trained by `calibrant.training` on CIFAR-100 (45,000 images train, 5,000 calibrate, 10,000 judge), five at once
on one accelerator, one seed each. Before and after a temperature fitted on the 5,000. In percent but for the log-loss
and T; in brackets the 95 % interval from resampling the test images, which says nothing of other seeds.
"""

TITLES = {
    "ce": "cross-entropy",
    "focal": "focal",
    "label_smoothing": "label smoothing",
    "inverse_focal": "inverse focal",
    "mixup": "mixup (cross-entropy)",
}
NETWORKS = {"resnet110": "ResNet-110", "resnet32": "ResNet-32"}

READINGS = {
    "resnet110": """
**Reading.** As they come out of training, label smoothing and mixup have about a third of the cross-entropy's error,
and focal loss an eighth. After one temperature the order turns: the cross-entropy's error is half of label
smoothing's, which no temperature can mend, and cannot be told from focal's. That is the finding of *Do Not Be Afraid
of Overconfidence*: calibrated is not calibratable. Label smoothing also tells right from wrong worse (AUROC), which
is the finding of *On the Dark Side of Calibration*. Inverse focal loss, the first paper's remedy, does not show its
gain here: after the temperature its error is not below the cross-entropy's and its log-loss is above. Mixup has the
best accuracy, log-loss and Brier score, with an error at its temperature that may be above the cross-entropy's (p =
.08).
""",
    "resnet32": """
**Reading.** These are the recipe and the coefficients of *Do Not Be Afraid of Overconfidence*, with two differences:
its focal loss takes no gradient through the weight (1 − p)^γ (`detach_weight=true`), and this one does
(`detach_weight={focal_detach}`); its L1 penalty was not run. Its Tables 1 and 2 report, as means over seeds, for the
cross-entropy an accuracy of 64.64 and an ECE of 19.53, 1.35 at its temperature, here {ce}; for label smoothing 63.73,
2.27, 1.37, here {label_smoothing}; for focal loss 60.36, 2.34, 2.14, here {focal}: twice the paper's ECE, with the
other gradient, and no evidence about the paper's own. The finding comes out as in the paper: focal loss and label
smoothing end with an error at their temperature above the cross-entropy's, with a worse log-loss and AUROC. Inverse
focal loss does what the paper says of it in part: the largest uncalibrated error of all, and after its temperature one
that cannot be told from the cross-entropy's, at the same log-loss, but with a better AUROC. A difference of a point
between seeds is common in this field; one seed was run.
""",
}


def page_of(records: list[dict[str, Any]]) -> str:
    """Return the whole page."""
    parts = [INTRODUCTION]
    for network, title in NETWORKS.items():
        mine = [record for record in records if record["network"] == network]
        if mine:
            parts += [f"\n## {title}\n\n{_recipe(mine)}\n", _table(mine), _against(mine), _reading(network, mine)]
    return joined(parts)


def _reading(network: str, records: list[dict[str, Any]]) -> str:
    """Return the reading of a network's table, with accuracy, ECE and ECE at T in the paper's order."""
    runs = {record["run"]: record for record in records}
    numbers = {
        name: f"{100 * run['none']['accuracy'][0]:.2f}, {100 * run['none']['ece'][0]:.2f} and "
        f"{100 * run['temperature']['ece'][0]:.2f}"
        for name, run in runs.items()
    }
    detach = str(runs["focal"]["loss"]["detach_weight"]).lower()
    return _filled(READINGS[network].format(**numbers, focal_detach=detach))


def _filled(text: str) -> str:
    """Return the text with the lines of its paragraphs filled."""
    paragraphs = text.strip("\n").split("\n\n")
    return "\n\n".join(fill(paragraph, 120, break_long_words=False, break_on_hyphens=False) for paragraph in paragraphs)


def _recipe(records: list[dict[str, Any]]) -> str:
    recipe, ran_on = records[0]["recipe"], records[0]["ran_on"]
    rate = f"learning rate {recipe['learning_rate']:g}, {recipe['schedule']}"
    if recipe["milestones"]:
        rate += f" by {recipe['decay']:g} at {', '.join(map(str, recipe['milestones']))}"
    if recipe["warmup"]:
        rate += f", warm-up {recipe['warmup']}"
    seconds = max(record["seconds"] for record in records)
    return (
        f"{recipe['epochs']} epochs, batch {recipe['batch_size']}, {rate}, weight decay {recipe['weight_decay']:g}, "
        f"{recipe['precision']}; all {len(records)} together took {seconds / 60:.0f} minutes on one {ran_on['device']} "
        f"(torch {ran_on['torch']}), the epochs that a stop made it do again not counted."
    )


def _table(records: list[dict[str, Any]]) -> str:
    headings = ["loss", "accuracy", "log-loss", "ECE", "AUROC", "T"]
    headings += [f"{name} at T" for name in ("log-loss", "ECE", "AUROC")] + ["ECE, svs", "ECE, histogram"]
    lines = [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    for record in records:
        before, after = record["none"], record["temperature"]
        cells = [
            _title(record),
            _percent(before["accuracy"]),
            f"{before['nll'][0]:.4f}",
            _percent(before["ece"]),
            _percent(before["auroc"]),
            f"{record['T']:.2f}",
            f"{after['nll'][0]:.4f}",
            _percent(after["ece"]),
            _percent(after["auroc"]),
            f"{100 * record['svs']['ece'][0]:.2f}",
            f"{100 * record['histogram']['ece'][0]:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _against(records: list[dict[str, Any]]) -> str:
    """Each loss against the cross-entropy, both after their temperature."""
    lines = [
        "\nDifference to the cross-entropy, both after their temperature (paired bootstrap over the test images, p not",
        "corrected for the number of comparisons):\n",
        "| loss | Δ accuracy | Δ log-loss | Δ ECE | Δ Brier | Δ AUROC |",
        "|---|---|---|---|---|---|",
    ]
    for record in records:
        if record["run"] == "ce":
            continue
        differences = record["to_ce"]
        names = ("accuracy", "nll", "ece", "brier", "auroc")
        lines.append(f"| {_title(record)} | {' | '.join(_difference(differences[name], name) for name in names)} |")
    return "\n".join(lines)


def _title(record: dict[str, Any]) -> str:
    loss, recipe = record["loss"], record["recipe"]
    signs = {"gamma": "γ", "smoothing": "ε"}
    options = [f"{sign} = {loss[name]:g}" for name, sign in signs.items() if name in loss]
    options += [f"α = {recipe['mixup']:g}"] * (recipe["mixup"] > 0)
    return TITLES[record["run"]] + (f", {', '.join(options)}" if options else "")


def _percent(estimate: list[float]) -> str:
    value, low, high = (100 * number for number in estimate)
    return f"{value:.2f} ({low:.2f} … {high:.2f})"


def _difference(numbers: list[float], name: str) -> str:
    value, low, high, p = numbers
    scale, digits = (1, 4) if name == "nll" else (100, 2)
    chance = "p < .002" if p < 0.002 else f"p = {p:.3f}".replace("0.", ".")
    return f"{scale * value:+.{digits}f} ({scale * low:+.{digits}f} … {scale * high:+.{digits}f}), {chance}"

"""What the records of the meta-regularisation study say: numbers to check, and the page."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import inf
from pathlib import Path
from typing import Any

from experiments.meta_regularization.figures import bins_section, epochs_section, reliability_section
from experiments.numbers import Estimate, Number, minus, over_seeds, pooled
from experiments.page import claims, interval, number_by_number, page, provenance, table
from experiments.published import Claim, Published, findings, read_published
from experiments.records import Record

__all__ = ["DATA", "lower_than_focal", "numbers_of", "page_of"]

PUBLISHED = Path(__file__).parent / "published.toml"
DATA = {"cifar100": "CIFAR-100", "cifar10": "CIFAR-10", "tiny_imagenet": "Tiny-ImageNet", "digits": "digits"}
RULES = {"last": "the last", "best": "best error", "best-nll": "best log-loss"}
COLUMNS = {
    "error": ("error", 100, 2),
    "nll": ("log-loss", 1, 4),
    "ece": ("ECE", 100, 2),
    "mce": ("MCE", 100, 1),
    "ace": ("ACE", 100, 2),
    "sce": ("classwise ECE", 100, 3),
}
BASELINES = ("Focal", "CE", "FLγ", "CE-DECE", "FLγ-SECE")  # that differences are taken to
MOST = {metric: inf if metric == "nll" else 100.0 for metric in COLUMNS}


def numbers_of(records: Sequence[Record]) -> dict[str, Number]:
    """Return every number and difference that the paper's are held against, by data, method, rule and metric.

    A difference is taken seed by seed, over the seeds that both methods have.

    Args:
        records: Successful ones.
    """
    numbers: dict[str, Number] = {}
    groups: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}  # by data and method, then by seed
    for record in records:
        cell = record["cell"]
        groups.setdefault((cell["data"], cell["method"]), {})[cell["seed"]] = record["numbers"]["rules"]
    for (data, method), runs in groups.items():
        for rule, row, metric in product(RULES, ("none", "TS", "TS (grid)"), COLUMNS):
            estimates = [_estimate(run[rule]["rows"][row], metric) for run in runs.values()]
            numbers[f"{data}.{method}.{rule}.{row}.{metric}"] = _within(pooled(estimates), 0.0, metric)
        for other, rule, metric in product(_others(method), RULES, COLUMNS):
            others = groups.get((data, other), {})
            differences = [
                minus(*(_estimate(run[rule]["rows"]["none"], metric) for run in (runs[seed], others[seed])))
                for seed in sorted(runs.keys() & others.keys())
            ]
            if differences:
                number = _within(pooled(differences), -MOST[metric], metric)
                about = "1 seed, test samples" if len(differences) == 1 else number.about
                numbers[f"{data}.{method} - {other}.{rule}.{metric}"] = number._replace(about=about)
    return numbers | _bin_numbers(records)


def _others(method: str) -> list[str]:
    return [other for other in BASELINES if other != method]


def _bin_numbers(records: Sequence[Record]) -> dict[str, Number]:
    """Return differences of ECE and MCE with each number of bins, in percent, over the seeds that both methods have."""
    numbers: dict[str, Number] = {}
    groups: dict[tuple[str, str], dict[int, dict[str, list[float]]]] = {}
    for record in records:
        if "bins" in record["numbers"]:
            cell = record["cell"]
            groups.setdefault((cell["data"], cell["method"]), {})[cell["seed"]] = record["numbers"]["bins"]
    for (data, method), runs in groups.items():
        for other in _others(method):
            others = groups.get((data, other), {})
            shared = sorted(runs.keys() & others.keys())
            for n_bins, (place, metric) in product(runs[shared[0]] if shared else (), enumerate(("ece", "mce"))):
                differences = [100 * (runs[seed][n_bins][place] - others[seed][n_bins][place]) for seed in shared]
                numbers[f"{data}.{method} - {other}.{n_bins} bins.{metric}"] = over_seeds(differences)
    return numbers


def _within(number: Number, least: float, metric: str) -> Number:
    """Return the number with an interval inside what the metric can be; that of two seeds can reach far beyond."""
    return number._replace(low=max(number.low, least), high=min(number.high, MOST[metric]))


def page_of(records: Sequence[Record], *, images: Path | None) -> str:
    """Return the page, and draw its figures where a folder is given.

    Args:
        records: Successful ones.
        images: Folder of the figures; None draws none.
    """
    methods = _methods(records)
    records = sorted(records, key=lambda record: (methods.index(record["cell"]["method"]), record["cell"]["seed"]))
    numbers = numbers_of(records)
    entries = findings(read_published(PUBLISHED), numbers)
    lengths = sorted({(record["cell"]["epochs"], record["cell"]["batch_size"]) for record in records})
    recipe = "; ".join(f"{epochs} epochs, batch {batch}" for epochs, batch in lengths)
    introduction = f"""
ResNet-18, data divided 8:1:1, {recipe}; the paper's recipe is 350 epochs, batch 128. A tenth of the training
images tunes the learned losses, another selects the epoch (every tenth is evaluated) and fits the temperature.
Not in the paper, so chosen here: γ-Net learns by Adam at 1e-4 times the share of its highest rate that the network's
rate has, unless a name says otherwise; its objective is SECE or DECE plus twice the cross-entropy. Error, ECE, MCE, ACE
and classwise ECE in percent, 15 bins. In brackets the 95 % interval: of the test images, and of the seeds where there
are several; a difference is taken seed by seed. **A verdict from one seed is about those networks alone**, not about
the losses; two seeds that disagree leave a claim open. {provenance(records)}
Trained: {_times(records)}.
"""
    parts = [claims(entries)]
    for data, title in DATA.items():
        own = [record for record in records if record["cell"]["data"] == data]
        if own:
            published = {entry.published.id: entry.published for entry in entries}
            parts += [_outcome(data, own, numbers, published), _table(data, own, numbers), _gammas(own)]
            parts += [
                section(own, title, data, images) for section in (epochs_section, bins_section, reliability_section)
            ]
    parts.append(number_by_number(entries))
    return page("Meta-regularisation, Tables 1 to 3", "meta-regularization", introduction, parts)


def _outcome(
    data: str, records: Sequence[Record], numbers: Mapping[str, Number], published: Mapping[str, Published | Claim]
) -> str:
    """Return what became of γ-Net, in sentences, for every learned loss that has focal loss beside it."""
    lines = [f"## γ-Net on {DATA[data]}", ""]
    for method in _methods(records):
        runs = _runs(records, method)
        if f"{data}.{method} - Focal.best.ece" not in numbers or "gamma_mean" not in runs[0]["epochs"][-1]:
            continue
        parts = []
        for rule, words in RULES.items():
            pairs = _pairs(records, (method, "Focal"), rule)
            by_seed = "; ".join(f"{first:.2f} against {second:.2f}" for first, second in pairs)
            difference = numbers[f"{data}.{method} - Focal.{rule}.ece"]
            parts.append(f"  - {words}: {by_seed}; mean difference {interval(difference, 2, signed=True)}.")
        theirs = [published.get(f"{data}.{name}.best.none.ece") for name in (method, "Focal")]
        if isinstance(theirs[0], Published) and isinstance(theirs[1], Published):
            gain = theirs[0].value - theirs[1].value
            ours = [numbers[f"{data}.{method} - Focal.{rule}.ece"] for rule in RULES]
            outside = sum(not difference.low <= gain <= difference.high for difference in ours)
            parts.append(
                f"  - The paper's difference, {gain:+.2f}, lies outside {outside} of these {len(ours)} intervals."
            )
        is_lower = [first < second for first, second in _pairs(records, (method, "Focal"), "best")]
        gammas = ", ".join(f"{run['epochs'][-1]['gamma_mean']:.2f}" for run in runs)
        log_losses = " against ".join(
            f"{numbers[f'{data}.{name}.best.TS.nll'].value:.4f}" for name in (method, "Focal")
        )
        lines.append(
            f"- {method} has a lower ECE than focal loss with γ = 1 in {sum(is_lower)} of {len(is_lower)} pairs of "
            f"networks, by best error. Mean γ at the last epoch, seed by seed: {gammas}. Log-loss after a temperature, "
            f"by best error: {log_losses}. ECE against that of focal loss, seed by seed:\n" + "\n".join(parts)
        )
    if len(lines) == 2:
        return ""
    counts = " and ".join(
        f"in {sum(is_below)} of {len(is_below)} pairs of networks {words}"
        for is_constant, words in ((False, "where its rate falls with the network's"), (True, "at a constant rate"))
        if (is_below := lower_than_focal(records, constant_rate=is_constant))
    )
    lines.insert(2, f"A learned γ has a lower ECE than γ = 1, by best error, {counts}.\n")
    return "\n".join(lines)


def lower_than_focal(records: Sequence[Record], *, constant_rate: bool) -> list[bool]:
    """Return, for each pair of networks, whether a learned γ has a lower ECE than γ = 1, by best error.

    Args:
        records: Successful ones, of one data set.
        constant_rate: Whether γ-Net's rate is constant, or falls with the network's.
    """
    learned = _methods(
        record
        for record in records
        if "gamma_mean" in record["numbers"]["epochs"][-1]
        and ("constant rate" in record["cell"]["method"]) == constant_rate
    )
    return [first < second for method in learned for first, second in _pairs(records, (method, "Focal"), "best")]


def _methods(records: Iterable[Record]) -> list[str]:
    return list(dict.fromkeys(record["cell"]["method"] for record in records))


def _pairs(records: Sequence[Record], methods: tuple[str, str], rule: str) -> list[tuple[float, float]]:
    """Return the uncalibrated ECE in percent of two methods with each seed that both have."""
    first, second = (
        {
            record["cell"]["seed"]: 100 * record["numbers"]["rules"][rule]["rows"]["none"]["ece"][0]
            for record in records
            if record["cell"]["method"] == method
        }
        for method in methods
    )
    return [(first[seed], second[seed]) for seed in sorted(first.keys() & second.keys())]


def _times(records: Sequence[Record]) -> str:
    """Return how long so many networks took, side by side."""
    minutes: dict[int, list[float]] = {}
    for record in records:
        minutes.setdefault(record["together"], []).append(record["seconds"] / 60)
    return "; ".join(
        f"{n} networks together, the first done after {min(entry):.0f} minutes, the last after {max(entry):.0f}"
        for n, entry in sorted(minutes.items())
    )


def _table(data: str, records: Sequence[Record], numbers: dict[str, Number]) -> str:
    heads = ["loss", "seeds", "epoch kept", *(name for name, _, _ in COLUMNS.values())]
    rows = []
    for rule, words in RULES.items():
        for method in _methods(records):
            runs = _runs(records, method)
            epochs = "/".join(str(run["rules"][rule]["epoch"]) for run in runs)
            cells = [
                interval(numbers[f"{data}.{method}.{rule}.none.{metric}"], digits)
                for metric, (_, _, digits) in COLUMNS.items()
            ]
            cells += [interval(numbers[f"{data}.{method}.{rule}.{row}.ece"], 2) for row in ("TS", "TS (grid)")]
            rows.append([method, str(len(runs)), f"{words}: {epochs}", *cells])
    return table(f"Tables 1 to 3, {DATA[data]}", [*heads, "ECE at T", "ECE at T (grid)"], rows)


def _gammas(records: Sequence[Record]) -> str:
    lines = ["### γ over the epochs", "", "Mean ± standard deviation over the samples named.", ""]
    for record in records:
        described = [entry for entry in record["numbers"]["epochs"] if "gamma_mean" in entry]
        if described:
            picked = described[:: max(1, len(described) // 8)]
            cell = record["cell"]
            for part, prefix in (("calibration", ""), ("test", "test_")):
                if f"{prefix}gamma_mean" in picked[0]:
                    words = "; ".join(
                        f"{entry['epoch']}: {entry[f'{prefix}gamma_mean']:.2f} ± {entry[f'{prefix}gamma_std']:.2f}"
                        for entry in picked
                    )
                    lines.append(f"- {cell['method']}, seed {cell['seed']}, {part}: {words}.")
    return "\n".join(lines) if len(lines) > 4 else ""


def _runs(records: Sequence[Record], method: str) -> list[dict[str, Any]]:
    own = [record for record in records if record["cell"]["method"] == method]
    return [record["numbers"] for record in sorted(own, key=lambda one: one["cell"]["seed"])]


def _estimate(row: Mapping[str, Sequence[float]], metric: str) -> Estimate:
    """Return one network's number as the page shows it. Records have the accuracy instead of the error."""
    _, scale, _ = COLUMNS[metric]
    value, low, high = (scale * end for end in row["accuracy" if metric == "error" else metric])
    return (100 - value, 100 - high, 100 - low) if metric == "error" else (value, low, high)

"""The page and the section of the results that the records of :mod:`benchmarks.tabular` give."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple, TypeAlias

from benchmarks.bounds import Bound

__all__ = ["PAGE", "section", "write_page"]

PAGE = Path(__file__).parents[1] / "docs" / "tabular-study.md"
Record: TypeAlias = dict[str, Any]

PAIRS = {"temperature": "temperature", "platt": "sigmoid", "isotonic_ovr": "isotonic"}  # ours, scikit-learn's
NETWORK_METHODS = ("svs", "sms", "order_invariant", "dirichlet_odir")
WITHIN, WITHIN_ON_NETWORKS = 1.01, 1.005
POINT = 0.01  # of accuracy
FEW = 500  # calibration samples
MOST_NAMED = 10  # exceptions in a line of the summary
_T = 2.776  # two-sided 95 % of Student's t with four degrees of freedom: five splits

TITLE = """\
# Calibration behind scikit-learn's models

<!-- Written by `python -m benchmarks tabular` from benchmarks/tabular.jsonl; edit benchmarks/tabular_page.py. -->

Is `auto` as good as the best method, and are our methods as good as scikit-learn's? Four data sets (digits, wine,
breast cancer and a synthetic one of 20 classes) behind six models. Five times a fifth of the samples trains the model,
two fifths calibrate it and two fifths test it. Numbers are the **log-loss on the test samples, mean over the five
splits**. Every method gets `predict_proba` and nothing else. For wine and breast cancer the records of x86_64 are of an
earlier `auto`, which averaged `sms` and `platt` alone; those of aarch64 are of the present one, which also averages
`temperature` and no calibration: it is safer across models, and a little worse on the 71 calibration samples of wine.
"""

READING = """\
`before` is the model's own log-loss; `best` is the method with the lowest mean among all {methods} of the catalogue,
chosen on the test samples, which nobody can do in practice. `scikit-learn` is the lowest of the three calibrations of
`CalibratedClassifierCV` (temperature, sigmoid, isotonic), chosen in the same way. **Bold**: `auto` is within 1 % of
`best`. `auto` against temperature is *lower*, *higher* or *alike*: the corrected t-test of five overlapping splits
(Nadeau and Bengio, 2003), two-sided, 5 %.
"""


HINDSIGHT = """\
How much of `best` is luck? With {few} calibration samples or fewer ({cases} cases), the method that is best on four of
the splits is within 1 % of the best on the fifth in {known_near:.0%} of the splits, and {known_above:.0%} above it on
average; `auto`, which sees no test samples at all, in {auto_near:.0%}, and {auto_above:.0%} above it.
"""


class Case(NamedTuple):
    """One data set behind one model on one kind of processor: its splits."""

    data: str
    model: str
    splits: tuple[Record, ...]

    def means(self, score: str = "nll") -> dict[str, float]:
        """Mean over the splits, of every method that could be fitted in all of them."""
        names = self.splits[0]["methods"]
        fitted = [name for name in names if all("failure" not in each["methods"][name] for each in self.splits)]
        return {name: mean(each["methods"][name][score] for each in self.splits) for name in fitted}

    @property
    def best(self) -> str:
        """The method with the lowest mean."""
        means = self.means()
        return min(means, key=means.__getitem__)

    @property
    def auto(self) -> float:
        """Of ``auto``, mean over the splits."""
        return mean(each["auto"]["nll"] for each in self.splits)

    @property
    def near_best(self) -> bool:
        """Whether ``auto`` is within 1 % of the best."""
        return self.auto <= WITHIN * self.means()[self.best]

    def side(self, other: str) -> str:
        """Whether ``auto`` is lower, higher or alike, beyond the noise of the splits."""
        pairs = [each for each in self.splits if "failure" not in each["methods"][other]]
        if len(pairs) < 2:
            return "alike"
        change = [each["auto"]["nll"] - each["methods"][other]["nll"] for each in pairs]
        first = pairs[0]
        share = first["test"] / (first["training"] + first["calibration"])
        half = _T * stdev(change) * math.sqrt(1 / len(pairs) + share)
        return "alike" if abs(mean(change)) <= half else "lower" if mean(change) < 0 else "higher"

    def above_best(self) -> tuple[list[float], list[float]]:
        """How far ``auto``, and the method that is best on the other splits, are above the best of a split, in logs."""
        auto, known = [], []
        for place, split in enumerate(self.splits):
            scores = {name: each["nll"] for name, each in split["methods"].items() if "failure" not in each}
            others = Case(self.data, self.model, self.splits[:place] + self.splits[place + 1 :]).means()
            lowest = min(scores.values())
            auto.append(math.log(split["auto"]["nll"] / lowest))
            known.append(
                math.log(scores[min((name for name in others if name in scores), key=others.__getitem__)] / lowest)
            )
        return auto, known


class Claim(NamedTuple):
    """Something promised, and the cases that break it."""

    what: str
    broken: tuple[str, ...]
    of: int


def gathered(records: Sequence[Record], *, machine: str) -> tuple[list[Case], list[Case]]:
    """The scikit-learn cases and the networks of one kind of processor, in the records' order of names."""
    splits: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for each in records:
        if each["machine"] == machine:
            splits[each["data"], each["model"]].append(each)
    cases = [Case(*name, tuple(sorted(found, key=lambda each: each["split"]))) for name, found in splits.items()]
    order = ("digits", "wine", "breast cancer", "synthetic")
    tabular = [case for case in cases if case.model]
    tabular.sort(key=lambda case: (order.index(case.data), case.model.lower()))
    return tabular, sorted(case for case in cases if not case.model)


def claims(cases: Sequence[Case], networks: Sequence[Case]) -> list[Claim]:
    """What is promised of the methods, on one kind of processor."""

    def broken(what: str, names: Sequence[str], of: int | None = None) -> Claim:
        return Claim(what, tuple(names), len(cases) if of is None else of)

    found = [
        broken("`auto` within 1 % of the best method", [_name(case) for case in cases if not case.near_best]),
        broken(
            "`auto` not higher than the best method beyond noise",
            [_name(case) for case in cases if case.side(case.best) == "higher"],
        ),
        broken(
            "`auto` not higher than temperature beyond noise",
            [_name(case) for case in cases if case.side("temperature") == "higher"],
        ),
    ]
    for ours, theirs in PAIRS.items():
        above = [_name(case) for case in cases if _ratio(case, ours, theirs) > WITHIN]
        found.append(broken(f"`{ours}` at most scikit-learn's {theirs} + 1 %", above))
    silent = [f"{_name(case)}: {name}" for case in cases for name in _silent(case)]
    found.append(broken("no accuracy lower by more than a point, mean of five splits, without a warning", silent))
    above = [case.data for case in networks if case.auto > WITHIN_ON_NETWORKS * _best_of(case)]
    found.append(broken("`auto` within .5 % of the best of four methods on the networks", above, len(networks)))
    return found


def write_page(records: Sequence[Record]) -> None:
    """The whole page, from the records alone."""
    machines = sorted({each["machine"] for each in records}, reverse=True)
    parts = [TITLE, _summary(records, machines)]
    cases, networks = gathered(records, machine=machines[0])
    methods = len(cases[0].splits[0]["methods"])
    parts += [f"## Case by case, on {machines[0]}\n", _cases_table(cases), READING.format(methods=methods)]
    parts += [_hindsight(cases)]
    parts += ["## Beside scikit-learn\n", _pairs_table(cases)]
    parts += ["## Every method\n", _methods_table(cases)]
    if networks:
        parts += ["## Networks of 100 classes\n", _networks_table(networks)]
    PAGE.write_text("\n".join(parts), encoding="utf-8")


def section(records: Sequence[Record]) -> str:
    """For RESULTS.md: what was promised, on every kind of processor that has records."""
    lines = ["## Log-loss behind scikit-learn's models", "", f"Case by case: [{PAGE.name}](../docs/{PAGE.name})."]
    for machine in sorted({each["machine"] for each in records}, reverse=True):
        cases, networks = gathered(records, machine=machine)
        near = sum(case.near_best for case in cases)
        lines += ["", f"On {machine}, {len(cases)} cases of five splits and {len(networks)} networks:", ""]
        lines.append(str(Bound("cases in which `auto` is within 1 % of the best method", near, at_least=20)))
        lines += [
            str(Bound(f"cases that break: {each.what}", len(each.broken), at_most=0))
            for each in claims(cases, networks)[2:]
        ]
    return "\n".join(lines) + "\n"


def _summary(records: Sequence[Record], machines: Sequence[str]) -> str:
    """How often each promise holds, on every kind of processor."""
    by_machine = {machine: claims(*gathered(records, machine=machine)) for machine in machines}
    lines = ["| holds in so many cases | " + " | ".join(machines) + " | not in |", "|---" * (len(machines) + 2) + "|"]
    for row in zip(*by_machine.values(), strict=True):
        counts = [f"{each.of - len(each.broken)} of {each.of}" for each in row]
        exceptions = sorted({name for each in row for name in each.broken})
        shown = "; ".join(exceptions[:MOST_NAMED]) + (
            f"; {len(exceptions) - MOST_NAMED} more" * (len(exceptions) > MOST_NAMED)
        )
        lines.append(f"| {row[0].what} | " + " | ".join(counts) + f" | {shown or '–'} |")
    return "\n".join(lines) + "\n"


def _hindsight(cases: Sequence[Case]) -> str:
    """What can be expected of a rule that does not see the test samples, where calibration samples are few."""
    small = [case for case in cases if case.splits[0]["calibration"] <= FEW]
    auto, known = (
        [value for values in found for value in values]
        for found in zip(*(case.above_best() for case in small), strict=True)
    )
    near = [mean(value <= math.log(WITHIN) for value in values) for values in (known, auto)]
    above = [math.expm1(mean(values)) for values in (known, auto)]
    return HINDSIGHT.format(
        few=FEW, cases=len(small), known_near=near[0], auto_near=near[1], known_above=above[0], auto_above=above[1]
    )


def _cases_table(cases: Sequence[Case]) -> str:
    heading = ("before", "temperature", "`auto`", "best", "best method", "scikit-learn", "`auto` against temperature")
    lines = [f"| data | model | {' | '.join(heading)} | `auto` took |", "|---" * 10 + "|"]
    for case in cases:
        means = case.means()
        auto = f"**{case.auto:.4f}**" if case.near_best else f"{case.auto:.4f}"
        theirs = min(mean(each["scikit-learn"][name] for each in case.splits) for name in PAIRS.values())
        picks = Counter(each["auto"]["pick"] for each in case.splits)
        lines.append(
            f"| {case.data} | {case.model} | {means['uncalibrated']:.4f} | {_number(means.get('temperature'))} | "
            f"{auto} | {means[case.best]:.4f} | {case.best} | {theirs:.4f} | {case.side('temperature')} | "
            f"{', '.join(f'{name} {count}' if count > 1 else name for name, count in picks.most_common())} |"
        )
    return "\n".join(lines) + "\n"


def _pairs_table(cases: Sequence[Case]) -> str:
    heading = " | ".join(f"{ours} | {theirs}" for ours, theirs in PAIRS.items())
    lines = [f"| data | model | {heading} |", "|---" * (2 + 2 * len(PAIRS)) + "|"]
    for case in cases:
        means = case.means()
        cells = []
        for ours, theirs in PAIRS.items():
            value = mean(each["scikit-learn"][theirs] for each in case.splits)
            text = _number(means.get(ours))
            cells += [text if _ratio(case, ours, theirs) <= WITHIN else f"{text} (higher)", f"{value:.4f}"]
        lines.append(f"| {case.data} | {case.model} | " + " | ".join(cells) + " |")
    return "Ours, then scikit-learn's of the same kind.\n\n" + "\n".join(lines) + "\n"


def _methods_table(cases: Sequence[Case]) -> str:
    """How far each method is above the best: the middle case, the worst, and how often it is the best."""
    above: dict[str, list[float]] = defaultdict(list)
    for case in cases:
        means = case.means()
        for name, value in means.items():
            above[name].append(value / means[case.best] - 1)
        above["auto"].append(case.auto / means[case.best] - 1)
    best = Counter(case.best for case in cases)
    rows = sorted((sorted(values)[len(values) // 2], max(values), name, len(values)) for name, values in above.items())
    lines = [
        "| method | above the best, in the middle case | in its worst | fitted in | the best in |",
        "|---" * 5 + "|",
    ]
    lines += [
        f"| `{name}` | {100 * middle:.1f} % | {100 * worst:.0f} % | {n} of {len(cases)} | {best[name] or ''} |"
        for middle, worst, name, n in rows
    ]
    return "\n".join(lines) + "\n"


def _networks_table(cases: Sequence[Case]) -> str:
    names = ("uncalibrated", "temperature", *NETWORK_METHODS)
    lines = ["| network | " + " | ".join(names) + " | `auto` | `auto` took |", "|---" * (len(names) + 3) + "|"]
    for case in cases:
        means, picks = case.means(), Counter(each["auto"]["pick"] for each in case.splits)
        taken = ", ".join(f"{name} {count}" if count > 1 else name for name, count in picks.most_common())
        cells = " | ".join(_number(means.get(name)) for name in names)
        lines.append(f"| {case.data} | {cells} | {case.auto:.4f} | {taken} |")
    return "\n".join(lines) + "\n"


def _name(case: Case) -> str:
    return f"{case.data} {case.model}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _ratio(case: Case, ours: str, theirs: str) -> float:
    """Our log-loss divided by scikit-learn's, over the splits in which ours could be fitted."""
    fitted = [each for each in case.splits if "failure" not in each["methods"][ours]]
    if not fitted:
        return math.nan
    mine, other = (
        mean(found)
        for found in zip(
            *((each["methods"][ours]["nll"], each["scikit-learn"][theirs]) for each in fitted), strict=True
        )
    )
    return mine / other


def _silent(case: Case) -> list[str]:
    """Methods that lower the accuracy by more than a point in the mean, and never warn of it."""
    before = case.means("accuracy")["uncalibrated"]
    return [
        name
        for name, value in case.means("accuracy").items()
        if value < before - POINT and not any(each["methods"][name]["warned"] for each in case.splits)
    ]


def _best_of(case: Case) -> float:
    means = case.means()
    return min(means[name] for name in NETWORK_METHODS if name in means)

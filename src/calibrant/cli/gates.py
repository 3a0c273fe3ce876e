"""Gates of ``calibrant evaluate``: conditions on metrics, or on differences from a baseline, that decide the exit code.

``--fail-if 'ece>0.05'`` fails if the condition is shown to hold: the whole interval is beyond the bound.
``--fail-unless 'ece<0.05'`` passes if it is shown to hold. So noise never fails the first, and never passes the second.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias, final

from calibrant.errors import InputError, terminal_text

if TYPE_CHECKING:
    from calibrant.evidence import Difference, Estimate
    from calibrant.report import Section

Option: TypeAlias = Literal["--fail-if", "--fail-unless"]
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_CONDITION = re.compile(rf"\s*(\w+)\s*([<>])=?\s*({_NUMBER})\s*")
_DIFFERENCE = "_difference"


class Quantity(Protocol):
    """A number with its interval: an estimate or a difference."""

    @property
    def value(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


@final
@dataclass(frozen=True)
class Gate:
    """A condition of one of the two options; ``of_point`` reads the value alone, not its interval."""

    option: Option
    quantity: str  # name of a metric, or of its difference, such as nll_difference
    above: bool
    bound: float
    of_point: bool = False

    @classmethod
    def parse(cls, text: str, option: Option, *, of_point: bool = False) -> Self:
        """Read a condition such as ``ece>0.05`` or ``nll_difference>0.01``."""
        from calibrant import catalogue

        parts = _CONDITION.fullmatch(text)
        if parts is None:
            example = "'ece>0.05' or 'nll_difference>0.01'" if option == "--fail-if" else "'ece<0.05' or 'auroc>0.8'"
            raise InputError(f"{option} must read like {example}; got {text!r}.")
        name, suffix = parts[1], ""
        if name not in catalogue.metrics and name.lower().endswith(_DIFFERENCE):
            name, suffix = name[: -len(_DIFFERENCE)], _DIFFERENCE
        return cls(option, catalogue.metrics.parse(name).name + suffix, parts[2] == ">", float(parts[3]), of_point)

    @property
    def needs_baseline(self) -> bool:
        """Whether it is about the difference from a baseline."""
        return self.quantity.endswith(_DIFFERENCE)

    def check_is_reported(self, metrics: Iterable[str], *, has_baseline: bool) -> None:
        """Check that the metric is among those of the report, and that there is a baseline if it needs one."""
        if self.quantity.removesuffix(_DIFFERENCE) not in metrics:
            raise InputError(
                f"{self.option} must name a metric of the report; {self.quantity} needs the probabilities of all "
                "classes, or is excluded from reports."
            )
        if self.needs_baseline and not has_baseline:
            raise InputError(f"{self.quantity} must have something to differ from: add --baseline FILE.")

    def holds(self, quantities: Mapping[str, Quantity]) -> bool:
        """Return whether the condition is shown to hold; an InputError if there is no number to decide it by."""
        number = quantities[self.quantity]
        nearest = number.value if self.of_point else number.low if self.above else number.high
        if math.isnan(nearest):
            hint = "" if self.of_point or math.isnan(number.value) else " --point reads its value alone."
            needed = "a value" if self.of_point else "an interval"
            raise InputError(
                f"{self.option} needs {needed}; {self.quantity} has none here (too few samples, or undefined).{hint}"
            )
        return nearest > self.bound if self.above else nearest < self.bound

    def fails(self, quantities: Mapping[str, Quantity]) -> bool:
        """Return whether the gate fails."""
        return self.holds(quantities) == (self.option == "--fail-if")

    @property
    def condition(self) -> str:
        """The condition, spelled evenly."""
        return f"{self.quantity} {'>' if self.above else '<'} {self.bound:g}"

    def outcome(self, quantities: Mapping[str, Quantity]) -> str:
        """Return whether the condition holds, or is shown to."""
        if self.holds(quantities):
            return "holds"
        return "does not hold" if self.option == "--fail-if" or self.of_point else "is not shown"

    def evidence(self, quantities: Mapping[str, Quantity]) -> str:
        """Return the value and its interval."""
        number = quantities[self.quantity]
        interval = "" if math.isnan(number.low) else f", interval {number.low:.4f} to {number.high:.4f}"
        return f"{number.value:.4f}{interval}"

    def describe(self, quantities: Mapping[str, Quantity]) -> str:
        """Return the gate, whether its condition holds, and the evidence in one line."""
        return f"{self.option} {self.condition}: {self.outcome(quantities)} ({self.evidence(quantities)})"


def quantities_of(
    estimates: "Mapping[str, Estimate]", differences: "Mapping[str, Difference] | None"
) -> dict[str, Quantity]:
    """Return everything that a gate can be about, by name."""
    return {**estimates, **{f"{name}{_DIFFERENCE}": change for name, change in (differences or {}).items()}}


def gates_section(gates: Iterable[Gate], quantities: Mapping[str, Quantity]) -> "Section":
    """Return the gates as a section of a report."""
    from calibrant.report.page import Cell, Section, table

    rows = []
    for gate in gates:
        failed = gate.fails(quantities)
        outcome = Cell("failed" if failed else "passed", "worse" if failed else "better", bold=failed)
        given = f"{gate.option} {gate.condition}"
        rows.append([Cell(given, code=True), outcome, gate.outcome(quantities), gate.evidence(quantities)])
    header = ("condition", "gate", "the condition", "evidence")
    return Section("Gates", (table(header, rows, text=(0, 1, 2, 3)),))


def gates_data(gates: Iterable[Gate], quantities: Mapping[str, Quantity]) -> list[dict[str, Any]]:
    """Return the gates as plain data, for JSON."""
    from calibrant.report import to_plain

    kept = ("value", "low", "high")
    return [
        {
            "option": gate.option,
            "condition": gate.condition,
            "failed": gate.fails(quantities),
            **{name: to_plain(getattr(quantities[gate.quantity], name)) for name in kept},
        }
        for gate in gates
    ]


def write_junit(path: Path, gates: Iterable[Gate], quantities: Mapping[str, Quantity], *, source: str) -> None:
    """Write the gates as JUnit XML: one test case for each, in the suite of this file of predictions."""
    from xml.etree import ElementTree as ET

    from calibrant.atomic import atomic_binary

    gates, name = list(gates), terminal_text(source)
    failures = sum(gate.fails(quantities) for gate in gates)
    counts = {"tests": str(len(gates)), "failures": str(failures), "errors": "0"}
    root = ET.Element("testsuites", counts)
    suite = ET.SubElement(root, "testsuite", {"name": "calibrant evaluate", **counts})
    for gate in gates:
        case = ET.SubElement(suite, "testcase", {"classname": name, "name": f"{gate.option} {gate.condition}"})
        described = gate.describe(quantities)
        if gate.fails(quantities):
            ET.SubElement(case, "failure", {"message": described}).text = described
        else:
            ET.SubElement(case, "system-out").text = described
    ET.indent(root)
    with atomic_binary(path) as file:
        ET.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)

"""Gates: conditions on metrics, on slices, or on differences from a baseline, that an evaluation must meet.

They are options of ``calibrant evaluate`` and of :func:`calibrant.testing.assert_calibrated`. ``fail_if`` a condition,
such as ``ece>0.05``, fails if it is shown to hold: the whole interval is beyond the bound. ``fail_unless`` ``ece<0.05``
passes if it is shown to hold. So noise never fails the first, and never passes the second. ``worst(region).ece`` is the
worst slice of a column, with an interval that allows for the number of slices.

Of two classes, calibration errors are those of the probability of the positive class, as in the report, and
``risk_auroc`` is the AUROC of that probability; all other metrics of the top label are of the predicted class.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self, TypeAlias, final

from calibrant.errors import Argument, InputError

if TYPE_CHECKING:
    from calibrant.evidence import Difference, Estimate
    from calibrant.metrics import Metric
    from calibrant.predictions import Predictions, TopLabel

Option: TypeAlias = Literal["fail_if", "fail_unless"]
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_CONDITION = re.compile(rf"\s*(worst\(([^()]+)\)\.)?(\w+)\s*([<>]=?)\s*({_NUMBER})\s*")
_DIFFERENCE, _RISK_AUROC = "_difference", "risk_auroc"
Quantity: TypeAlias = "Estimate | Difference"  # a number with its interval


@final
@dataclass(frozen=True)
class Gate:
    """A condition of one of the two options; ``of_point`` reads the value alone, not its interval."""

    option: Option
    quantity: str  # name of a metric, of its difference, such as nll_difference, or of a slice, worst(region).ece
    above: bool
    bound: float
    of_point: bool = False
    column: str = ""  # of the slices, where it is about them
    or_equal: bool = False
    subject: str = ""  # what the metric is of, where that is not the same for all metrics

    @classmethod
    def parse(cls, text: str, option: Option, *, of_point: bool = False) -> Self:
        """Read a condition such as ``ece>0.05`` or ``nll_difference>0.01``."""
        from calibrant import catalogue

        parts = _CONDITION.fullmatch(text)
        if parts is None:
            example = "'ece>0.05' or 'nll_difference>0.01'" if option == "fail_if" else "'ece<0.05' or 'auroc>0.8'"
            raise InputError(Argument(option), f" must read like {example}; got {text!r}.")
        prefix, column, name, sign, bound = parts.groups(default="")
        suffix = ""
        if not prefix and name not in catalogue.metrics and name.lower().endswith(_DIFFERENCE):
            name, suffix = name[: -len(_DIFFERENCE)], _DIFFERENCE
        if name != _RISK_AUROC or prefix or suffix:
            name = catalogue.metrics.parse(name).name
        gate = cls(
            option, f"{prefix}{name}{suffix}", sign[0] == ">", float(bound), of_point, column, or_equal=sign[1:] == "="
        )
        largest, smallest = 1.0, 0.0
        if name != _RISK_AUROC:
            metric = catalogue.metrics[name]
            largest, smallest = metric.largest, -math.inf if metric.may_be_negative else 0.0
        gate._check_bound(-largest if suffix else smallest, largest)
        return gate

    def _check_bound(self, smallest: float, largest: float) -> None:
        """Check that there are values on both sides of the bound."""
        below_all = smallest <= self.bound if self.above != self.or_equal else smallest < self.bound
        above_all = self.bound < largest if self.above != self.or_equal else self.bound <= largest
        if below_all and above_all:
            return
        percent = f" {self.bound:g} % is {self.bound / 100:g}." if 1 <= abs(self.bound) <= 100 and largest == 1 else ""
        values = f"it lies in {smallest:g}..{largest:g}" if math.isfinite(largest) else "it is at least 0"
        raise InputError(
            Argument(self.option),
            f" must have a bound with values of {self.quantity} on both sides: {values}; "
            f"got {self.condition!r}.{percent}",
        )

    @property
    def needs_baseline(self) -> bool:
        """Whether it is about the difference from a baseline."""
        return self.quantity.endswith(_DIFFERENCE)

    def of_two_classes(self, positive: str, *, of_answers: bool = False) -> Self:
        """Return the gate with words on whether it is about the probability of the positive class or the predicted one.

        ``positive`` are words for the positive class; ``of_answers``: it is that of being right.
        """
        from calibrant import catalogue
        from calibrant.evidence import is_of_risk
        from calibrant.metrics.states import TopStatistic

        name = self.quantity.removesuffix(_DIFFERENCE).removeprefix(f"worst({self.column}).")
        if name == _RISK_AUROC or is_of_risk(catalogue.metrics[name], of_answers=of_answers):
            return replace(self, subject=f"of the probability of {positive}")
        of_top = isinstance(catalogue.metrics[name].statistic, TopStatistic)
        return replace(self, subject="of the predicted class") if of_top else self

    def check_is_reported(self, metrics: Iterable[str], *, has_baseline: bool, columns: Iterable[str] = ()) -> None:
        """Check that the metric is among those of the report, and that there is a baseline if it needs one.

        ``columns`` are those that samples are sliced by.
        """
        if self.column:
            if self.column not in columns:
                raise InputError(f"{self.quantity} must be about slices; add ", Argument("by", self.column), ".")
            return
        if self.quantity.removesuffix(_DIFFERENCE) not in metrics:
            raise InputError(
                Argument(self.option),
                f" must name a metric of the report; {self.quantity} needs the probabilities of "
                + ("two classes." if self.quantity == _RISK_AUROC else "all classes, or is excluded from reports."),
            )
        if self.needs_baseline and not has_baseline:
            raise InputError(f"{self.quantity} must have something to differ from; got no ", Argument("baseline"), ".")

    def decide(self, quantities: Mapping[str, Quantity]) -> "Outcome":
        """Return whether the condition is shown to hold; an InputError if there is no number to decide it by."""
        number = quantities.get(self.quantity)
        if number is None:  # of slices, which have fewer metrics
            known = ", ".join(name for name in quantities if name.startswith(f"worst({self.column})"))
            raise InputError(Argument(self.option), f" must name a metric of slices: {known}; got {self.quantity}.")
        nearest = number.value if self.of_point else number.low if self.above else number.high
        if math.isnan(nearest):
            needed = " needs a value" if self.of_point else " needs an interval"
            missing = f"{needed}; {self.quantity} has none here (too few samples, or undefined). "
            hint = () if self.of_point else ("To decide by the value alone: ", Argument("point"), ".")
            raise InputError(Argument(self.option), missing, *hint)
        return Outcome(self, number, self.or_equal if nearest == self.bound else (nearest > self.bound) == self.above)

    @property
    def condition(self) -> str:
        """The condition, spelled evenly."""
        return f"{self.quantity} {'>' if self.above else '<'}{'=' if self.or_equal else ''} {self.bound:g}"


@final
@dataclass(frozen=True)
class Outcome:
    """A gate, the number that decides it, and whether its condition is shown to hold."""

    gate: Gate
    number: Quantity
    holds: bool

    @property
    def failed(self) -> bool:
        """Whether the gate fails."""
        return self.holds == (self.gate.option == "fail_if")

    @property
    def verdict(self) -> str:
        """Whether the condition holds, or is shown to, in words."""
        is_decided = self.gate.option == "fail_if" or self.gate.of_point
        return "holds" if self.holds else "does not hold" if is_decided else "is not shown"

    @property
    def evidence(self) -> str:
        """The value and its interval, and what they are of where that is not the same for all metrics."""
        number = self.number
        interval = "" if math.isnan(number.low) else f", interval {number.low:.4f} to {number.high:.4f}"
        return ", ".join(filter(None, (f"{number.value:.4f}{interval}", self.gate.subject)))

    def __str__(self) -> str:
        return f"{self.gate.condition}: {self.verdict} ({self.evidence})"


def reported_names(metrics: "Iterable[Metric]", predictions: "Predictions | TopLabel") -> list[str]:
    """Return the names that gates may use, given the metrics of the report."""
    from calibrant.predictions import has_risk

    return [*(metric.name for metric in metrics), *([_RISK_AUROC] if has_risk(predictions) else [])]


def quantities_of(
    estimates: "Mapping[str, Estimate]",
    differences: "Mapping[str, Difference] | None",
    slices: "Mapping[str, Estimate] | None" = None,
) -> dict[str, Quantity]:
    """Return everything that a gate can be about, by name; ``slices`` are the worst of each column."""
    changes = {f"{name}{_DIFFERENCE}": change for name, change in (differences or {}).items()}
    return {**estimates, **changes, **(slices or {})}

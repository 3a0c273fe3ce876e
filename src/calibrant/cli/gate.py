"""Conditions such as ``ece>0.05`` that make a run fail."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self, final

from calibrant.catalogue import find_metric
from calibrant.errors import InputError
from calibrant.evidence import Estimate
from calibrant.metrics import Metric

__all__ = ["Gate"]


@final
@dataclass(frozen=True)
class Gate:
    """A bound on a metric that the whole interval must break before it fails: noise alone never does.

    Example:
        >>> gate = Gate.parse("ece > 0.05")
        >>> gate.fails({"ece": Estimate(0.07, 0.06, 0.08)}), gate.fails({"ece": Estimate(0.07, 0.04, 0.09)})
        (True, False)
    """

    metric: str
    above: bool
    bound: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a condition.

        Raises:
            InputError: If it is not a metric, ``<`` or ``>``, and a number.
        """
        found = re.fullmatch(r"\s*(\w+)\s*([<>])=?\s*([-+0-9.eE]+)\s*", text)
        try:
            name, sign, number = found.groups()  # type: ignore[union-attr]
            return cls(find_metric(name).name, sign == ">", float(number))
        except (AttributeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"--fail-if must read like 'ece>0.05' or 'auroc<0.8'; got {text!r}.") from error

    def check_measured(self, metrics: Iterable[Metric]) -> None:
        """Refuse a gate on a metric that is not among those to be measured."""
        if self.metric not in {metric.name for metric in metrics}:
            raise InputError(
                f"--fail-if must name a metric that is measured; {self.metric} needs the probabilities of all classes, "
                "or is left out of reports."
            )

    def fails(self, estimates: dict[str, Estimate]) -> bool:
        """Whether the interval lies wholly beyond the bound.

        Raises:
            InputError: If there is no interval to decide by.
        """
        found = estimates[self.metric]
        edge = found.low if self.above else found.high
        if math.isnan(edge):
            raise InputError(
                f"--fail-if needs an interval to decide by; {self.metric} has none here (too few rows, or undefined)."
            )
        return edge > self.bound if self.above else edge < self.bound

    def describe(self, estimates: dict[str, Estimate]) -> str:
        """What was found, in one line."""
        found = estimates[self.metric]
        verb = "failed" if self.fails(estimates) else "passed"
        sign = ">" if self.above else "<"
        return (
            f"gate {self.metric} {sign} {self.bound:g}: {verb} "
            f"({found.value:.4f}, interval {found.low:.4f} to {found.high:.4f})"
        )

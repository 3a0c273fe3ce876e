"""Numbers behind the figure of a comparison of methods."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from calibrant.evidence import Side

if TYPE_CHECKING:
    from calibrant.comparison import Comparison

__all__ = ["ComparisonDiagram", "Dot", "MethodDots", "comparison_diagram"]


@final
@dataclass(frozen=True)
class Dot:
    """A number with its 95 % interval, NaN where there is none, and how it compares with the baseline's."""

    value: float
    low: float
    high: float
    side: Side = "alike"


@final
@dataclass(frozen=True)
class MethodDots:
    """Numbers of one method."""

    name: str
    nll_change: Dot  # its log-loss minus the baseline's: below 0 it is better
    ece: Dot
    auroc_change: Dot  # its AUROC minus the baseline's: above 0 it is better
    recommended: bool = False


@final
@dataclass(frozen=True)
class ComparisonDiagram:
    """Methods in order, best first."""

    methods: tuple[MethodDots, ...]
    baseline: str  # name of the method that the others are compared with
    n: int
    left_out: tuple[str, ...] = ()  # methods without numbers
    effective_n: float | None = None  # of weighted samples
    of_two: bool = False  # classes; the ECE is then of the probability of the second


def comparison_diagram(comparison: "Comparison") -> ComparisonDiagram:
    """Return the numbers behind the figure of a comparison."""
    methods = []
    for method in comparison.fitted:
        differences = method.differences.get(comparison.baseline, {})
        nll, auroc = (
            Dot(change.value, change.low, change.high, change.side) if change else Dot(0.0, math.nan, math.nan)
            for change in (differences.get("nll"), differences.get("auroc"))
        )
        ece, side = method.metrics["ece"], differences["ece"].side if differences else "alike"
        dot = Dot(ece.value, ece.low, ece.high, side)
        methods.append(MethodDots(method.name, nll, dot, auroc, recommended=method is comparison.recommended))
    left_out = tuple(method.name for method in comparison.methods if method.failure is not None)
    size, of_two = (comparison.n_test, left_out, comparison.effective_n_test), comparison.n_classes == 2
    return ComparisonDiagram(tuple(methods), comparison.baseline, *size, of_two)

"""Numbers behind the figure of a comparison of methods."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, final

if TYPE_CHECKING:
    from calibrant.comparison import Comparison, MethodResult

__all__ = ["ComparisonDiagram", "Dot", "DotSide", "MethodDots", "comparison_diagram"]

DotSide: TypeAlias = Literal["better", "worse", "alike"]


@final
@dataclass(frozen=True)
class Dot:
    """A number with its 95 % interval, and whether it is better or worse than the baseline's beyond noise.

    NaN bounds where there is no interval, as for a difference to itself.
    """

    value: float
    low: float
    high: float
    side: DotSide = "alike"


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
    baseline: str  # the name of the method that the others are compared with
    n: int
    left_out: tuple[str, ...] = ()  # methods without numbers


def comparison_diagram(comparison: "Comparison") -> ComparisonDiagram:
    """Return the numbers behind the figure of a comparison."""
    baseline = comparison.baseline

    def change(method: "MethodResult", metric: str) -> Dot:
        if baseline not in method.differences:
            return Dot(0.0, math.nan, math.nan)
        difference = method.differences[baseline][metric]
        return Dot(difference.value, difference.low, difference.high, difference.side)

    def ece(method: "MethodResult") -> Dot:
        number = method.metrics["ece"]
        side = method.differences[baseline]["ece"].side if baseline in method.differences else "alike"
        return Dot(number.value, number.low, number.high, side)

    methods = tuple(
        MethodDots(
            name=method.name,
            nll_change=change(method, "nll"),
            ece=ece(method),
            auroc_change=change(method, "auroc"),
            recommended=method is comparison.recommended,
        )
        for method in comparison.fitted
    )
    left_out = tuple(method.name for method in comparison.methods if method.failure is not None)
    return ComparisonDiagram(methods, baseline, comparison.n_test, left_out)

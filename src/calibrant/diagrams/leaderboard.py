"""Numbers behind the figure of a comparison of methods."""

from dataclasses import dataclass
from typing import Literal, TypeAlias, final

__all__ = ["Dot", "DotSide", "LeaderboardDiagram", "MethodDots"]

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
class LeaderboardDiagram:
    """Methods in order, best first."""

    methods: tuple[MethodDots, ...]
    baseline: str  # the name of the method that the others are compared with
    baseline_words: str
    n: int
    left_out: tuple[str, ...] = ()  # methods without numbers

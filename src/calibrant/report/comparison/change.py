"""How a method's number differs from a rival's, among many methods that are tested at once."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from calibrant.evidence import Difference
from calibrant.evidence.holm import holm
from calibrant.metrics import Metric

__all__ = ["Change", "Side", "changes", "holm"]

Side: TypeAlias = Literal["better", "worse", "alike"]

_LEVEL = 0.05


@final
@dataclass(frozen=True)
class Change:
    """A method's number minus its rival's, with the 95 % interval of this one difference and its p-value.

    ``corrected_p`` is Holm's, over the methods that were compared with the rival in this metric; for the one comparison
    that was planned it is ``p`` itself. ``side`` goes by it. Both are NaN where noise cannot be told, as on one row.
    """

    value: float
    low: float
    high: float
    p: float
    corrected_p: float
    side: Side


def changes(metric: Metric, differences: Mapping[str, Difference], *, planned: str | None = None) -> dict[str, Change]:
    """The differences of several methods to one rival, by method, corrected for their number.

    The planned comparison is the one question that was there before the others were thought of. It is neither corrected
    nor counted, so that its answer stays the same whatever else is tried.
    """
    p = {name: _p(difference) for name, difference in differences.items()}
    corrected = p | holm({name: value for name, value in p.items() if name != planned})
    return {
        name: Change(
            d.difference, d.low, d.high, p[name], corrected[name], _side(metric, d.difference, corrected[name])
        )
        for name, d in differences.items()
    }


def _p(found: Difference) -> float:
    """Its p-value; NaN where all draws are the same, but not zero, which says nothing about noise."""
    # Sums in another order differ in their last digits.
    same = math.isclose(found.low, found.high, rel_tol=1e-9)
    return math.nan if same and found.difference != 0 else found.p


def _side(metric: Metric, difference: float, p: float) -> Side:
    if not p <= _LEVEL or metric.lower_is_better is None:
        return "alike"
    return "better" if (difference < 0) == metric.lower_is_better else "worse"

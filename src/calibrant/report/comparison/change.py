"""How a method's number differs from a rival's, among many methods that are tested at once."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from calibrant.evidence import Difference
from calibrant.metrics import Metric

__all__ = ["Change", "Side", "changes", "holm"]

Side: TypeAlias = Literal["better", "worse", "alike"]

_LEVEL = 0.05


@final
@dataclass(frozen=True)
class Change:
    """A method's number minus its rival's, with the 95 % interval of this one difference and its p-value.

    ``corrected_p`` is Holm's, over all methods that were compared with the rival in this metric; ``side`` goes by it.
    """

    value: float
    low: float
    high: float
    p: float
    corrected_p: float
    side: Side


def changes(metric: Metric, differences: Mapping[str, Difference]) -> dict[str, Change]:
    """The differences of several methods to one rival, by method, corrected for their number."""
    corrected = holm({name: difference.p for name, difference in differences.items()})
    return {
        name: Change(d.difference, d.low, d.high, d.p, corrected[name], _side(metric, d.difference, corrected[name]))
        for name, d in differences.items()
    }


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """Holm's p-values: calling those up to .05 real is wrong about any of them in at most 5 of 100 cases.

    Reference: Holm (1979), A Simple Sequentially Rejective Multiple Test Procedure, Scandinavian Journal of Statistics.

    Example:
        >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
        {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    known = sorted((value, name) for name, value in p.items() if not math.isnan(value))
    corrected, reached = dict(p), 0.0
    for place, (value, name) in enumerate(known):
        reached = max(reached, min(1.0, (len(known) - place) * value))
        corrected[name] = reached
    return corrected


def _side(metric: Metric, difference: float, p: float) -> Side:
    if not p <= _LEVEL or metric.lower_is_better is None:
        return "alike"
    return "better" if (difference < 0) == metric.lower_is_better else "worse"

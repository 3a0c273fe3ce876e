"""Several tests at once: p-values corrected for their number."""

import math
from collections.abc import Mapping

__all__ = ["holm"]


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """Holm's p-values: calling those up to .05 real is wrong about any of them in at most 5 of 100 cases.

    Reference: Holm (1979), A Simple Sequentially Rejective Multiple Test Procedure, Scandinavian Journal of Statistics.

    Args:
        p: Of each test, by name; NaN where it could not be made, which stays so and is not counted.

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

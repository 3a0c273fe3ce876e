"""relplot: the reference implementation of smECE."""

import relplot

from .rows import Rows


def smece_from_top(rows: Rows) -> float:
    """Reflected kernel."""
    return float(relplot.smECE(rows.confidence, rows.correct.astype(float)))


TASKS = {"smece from top": smece_from_top}

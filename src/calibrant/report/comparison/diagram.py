"""From a leaderboard to the numbers of its picture."""

import math

from calibrant.comparison import Comparison, MethodResult
from calibrant.diagrams.leaderboard import Dot, LeaderboardDiagram, MethodDots
from calibrant.report.comparison.rows import rival_of, rival_words

__all__ = ["leaderboard_diagram"]


def leaderboard_diagram(board: Comparison) -> LeaderboardDiagram:
    """What the picture of a leaderboard shows."""
    rival, chosen = rival_of(board), board.recommended
    methods = tuple(
        MethodDots(
            name=entry.name,
            nll_change=_change(entry, "nll", rival),
            ece=_ece(entry, rival),
            auroc_change=_change(entry, "auroc", rival),
            recommended=entry is chosen,
        )
        for entry in board.fitted
    )
    left_out = tuple(entry.name for entry in board.methods if entry.failure is not None)
    return LeaderboardDiagram(methods, rival, rival_words(board), board.n_test, left_out)


def _change(entry: MethodResult, metric: str, rival: str) -> Dot:
    if rival not in entry.differences:
        return Dot(0.0, math.nan, math.nan)
    change = entry.differences[rival][metric]
    return Dot(change.value, change.low, change.high, change.side)


def _ece(entry: MethodResult, rival: str) -> Dot:
    found = entry.metrics["ece"]
    side = entry.differences[rival]["ece"].side if rival in entry.differences else "alike"
    return Dot(found.value, found.low, found.high, side)

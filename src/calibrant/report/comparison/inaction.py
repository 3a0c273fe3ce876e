"""Why nothing is recommended: nothing helps, the test rows are too few to tell, or no method could be fitted."""

import math
from typing import Literal, TypeAlias

from calibrant.report.comparison.board import NOTHING, TEMPERATURE, Entry, Leaderboard

__all__ = ["headline_for_nothing", "step_for_nothing", "undecided"]

Reason: TypeAlias = Literal["nothing helps", "too few rows", "nothing fitted"]

# Share of the log-loss that is worth having; where the rows cannot rule out that much, they do not decide.
_WORTH_HAVING = 0.02
# Fewer test rows decide nothing: the interval of a handful is narrow by luck.
_FEWEST = 30


def headline_for_nothing(board: Leaderboard) -> str:
    """The headline of a board that recommends no method."""
    tried = len(board.fitted) - 1
    none = f"{'no method' if tried == 1 else f'none of {tried} methods'} lowers the log-loss beyond noise."
    if board.cautions and len(board.fitted) > 1:
        return f"These two sets do not carry any advice, as said below: {none}"
    return {
        "nothing helps": f"Leave the predictions as they are: {none}",
        "too few rows": f"Too few test rows to tell whether anything helps: {none}",
        "nothing fitted": "Nothing to compare: no method could be fitted on the calibration rows.",
    }[_reason(board)]


def step_for_nothing(board: Leaderboard) -> str:
    """What to do then."""
    return {
        "nothing helps": "Leave the confidence as it is; recalibrating could only add noise.",
        "too few rows": "Compare on more test rows before deciding; until then leave the confidence as it is.",
        "nothing fitted": "Fit on other rows: the reasons below the table say what they must have.",
    }[_reason(board)]


def undecided(board: Leaderboard) -> Entry | None:
    """The best method, or else temperature scaling, if the rows leave open whether it gains something worth having."""
    tried = (entry for entry in (board.best, board.find(TEMPERATURE)) if entry is not None and entry.name != NOTHING)
    return next((entry for entry in tried if _may_help(board, entry)), None)


def _reason(board: Leaderboard) -> Reason:
    if len(board.fitted) == 1:
        return "nothing fitted"
    return "too few rows" if board.test_rows < _FEWEST or undecided(board) is not None else "nothing helps"


def _may_help(board: Leaderboard, entry: Entry) -> bool:
    change, nothing = entry.against[NOTHING]["nll"], board.find(NOTHING)
    assert nothing is not None, "doing nothing is always on the board"
    return math.isnan(change.p) or not -change.low <= _WORTH_HAVING * nothing.nll

"""Before and after, side by side: the numbers, the words, and their renderings.

What compares methods is loaded when it is first used: an evaluation does without the calibrators.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from calibrant.report.evaluation import Evaluation, evaluate
from calibrant.report.wording import Verdict, verdict

if TYPE_CHECKING:
    from calibrant.report.comparison.board import Entry, Leaderboard, leaderboard
    from calibrant.report.comparison.wording import leaderboard_verdict

__all__ = [
    "Entry",
    "Evaluation",
    "Leaderboard",
    "Verdict",
    "evaluate",
    "leaderboard",
    "leaderboard_verdict",
    "verdict",
]

_HOME = {"Entry": "board", "Leaderboard": "board", "leaderboard": "board", "leaderboard_verdict": "wording"}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'calibrant.report' has no attribute {name!r}")
    return getattr(import_module(f"calibrant.report.comparison.{_HOME[name]}"), name)

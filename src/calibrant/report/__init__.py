"""Before and after, side by side: the numbers, the words, and their renderings.

What compares methods is loaded when it is first used: an evaluation does without the calibrators.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from calibrant.report.evaluation import Evaluation, evaluate
from calibrant.report.wording import Verdict, verdict

if TYPE_CHECKING:
    from calibrant.report.comparison.wording import leaderboard_verdict

__all__ = ["Evaluation", "Verdict", "evaluate", "leaderboard_verdict", "verdict"]


def __getattr__(name: str) -> object:
    if name != "leaderboard_verdict":
        raise AttributeError(f"module 'calibrant.report' has no attribute {name!r}")
    return getattr(import_module("calibrant.report.comparison.wording"), name)

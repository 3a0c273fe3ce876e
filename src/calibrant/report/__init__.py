"""Before and after, side by side: the numbers, the words, and their renderings."""

from calibrant.report.comparison.board import Entry, Leaderboard, leaderboard
from calibrant.report.comparison.wording import leaderboard_verdict
from calibrant.report.evaluation import Evaluation, evaluate
from calibrant.report.wording import Verdict, verdict

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

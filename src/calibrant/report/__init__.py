"""Before and after, side by side: the numbers, the words, and their renderings."""

from calibrant.report.evaluation import Evaluation, evaluate
from calibrant.report.wording import Verdict, verdict

__all__ = ["Evaluation", "Verdict", "evaluate", "verdict"]

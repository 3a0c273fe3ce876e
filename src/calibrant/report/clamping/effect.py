"""What δ does by itself, told apart from what a temperature does that moved with it."""

import math
from dataclasses import dataclass
from typing import final

from calibrant.evidence import Difference, Side
from calibrant.report.comparison import difference_words, points_words

__all__ = ["REFITTED", "DeltaEffect"]

REFITTED = "TS on δ*"
"""T fitted anew for the log-loss at the δ that was found, as an ablation calls it."""


@final
@dataclass(frozen=True)
class DeltaEffect:
    """The same kind of head, at its optimum for the log-loss, behind x + δ and behind x: only δ differs.

    A clamped network against temperature scaling would not do: by a focal loss, or by a descent that stopped early, its
    T is another than the best, and what that gains or costs is not δ's.

    Args:
        moved: Who has δ.
        still: Who has not.
        before: The log-loss without δ.
        after: The log-loss with it.
        changes: Of each metric, with δ minus without, on the same test rows.
    """

    moved: str
    still: str
    before: float
    after: float
    changes: dict[str, Difference]

    @property
    def side(self) -> Side:
        """Whether δ makes the log-loss better or worse beyond noise."""
        return self.changes["nll"].side

    def headline(self, still: str, rows: int, *, answer: str | None = None) -> str:
        """Whether δ helps, in a sentence.

        Args:
            still: What the head without δ is called.
            rows: How many were judged on.
            answer: What to use where δ does not help; the head without δ unless given.
        """
        answer = answer or still
        after = f"{self.after:.4f}{' (T refitted)' if self.moved == REFITTED else ''}"
        on = f"{rows:,} test row{'' if rows == 1 else 's'}"
        moved = f"from {self.before:.4f} ({still}) to {after} on {on}{self._though()}"
        if math.isnan(self.changes["nll"].p):
            return f"Whether δ helps cannot be told, as the test rows show no spread: it takes the log-loss {moved}."
        if self.side == "better":
            return f"δ helps: it lowers the log-loss {moved}."
        if self.side == "worse":
            return f"δ does harm here: it raises the log-loss {moved}. The answer is {answer}."
        by = "by enough to matter" if self.changes["nll"].is_beyond_noise else "beyond noise"
        return f"δ does not change the log-loss {by}, {moved}: the simpler answer is {answer}."

    def sentence(self, how: str) -> str:
        """The changes in log-loss, calibration error and accuracy, with their intervals.

        Args:
            how: What stood behind both, as in "with the best T both times".
        """
        told = []
        for name, title in (("nll", "log-loss"), ("ece", "ECE"), ("accuracy", "accuracy")):
            if name in self.changes:
                change = self.changes[name]
                by = points_words(change) if name == "accuracy" else difference_words(change)
                told.append(f"{title} {by}{_doubt(change)}")
        return f"δ by itself, {how}: {'; '.join(told)}."

    def _though(self) -> str:
        """What goes the other way, beyond noise."""
        told = []
        for name, title in (("accuracy", "accuracy"), ("ece", "ECE")):
            change = self.changes.get(name)
            if change is not None and change.side not in {"alike", self.side}:
                size = f"{100 * abs(change.value):.2f} points" if name == "accuracy" else f"{abs(change.value):.4f}"
                told.append(f"{title} {'rises' if change.value > 0 else 'falls'} by {size}")
        return f", though {' and '.join(told)}" if told else ""


def _doubt(change: Difference) -> str:
    if change.side != "alike":
        return ""
    return ", too little to matter" if change.is_beyond_noise else ", noise"

"""A number over the runs of a candidate, as the tables write it: short for the terminal, long for a page."""

import math
from typing import NamedTuple

from calibrant.diagnosis import Direction, Spread, TwoSample
from calibrant.diagnosis.over_seeds import RunSide
from calibrant.evidence import Difference, Side

__all__ = ["OVER_SEEDS", "SIDES", "Cell", "brief", "direction_text", "in_full", "signed"]

# Other than in a leaderboard, whose ▲ is better: here they are the paper's, higher and lower, and higher is worse.
OVER_SEEDS: dict[RunSide, str] = {"higher": "▲", "lower": "▼", "alike": ""}
SIDES: dict[Side, str] = {"better": "✓", "worse": "✗", "alike": ""}


class Cell(NamedTuple):
    """A number, and how it stands to the reference's: over seeds alone, and with the noise of rows too."""

    spread: Spread
    test: TwoSample | None = None
    against: Difference | None = None

    @property
    def side(self) -> Side:
        """Better or worse than the reference's beyond noise."""
        return "alike" if self.against is None else self.against.side

    @property
    def marks(self) -> str:
        """Of both tests."""
        return ("" if self.test is None else OVER_SEEDS[self.test.side]) + SIDES[self.side]

    def in_full(self, digits: int = 4) -> str:
        """For a page, with its marks."""
        return f"{in_full(self.spread, digits)} {self.marks}".strip()


def brief(value: float, digits: int = 3) -> str:
    """A share in few columns: ``.094``; a dash where there is none.

    Example:
        >>> brief(0.0941), brief(-0.5), brief(1.25), brief(-1e-9), brief(math.nan)
        ('.094', '-.500', '1.250', '.000', '–')
    """
    if math.isnan(value):
        return "–"
    text = f"{round(value, digits) + 0.0:.{digits}f}"  # + 0.0, because there is no -.000
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def signed(value: float, digits: int = 3) -> str:
    """The same with its sign."""
    text = brief(value, digits)
    return text if math.isnan(value) or text.startswith("-") else f"+{text}"


def in_full(found: Spread, digits: int = 4) -> str:
    """Mean ± standard deviation over the runs, and how many those are, if not all.

    Example:
        >>> from calibrant.diagnosis import spread
        >>> in_full(spread([0.1, 0.3])), in_full(spread([0.1, math.nan]))
        ('0.2000 ± 0.1414', '0.1000 (1 of 2 runs)')
    """
    if math.isnan(found.mean):
        return "–"
    text = f"{found.mean:.{digits}f}"
    if not math.isnan(found.std):
        text += f" ± {found.std:.{digits}f}"
    known = sum(not math.isnan(value) for value in found.values)
    return text if known == len(found.values) else f"{text} ({known} of {len(found.values)} runs)"


def direction_text(one: Direction) -> str:
    """Mean confidence − accuracy for a page, with its interval and its side."""
    if math.isnan(one.gap.mean):
        return "–"
    side = "" if one.side == "neither" else f", {one.side}"
    return f"{one.gap.mean:+.4f} ({one.low:+.4f} … {one.high:+.4f}){side}"

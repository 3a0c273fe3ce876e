"""Numbers over the runs of a candidate, as the tables of a diagnosis show them."""

import math
from typing import NamedTuple

from calibrant.diagnosis import Direction, Spread, TwoSample
from calibrant.diagnosis.evaluated import UNCALIBRATED
from calibrant.diagnosis.over_seeds import RunSide
from calibrant.evidence import Difference, Side
from calibrant.report.page import Cell

__all__ = ["SeedCell", "direction_text", "map_name", "short_text", "signed_text", "spread_text"]

# Other than in a comparison, whose ▲ is better: here they are the paper's, higher and lower, and higher is worse.
_OVER_SEEDS: dict[RunSide, str] = {"higher": "▲", "lower": "▼", "alike": ""}
_SIDES: dict[Side, str] = {"better": "✓", "worse": "✗", "alike": ""}


class SeedCell(NamedTuple):
    """A number, and how it compares with the baseline's: over seeds alone, and with the noise of samples too."""

    spread: Spread
    test: TwoSample | None = None
    difference: Difference | None = None

    @property
    def side(self) -> Side:
        """Whether it is clearly better or worse than the baseline's."""
        return "alike" if self.difference is None else self.difference.side

    @property
    def marks(self) -> str:
        """The marks of both tests."""
        return ("" if self.test is None else _OVER_SEEDS[self.test.side]) + _SIDES[self.side]

    def cell(self, digits: int = 4) -> Cell:
        """Return mean and deviation with the marks."""
        return Cell(spread_text(self.spread, digits), self.side, self.marks)


def map_name(name: str) -> str:
    """Return what a table calls a map."""
    return "uncalibrated" if name == UNCALIBRATED else name


def spread_text(found: Spread, digits: int = 4) -> str:
    """Return mean ± standard deviation over the runs, and how many have the number, if not all.

    Example:
        >>> from calibrant.diagnosis import spread
        >>> spread_text(spread([0.1, 0.3])), spread_text(spread([0.1, math.nan]))
        ('0.2000 ± 0.1414', '0.1000 (1 of 2 runs)')
    """
    if math.isnan(found.mean):
        return "–"
    text = f"{found.mean:.{digits}f}"
    if not math.isnan(found.std):
        text += f" ± {found.std:.{digits}f}"
    known = sum(not math.isnan(value) for value in found.values)
    return text if known == len(found.values) else f"{text} ({known} of {len(found.values)} runs)"


def short_text(value: float, digits: int = 3) -> str:
    """Return a share as sentences have it, ``.094``; a dash where there is none.

    Example:
        >>> short_text(0.0941), short_text(-0.5), short_text(1.25), short_text(-1e-9), short_text(math.nan)
        ('.094', '-.500', '1.250', '.000', '–')
    """
    if math.isnan(value):
        return "–"
    text = f"{round(value, digits) + 0.0:.{digits}f}"  # + 0.0, because there is no -.000
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def signed_text(value: float, digits: int = 3) -> str:
    """Return a share with its sign."""
    text = short_text(value, digits)
    return text if math.isnan(value) or text.startswith("-") else f"+{text}"


def direction_text(direction: Direction) -> str:
    """Return mean confidence − accuracy with its interval and its side."""
    if math.isnan(direction.gap.mean):
        return "–"
    side = "" if direction.side == "neither" else f", {direction.side}"
    return f"{direction.gap.mean:+.4f} ({direction.low:+.4f} … {direction.high:+.4f}){side}"

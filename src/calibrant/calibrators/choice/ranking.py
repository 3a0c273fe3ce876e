"""What a cross-validated comparison of methods has found."""

import math
from dataclasses import dataclass, fields
from typing import Literal, Self, final

from torch import Tensor

from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.chain import Chain

__all__ = ["Gap", "Ranking", "Standing", "label"]

# Two-sided 95 %.
_Z = 1.959963984540054


@final
@dataclass(frozen=True)
class Gap:
    """A mean difference with its 95 % interval; NaN where there is none to tell.

    Rows count as independent. The maps of different folds share most of their rows, which makes the intervals a little
    too narrow.
    """

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan

    @classmethod
    def between(cls, first: Tensor, second: Tensor) -> Self:
        """First minus second, row by row, (n,) each."""
        change = first - second
        mean, half = float(change.mean()), _Z * float(change.std()) / math.sqrt(len(change))
        return cls(mean, mean - half, mean + half)

    @property
    def standard_error(self) -> float:
        """Of the mean difference."""
        return (self.high - self.low) / (2 * _Z)

    def __str__(self) -> str:
        return f"{self.value:+.4f} ({self.low:+.4f} to {self.high:+.4f})"


@final
@dataclass(frozen=True)
class Standing:
    """One candidate: its score on rows it was not fitted on, NaN if it could not be fitted."""

    name: str
    calibrator: Calibrator
    place: int  # among the candidates as they were given, from simple to complex
    score: float
    to_best: Gap  # its score minus the best
    to_nothing: Gap  # its score minus that of doing nothing: below 0 it helps
    ece: float
    to_lowest_ece: Gap
    seconds: float  # of all its fits
    failure: str | None = None


@final
@dataclass(frozen=True)
class Ranking:
    """The candidates, lowest score first, those that could not be fitted last."""

    score: Literal["nll", "brier"]
    folds: int
    n: int
    standings: tuple[Standing, ...]

    @property
    def best(self) -> Standing:
        """The lowest score."""
        return self.standings[0]

    @property
    def fitted(self) -> tuple[Standing, ...]:
        """Those that have a score."""
        return tuple(each for each in self.standings if each.failure is None)

    @property
    def chosen(self) -> Standing:
        """The simplest candidate that is no more than one standard error above the best.

        The standard error is that of the paired difference, which is far smaller than that of either score: the rule
        prefers the simple where the data cannot tell, and gives way as soon as they can.
        """
        alike = (each for each in self.fitted if each.to_best.value <= each.to_best.standard_error)
        return min(alike, key=lambda each: each.place)

    @property
    def lowest_ece(self) -> Standing:
        """The candidate that the expected calibration error would choose."""
        return min(self.fitted, key=lambda each: each.ece)

    @property
    def ece_misleads(self) -> bool:
        """Whether the ECE picks, beyond noise, a candidate that is worse by the proper score, beyond noise."""
        return self.chosen.to_lowest_ece.low > 0 and self.lowest_ece.to_best.low > 0


def label(calibrator: Calibrator) -> str:
    """Its name, with the options that are not the usual ones, as the command line takes it.

    Example:
        >>> from calibrant.calibrators import Chain, DoNothing
        >>> label(Chain((DoNothing(), DoNothing())))
        'none+none'
    """
    if isinstance(calibrator, Chain):
        return "+".join(label(step) for step in calibrator.steps)
    unusual = [
        f"{option.name}={_option(getattr(calibrator, option.name))}"
        for option in fields(calibrator)  # type: ignore[arg-type]  # concrete calibrators are dataclasses
        if getattr(calibrator, option.name) != option.default
    ]
    return f"{calibrator.name}({','.join(unusual)})" if unusual else calibrator.name


def _option(value: object) -> str:
    if isinstance(value, Calibrator):
        return label(value)
    return f"[{','.join(_option(each) for each in value)}]" if isinstance(value, tuple) else str(value)

"""What a cross-validated comparison of methods has found."""

import math
from dataclasses import dataclass, fields
from typing import Literal, Self, TypeAlias, final

from torch import Tensor

from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.chain import Chain
from calibrant.calibrators.choice.pool import Pool

__all__ = ["Gap", "Ranking", "Score", "Standing", "label"]

Score: TypeAlias = Literal["nll", "brier"]

# Two-sided 95 %.
_Z = 1.959963984540054
# Standard errors by which the steady candidate must be led: of ten candidates, the largest lead that is noise seldom
# exceeds three.
_LEAD = 3.0


@final
@dataclass(frozen=True)
class Gap:
    """A mean difference with its 95 % interval; NaN where there is none.

    Samples count as independent. The maps of different folds share most of their samples, which makes the intervals a
    little too narrow.

    ``noise`` is a standard error that one-sided outliers do not enlarge: it comes from the smaller of the two
    half-deviations, upwards and downwards. A method that is a little better on most samples and terribly wrong on one
    has a large standard error, behind which its mean would hide; its noise is small.
    """

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    noise: float = math.nan

    @classmethod
    def between(cls, first: Tensor, second: Tensor) -> Self:
        """First minus second, sample by sample, (n,) each."""
        change = first - second
        mean, half = float(change.mean()), _Z * float(change.std()) / math.sqrt(len(change))
        squares = (float(side.square().sum()) for side in (change.clamp(min=0), change.clamp(max=0)))
        return cls(mean, mean - half, mean + half, math.sqrt(2 * min(squares)) / len(change))

    @property
    def standard_error(self) -> float:
        """Standard error of the mean difference."""
        return (self.high - self.low) / (2 * _Z)

    def __str__(self) -> str:
        return f"{self.value:+.4f} ({self.low:+.4f} to {self.high:+.4f})"


@final
@dataclass(frozen=True)
class Standing:
    """One candidate: its score on samples it was not fitted on, NaN if it could not be fitted.

    A candidate that was dropped after some folds has the score of the best plus its difference in those folds. Gaps to
    the best and to the steady candidate count half an unseen mistake, as :func:`rank` says.
    """

    name: str
    calibrator: Calibrator
    place: int  # among the candidates as they were given
    score: float
    to_best: Gap  # its score minus the best
    to_nothing: Gap  # its score minus that of doing nothing: below 0 it helps
    to_temperature: Gap = Gap()  # its score minus that of temperature scaling
    to_steady: Gap = Gap()  # its score minus that of the steady candidate
    other: float = math.nan  # the other proper score: brier beside nll, nll beside brier
    other_to_nothing: Gap = Gap()
    ece: float = math.nan
    to_lowest_ece: Gap = Gap()
    folds: int = 0  # in which it was tried
    eligible: bool = True  # whether it may be chosen
    seconds: float = 0.0  # of all its fits
    failure: str | None = None


@final
@dataclass(frozen=True)
class Ranking:
    """The candidates, lowest score first, those that could not be fitted last."""

    score: Score
    folds: int
    n: int
    standings: tuple[Standing, ...]
    steady: int | None = None  # place of the candidate that is taken when in doubt

    @property
    def best(self) -> Standing:
        """The lowest score among those that were tried in all folds."""
        return self.finalists[0]

    @property
    def fitted(self) -> tuple[Standing, ...]:
        """Those that have a score."""
        return tuple(each for each in self.standings if each.failure is None)

    @property
    def finalists(self) -> tuple[Standing, ...]:
        """Those that were tried in all folds."""
        return tuple(each for each in self.fitted if each.folds == self.folds)

    @property
    def chosen(self) -> Standing:
        """The candidate to take.

        With a steady candidate, that one, unless another is lower by more than three standard errors: among many the
        lowest score is partly luck. Where there is a mean of it and its partner, that mean is taken instead of either.
        Without a steady one, the simplest candidate that is no more than one standard error above the best.

        Standard errors are those of the paired differences, which are far smaller than that of either score. Above the
        best, a candidate's own outliers do not count as noise (:class:`Gap`).
        """
        may = tuple(each for each in self.finalists if each.eligible) or self.finalists
        held = next((each for each in may if each.place == self.steady), None)
        if held is None:
            alike = [each for each in may if each.to_best.value <= each.to_best.noise]
            return min(alike or may[:1], key=lambda each: each.place)
        ahead = (each for each in may if each.to_steady.value < -_LEAD * each.to_steady.standard_error)
        found = min((held, *ahead), key=lambda each: each.to_steady.value)
        pools = (
            each for each in may if isinstance(each.calibrator, Pool) and found.calibrator in each.calibrator.members
        )
        return next(pools, found)

    @property
    def other_score(self) -> Score:
        """The proper score that does not decide."""
        return "brier" if self.score == "nll" else "nll"

    @property
    def scores_disagree(self) -> bool:
        """Whether the candidate to take is worse than doing nothing by the other proper score, beyond noise."""
        return self.chosen.to_nothing.value < 0 < self.chosen.other_to_nothing.low

    @property
    def lowest_ece(self) -> Standing:
        """The candidate that the expected calibration error would choose."""
        return min(self.finalists, key=lambda each: each.ece)

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
    if isinstance(calibrator, Pool):
        return " & ".join(label(member) for member in calibrator.members)
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

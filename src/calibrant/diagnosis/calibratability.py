"""Calibratability: how calibrated a network can be made after training, and in which direction it is off before."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import torch

from calibrant.diagnosis.baseline import Differences
from calibrant.diagnosis.evaluated import UNCALIBRATED, Evaluated, EvaluatedCandidate
from calibrant.diagnosis.over_seeds import (
    Noise,
    Record,
    Spread,
    TwoSample,
    interval_of,
    noise_of_seeds,
    spread,
    two_sample,
)
from calibrant.evidence import Difference

__all__ = [
    "ORACLE",
    "Calibratability",
    "CoefficientCurve",
    "CoefficientPoint",
    "Direction",
    "DirectionSide",
    "calibratability",
    "coefficient_curves",
    "directions",
]

ORACLE = "oracle"  # the optimal ECE's place beside those after each map


@final
@dataclass(frozen=True)
class Calibratability(Record):
    """One candidate: its ECE uncalibrated and after each map fitted on its calibration samples, over its runs.

    ``optimal_ece`` is of an oracle, chosen on the test samples: a bound on what a temperature can do, not a method.
    A loss that lowers the raw ECE but not this one has only shifted all confidences; one that raises it has lost
    something that no temperature can restore.
    """

    candidate: str
    seeds: tuple[int, ...]
    accuracy: Spread
    ece: Mapping[str, Spread]  # by map; "none" is the uncalibrated network
    temperature: Spread  # fitted
    optimal_ece: Spread
    oracle_temperature: Spread
    t_tests: Mapping[str, TwoSample]  # of the ECE against the baseline's runs, by map and "oracle"; empty for itself
    differences: Mapping[str, Difference]  # of the ECE on the same samples, by map; empty for the baseline
    failures: Mapping[str, str]  # why a map could not be fitted, by map and seed: "temperature, seed 0"
    notes: tuple[str, ...]  # warnings of the fits


def calibratability(
    candidate: EvaluatedCandidate, baseline: EvaluatedCandidate, differences: Differences
) -> Calibratability:
    """Put one candidate's numbers beside the baseline's.

    Args:
        candidate: A candidate of an :class:`~calibrant.diagnosis.evaluated.Evaluated`.
        baseline: The candidate to compare with, or the same one.
        differences: Those of the candidate from :func:`~calibrant.diagnosis.baseline.differences_from`, by map and
            metric; empty for the baseline.

    Reference:
        Wang, Feng & Zhang (2021), Rethinking Calibration of Deep Neural Networks: Do Not Be Afraid of Overconfidence,
        Table 2 and Section 5.1.
    """
    maps = list(candidate.runs[0].outcomes)
    ece = {name: candidate.over_runs(name, "ece") for name in maps}
    optimal = spread([run.oracle.ece for run in candidate.runs])
    tests = {}
    if candidate is not baseline:
        tests = {name: two_sample(baseline.over_runs(name, "ece").values, ece[name].values) for name in maps}
        tests[ORACLE] = two_sample([run.oracle.ece for run in baseline.runs], optimal.values)
    outcomes = [(name, run.seed, run.outcomes[name]) for run in candidate.runs for name in maps]
    return Calibratability(
        candidate=candidate.name,
        seeds=candidate.candidate.seeds,
        accuracy=candidate.over_runs(maps[0], "accuracy"),
        ece=ece,
        temperature=spread([run.temperature for run in candidate.runs]),
        optimal_ece=optimal,
        oracle_temperature=spread([run.oracle.temperature for run in candidate.runs]),
        t_tests=tests,
        differences={name: found["ece"] for name, found in differences.items()},
        failures={
            f"{name}, seed {seed}": outcome.failure for name, seed, outcome in outcomes if outcome.failure is not None
        },
        notes=tuple(dict.fromkeys(f"{name}: {note}" for name, _, outcome in outcomes for note in outcome.notes)),
    )


DirectionSide: TypeAlias = Literal["overconfident", "underconfident", "neither"]


@final
@dataclass(frozen=True)
class Direction(Record):
    """Mean confidence minus accuracy, over the runs of a candidate under one map, with its 95 % interval.

    It is 0 also where confident answers claim too much and modest ones too little; the ECE is at least its size.
    """

    candidate: str
    map: str
    gap: Spread
    low: float
    high: float
    side: DirectionSide  # "neither" where the interval holds 0
    covers_seeds: bool  # whether the interval knows the noise of seeds beside that of samples


def directions(candidate: EvaluatedCandidate) -> tuple[Direction, ...]:
    """The direction of a candidate, uncalibrated and after each map.

    The gap of a row is its confidence minus 1 or 0, so the interval of its mean needs no resampling; over several runs
    the rows' gaps are averaged first, because all runs have the same samples.
    """
    return tuple(_direction(candidate, name) for name in candidate.runs[0].outcomes)


def _direction(candidate: EvaluatedCandidate, name: str) -> Direction:
    tops = candidate.tops(name)
    gaps = {seed: top.confidence - top.correct.double() for seed, top in tops.items()}
    values = [float(gaps[run.seed].mean()) if run.seed in gaps else float("nan") for run in candidate.runs]
    gap = spread(values)
    if not gaps:
        return Direction(candidate.name, name, gap, gap.mean, gap.mean, "neither", covers_seeds=False)
    rows = torch.stack(list(gaps.values())).mean(0)
    n = len(rows)
    noises = [Noise(float(rows.var()) / n if n > 1 else float("inf"), max(n - 1, 1))]
    seeds = noise_of_seeds([value for value in values if value == value])  # noqa: PLR0124  # not NaN
    if seeds is not None:
        noises.append(seeds)
    low, high, _ = interval_of(gap.mean, noises)
    side: DirectionSide = "overconfident" if low > 0 else "underconfident" if high < 0 else "neither"
    return Direction(candidate.name, name, gap, low, high, side, covers_seeds=seeds is not None)


@final
@dataclass(frozen=True)
class CoefficientPoint(Record):
    """One candidate of a curve."""

    value: float
    candidate: str
    ece: Mapping[str, Spread]  # by map
    optimal_ece: Spread  # an oracle's
    temperature: Spread
    accuracy: Spread


@final
@dataclass(frozen=True)
class CoefficientCurve(Record):
    """Candidates that are alike in everything but one number, in its order."""

    option: str  # such as "loss.smoothing" or "recipe.mixup"
    loss: str
    points: tuple[CoefficientPoint, ...]


def coefficient_curves(evaluated: Evaluated) -> tuple[CoefficientCurve, ...]:
    """Every curve that the candidates hold: two of them or more that differ in one numeric option of loss or recipe.

    Reading the best coefficient off the raw curve, which is of test samples, chooses on those that judge, as the paper
    does; the number there flatters.

    Reference:
        Wang, Feng & Zhang (2021), Rethinking Calibration of Deep Neural Networks: Do Not Be Afraid of Overconfidence,
        Figure 1.
    """
    groups: dict[tuple[str, str], list[EvaluatedCandidate]] = {}
    for each in evaluated.candidates:
        options = each.candidate.options
        for path, value in options.items():
            if path.startswith(("loss.", "recipe.")) and isinstance(value, int | float) and not isinstance(value, bool):
                rest = repr(sorted((name, other) for name, other in options.items() if name != path))
                groups.setdefault((path, rest), []).append(each)
    return tuple(_curve(path, members) for (path, _), members in groups.items() if len(members) > 1)


def _curve(path: str, members: list[EvaluatedCandidate]) -> CoefficientCurve:
    points = sorted((_point(path, each) for each in members), key=lambda point: point.value)
    return CoefficientCurve(path, str(members[0].candidate.options["loss.loss"]), tuple(points))


def _point(path: str, evaluated: EvaluatedCandidate) -> CoefficientPoint:
    value = evaluated.candidate.options[path]
    assert isinstance(value, int | float), "only numbers make a curve"
    return CoefficientPoint(
        value=float(value),
        candidate=evaluated.name,
        ece={name: evaluated.over_runs(name, "ece") for name in evaluated.runs[0].outcomes},
        optimal_ece=spread([run.oracle.ece for run in evaluated.runs]),
        temperature=spread([run.temperature for run in evaluated.runs]),
        accuracy=evaluated.over_runs(UNCALIBRATED, "accuracy"),
    )

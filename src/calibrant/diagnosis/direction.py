"""The direction of miscalibration: does a network claim too much, or too little?"""

from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import torch

from calibrant.diagnosis.judged import JudgedCandidate
from calibrant.diagnosis.over_seeds import Noise, Spread, interval_of, noise_of_seeds, spread
from calibrant.diagnosis.record import Record

__all__ = ["Direction", "DirectionSide", "directions"]

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
    covers_seeds: bool  # whether the interval knows the noise of seeds beside that of rows


def directions(candidate: JudgedCandidate) -> tuple[Direction, ...]:
    """Of the network as it is, and after each map.

    The gap of a row is its confidence minus 1 or 0, so the interval of its mean needs no resampling; over several runs
    the rows' gaps are averaged first, because all runs have the same rows.
    """
    return tuple(_direction(candidate, name) for name in candidate.runs[0].outcomes)


def _direction(candidate: JudgedCandidate, name: str) -> Direction:
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

"""Curves over the number of calibration samples: the ECE after maps fitted on fewer and fewer of them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch

from calibrant.calibrators.base import try_fit
from calibrant.checks import check_at_least
from calibrant.diagnosis.evaluated import UNCALIBRATED, Evaluated, EvaluatedCandidate
from calibrant.diagnosis.over_seeds import Record, Spread, spread
from calibrant.diagnosis.runs import DiagnosedRun
from calibrant.maps import Map, Scale, TopLabelMap
from calibrant.metrics import ece
from calibrant.numerics.binning import errors_at_temperatures
from calibrant.predictions import Predictions, TopLabel

__all__ = ["SizePoint", "ValidationSize", "validation_sizes"]

_SIZES = tuple(digit * 10**power for power in range(1, 7) for digit in (1, 2, 5))
_STEPS = 4  # sizes below all samples, unless told


@final
@dataclass(frozen=True)
class SizePoint(Record):
    """The ECE after each map fitted on a number of samples, over runs and draws; a fit that failed has NaN."""

    rows: int
    ece: Mapping[str, Spread]  # by map; its lowest and highest are of all runs and draws
    failed: Mapping[str, int]  # fits, by map


@final
@dataclass(frozen=True)
class ValidationSize(Record):
    """One candidate, by rising number of calibration samples; the last is all of them, where there is only one draw."""

    candidate: str
    draws: int
    raw_ece: Spread
    points: tuple[SizePoint, ...]


def validation_sizes(
    evaluated: Evaluated,
    *,
    sizes: Sequence[int] | None = None,
    draws: int = 3,
    seed: int = 0,
    progress: Callable[[str, int, int], None] = lambda _what, _done, _of: None,
) -> tuple[ValidationSize, ...]:
    """Fit each map again on random parts of the calibration samples.

    A draw is an order of the samples, and its parts are the first ones: larger parts contain the smaller. Candidates
    whose calibration parts are of one size get the same samples. The range over draws is narrower than that of new
    calibration sets, the more so the nearer a part comes to all samples, since draws then share most of them.

    Args:
        evaluated: With the maps, and the ECE after all samples, which is not worked out again.
        sizes: Numbers of samples, below those that the runs have; those above are left out. None: a few round numbers.
        draws: Orders of the rows, for every run.
        seed: Random seed of the draws.
        progress: Called with the folder of each run, how many are done, and how many there are.

    Reference:
        Wang, Feng & Zhang (2021), Rethinking Calibration of Deep Neural Networks: Do Not Be Afraid of Overconfidence,
        Figure 3.
    """
    check_at_least(draws, 1, "draws")
    for size in sizes or ():
        check_at_least(size, 2, "a number of calibration rows")
    total, done, found = sum(len(each.runs) for each in evaluated.candidates), 0, []
    for each in evaluated.candidates:
        rows = each.runs[0].calibration_rows  # alike in all runs, which have one split
        chosen = [size for size in _SIZES if size < rows][-_STEPS:] if sizes is None else sorted(set(sizes))
        chosen = [size for size in chosen if size < rows]
        drawn = []
        for run in each.candidate.runs:
            progress(run.path.name, done, total)
            drawn.append(_of_run(run, evaluated, chosen, draws, seed))
            done += 1
        found.append(_of_candidate(each, evaluated, chosen, draws, np.stack(drawn)))
    return tuple(found)


def _of_run(run: DiagnosedRun, evaluated: Evaluated, sizes: Sequence[int], draws: int, seed: int) -> np.ndarray:
    """The ECE of each map, size and draw, (maps, sizes, draws); NaN where the fit failed."""
    calibration, test = run.calibration, run.test
    errors = np.full((len(evaluated.maps), len(sizes), draws), math.nan)
    for draw in range(draws):
        order = torch.from_numpy(np.random.default_rng([seed, draw]).permutation(len(calibration)))
        for place, size in enumerate(sizes):
            part = calibration[order[:size]]
            for which, method in enumerate(evaluated.maps):
                fitted = try_fit(method.fit, part).map
                if fitted is not None:
                    errors[which, place, draw] = _ece_after(fitted, test, evaluated.n_bins)
    return errors


def _ece_after(fitted: Map, test: Predictions, n_bins: int) -> float:
    """The ECE of the mapped rows, for maps that need not touch every logit without doing so."""
    if isinstance(fitted, Scale):
        temperature = fitted.temperature.double()[None]
        return float(errors_at_temperatures(test.logits, test.labels, temperature, n_bins=n_bins))
    if isinstance(fitted, TopLabelMap):
        # The map keeps the predicted class at one class's share or more.
        log_odds = fitted.curve(test.top.log_odds[:, None])[:, 0].clamp(min=-math.log(test.n_classes - 1))
        return ece(TopLabel(log_odds.double().sigmoid(), test.correct), n_bins=n_bins)
    return ece(fitted.transform(test), n_bins=n_bins)


def _of_candidate(
    each: EvaluatedCandidate, evaluated: Evaluated, sizes: Sequence[int], draws: int, errors: np.ndarray
) -> ValidationSize:
    names = evaluated.map_names[1:]
    points = []
    for place, size in enumerate(sizes):
        values = {name: errors[:, which, place].ravel().tolist() for which, name in enumerate(names)}
        points.append(_point(size, values))
    everything = {name: list(each.over_runs(name, "ece").values) for name in names}
    points.append(_point(each.runs[0].calibration_rows, everything))
    return ValidationSize(each.name, draws, each.over_runs(UNCALIBRATED, "ece"), tuple(points))


def _point(rows: int, values: Mapping[str, list[float]]) -> SizePoint:
    failed = {name: sum(map(math.isnan, of_map)) for name, of_map in values.items()}
    return SizePoint(rows, {name: spread(of_map) for name, of_map in values.items()}, failed)

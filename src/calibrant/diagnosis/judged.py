"""Every run judged once: its test rows as they are, and after each map fitted on its own calibration rows.

What is kept of a row is its confidence and whether it was right; logits are read, used and let go, run by run.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from calibrant.calibrators import Calibrator
from calibrant.checks import check_bins
from calibrant.diagnosis.candidate import Candidate
from calibrant.diagnosis.fitting import MAPS, RAW, TEMPERATURE, check_maps, try_fit
from calibrant.diagnosis.oracle import Oracle, oracle_temperature
from calibrant.diagnosis.over_seeds import Spread, spread
from calibrant.diagnosis.runs import DiagnosedRun
from calibrant.errors import FitError
from calibrant.maps import Map, Scale
from calibrant.metrics import (
    AURC,
    AUROC,
    EAURC,
    ECE,
    NLL,
    Accuracy,
    AUPRError,
    AUPRSuccess,
    Brier,
    Confidence,
    Metric,
    Split,
    Tally,
    TopBrier,
    calibration_refinement,
)
from calibrant.predictions import Predictions, TopLabel

__all__ = ["Judged", "JudgedCandidate", "JudgedRun", "Outcome", "judge_candidates", "outcome_of"]

_FEWEST = 10  # rows that the cross-fitted split of a score needs


@final
@dataclass(frozen=True, eq=False)
class Outcome:
    """The test rows of one run under one map; without rows, and with a reason, where the map could not be fitted."""

    top: TopLabel | None
    values: Mapping[str, float]  # by metric
    failure: str | None = None
    notes: tuple[str, ...] = ()
    map: Map | None = None  # None also for the network as it is


@final
@dataclass(frozen=True, eq=False)
class JudgedRun:
    """One run under every map, and what an oracle would make of it."""

    seed: int
    outcomes: Mapping[str, Outcome]  # by map; "none" is the network as it is
    temperature: float  # fitted on the calibration rows; NaN if it could not be
    oracle: Oracle
    splits: Mapping[str, Split]  # of log-loss and Brier score, as the network is
    calibration_rows: int


@final
@dataclass(frozen=True, eq=False)
class JudgedCandidate:
    """All runs of a candidate."""

    candidate: Candidate
    runs: tuple[JudgedRun, ...]

    @property
    def name(self) -> str:
        """Of the candidate."""
        return self.candidate.name

    def over_runs(self, map_name: str, metric: str) -> Spread:
        """A number over the runs."""
        return spread([run.outcomes[map_name].values.get(metric, math.nan) for run in self.runs])

    def tops(self, map_name: str) -> dict[int, TopLabel]:
        """The answers of the runs that have some, by seed."""
        found = {run.seed: run.outcomes[map_name].top for run in self.runs}
        return {seed: top for seed, top in found.items() if top is not None}


@final
@dataclass(frozen=True, eq=False)
class Judged:
    """Every run of every candidate, judged on the same test rows."""

    candidates: tuple[JudgedCandidate, ...]
    maps: tuple[Calibrator, ...]
    n_bins: int
    n: int  # test rows

    @property
    def map_names(self) -> tuple[str, ...]:
        """Nothing, then the maps in their order."""
        return (RAW, *(each.name for each in self.maps))

    def find(self, name: str) -> JudgedCandidate:
        """The candidate of this name, which must be one of them."""
        return next(each for each in self.candidates if each.name == name)


def judge_candidates(
    candidates: Sequence[Candidate],
    *,
    maps: Sequence[Calibrator] = MAPS,
    n_bins: int = 15,
    progress: Callable[[str, int, int], None] = lambda _what, _done, _of: None,
) -> Judged:
    """Fit every map once for every run, and measure the test rows before and after.

    Args:
        candidates: From :func:`~calibrant.diagnosis.candidate.grouped`.
        maps: What may be fitted on the calibration rows; a temperature must be among them.
        n_bins: Of the ECE.
        progress: Called with the folder of each run, how many are done, and how many there are.

    Raises:
        InputError: If there is no temperature among the maps, or two of the same name.
    """
    check_bins(n_bins)
    check_maps(maps, "maps")
    total = sum(len(each.runs) for each in candidates)
    done, found = 0, []
    for candidate in candidates:
        judged = []
        for run in candidate.runs:
            progress(run.path.name, done, total)
            judged.append(_judged(run, maps, n_bins))
            done += 1
        found.append(JudgedCandidate(candidate, tuple(judged)))
    raw = found[0].runs[0].outcomes[RAW].top
    assert raw is not None, "nothing needs no fit"
    return Judged(tuple(found), tuple(maps), n_bins, len(raw))


def _judged(run: DiagnosedRun, maps: Sequence[Calibrator], n_bins: int) -> JudgedRun:
    calibration, test = run.calibration, run.test
    outcomes = {RAW: outcome_of(test, n_bins=n_bins)}
    temperature = math.nan
    for method in maps:
        fitted = try_fit(method, calibration)
        if fitted.map is None:
            outcomes[method.name] = Outcome(None, {}, fitted.failure, fitted.notes)
            continue
        if method.name == TEMPERATURE and isinstance(fitted.map, Scale):
            temperature = float(fitted.map.temperature)
        outcomes[method.name] = outcome_of(test, fitted.map, n_bins=n_bins, notes=fitted.notes)
    oracle = oracle_temperature(test, also=[temperature], n_bins=n_bins)
    return JudgedRun(run.seed, outcomes, temperature, oracle, _splits(test), len(calibration))


def _of_top_labels(n_bins: int) -> tuple[Metric, ...]:
    return (
        Accuracy(), Confidence(), ECE(n_bins), TopBrier(), AUROC(), AUPRSuccess(), AUPRError(), AURC(), EAURC(),
    )  # fmt: skip


def outcome_of(
    rows: Predictions, fitted: Map | None = None, *, n_bins: int = 15, notes: tuple[str, ...] = ()
) -> Outcome:
    """Measure rows under a map, or as they are.

    Args:
        rows: As the network gives them.
        fitted: On other rows; None for nothing.
        n_bins: Of the ECE.
        notes: What the fit warned of.
    """
    mapped = rows if fitted is None else fitted.transform(rows)
    mapped.softmax_rows(Brier().statistic.wanted)  # one pass over the logits for all
    values = Tally(_of_top_labels(n_bins)).add(mapped.top).values()
    values |= {each.name: each(mapped) for each in (NLL(), Brier())}
    return Outcome(mapped.top, values, notes=notes, map=fitted)


def _splits(test: Predictions) -> dict[str, Split]:
    try:
        return calibration_refinement(test) if len(test) >= _FEWEST else {}
    except FitError:  # all rows right, or all logits alike: no temperature is best
        return {}

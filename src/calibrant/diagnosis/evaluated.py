"""Evaluate every run once: its test samples uncalibrated, and after each map fitted on its own calibration samples.

Of a sample, its confidence and correctness are kept; logits are read, used and released, run by run.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from calibrant.calibrators import Calibrator, HistogramBinning, StructuredVectorScaling, TemperatureScaling
from calibrant.calibrators.base import try_fit
from calibrant.checks import check_bins
from calibrant.comparison import TEMPERATURE, UNCALIBRATED
from calibrant.diagnosis.candidates import Candidate
from calibrant.diagnosis.over_seeds import Record, Spread, spread
from calibrant.diagnosis.runs import DiagnosedRun
from calibrant.errors import FitError, InputError
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
from calibrant.numerics.binning import lowest_error
from calibrant.predictions import Predictions, TopLabel

__all__ = [
    "MAPS",
    "PAPER_MAPS",
    "TEMPERATURE",
    "UNCALIBRATED",
    "Evaluated",
    "EvaluatedCandidate",
    "EvaluatedRun",
    "Oracle",
    "Outcome",
    "check_maps",
    "evaluate_candidates",
    "oracle_temperature",
    "outcome_of",
]

MAPS: tuple[Calibrator, ...] = (TemperatureScaling(), HistogramBinning(), StructuredVectorScaling())
# As in "Rethinking Calibration": the temperature with the lowest ECE of a grid, and bins of equal width.
PAPER_MAPS: tuple[Calibrator, ...] = (
    TemperatureScaling(criterion="ece-overconfidence"), HistogramBinning(bins="equal_width"), StructuredVectorScaling(),
)  # fmt: skip


def check_maps(maps: Sequence[Calibrator], name: str) -> None:
    """Check that the maps have different names, with temperature scaling among them, which verdicts use.

    Raises:
        InputError: If they are not.
    """
    names = [method.name for method in maps]
    if TEMPERATURE not in names or len(set(names)) < len(names) or UNCALIBRATED in names:
        raise InputError(
            f"{name} must be different methods, temperature among them; got {', '.join(names) or 'none'}. "
            "The uncalibrated network is always evaluated."
        )


@final
@dataclass(frozen=True)
class Oracle(Record):
    """The lowest ECE of any temperature on the test samples themselves, and that temperature."""

    ece: float
    temperature: float


def oracle_temperature(test: Predictions, *, also: Iterable[float] = (), n_bins: int = 15) -> Oracle:
    """Search the temperature with the lowest ECE on the test samples themselves.

    It is what "Rethinking Calibration" calls the optimal ECE: how far a temperature could get, without the luck of the
    calibration samples. It flatters, since it is chosen on the rows it is evaluated on, the more so the fewer they are.

    All temperatures are searched, usually in relative steps of 1e-5 (see ``numerics.binning``). If all
    samples are right the lowest temperature is taken, and if all are wrong the highest.

    Args:
        test: The test samples.
        also: Temperatures to try beside the others, such as those that were fitted elsewhere; NaN is passed over.
        n_bins: Number of bins of the ECE.

    Example:
        >>> import torch
        >>> logits = torch.randn(4000, 5, generator=torch.manual_seed(0))
        >>> labels = logits.softmax(1).multinomial(1, generator=torch.manual_seed(1))[:, 0]
        >>> found = oracle_temperature(Predictions.from_logits(3 * logits, labels))
        >>> 2.5 < found.temperature < 3.5, found.ece < 0.02
        (True, True)
    """
    known = [temperature for temperature in also if not math.isnan(temperature)]
    return Oracle(*lowest_error(test.logits, test.labels, also=known, n_bins=n_bins))


_FEWEST = 10  # rows that the cross-fitted split of a score needs


@final
@dataclass(frozen=True, eq=False)
class Outcome:
    """The test samples of one run under one map; without rows, and with a reason, where the map could not be fitted."""

    top: TopLabel | None
    values: Mapping[str, float]  # by metric
    failure: str | None = None
    notes: tuple[str, ...] = ()
    map: Map | None = None  # None also for the uncalibrated network


@final
@dataclass(frozen=True, eq=False)
class EvaluatedRun:
    """One run under every map, and what an oracle would make of it."""

    seed: int
    outcomes: Mapping[str, Outcome]  # by map; "none" is the uncalibrated network
    temperature: float  # fitted on the calibration samples; NaN if it could not be
    oracle: Oracle
    splits: Mapping[str, Split]  # of log-loss and Brier score, as the network is
    calibration_rows: int


@final
@dataclass(frozen=True, eq=False)
class EvaluatedCandidate:
    """All runs of a candidate."""

    candidate: Candidate
    runs: tuple[EvaluatedRun, ...]

    @property
    def name(self) -> str:
        """Name of the candidate."""
        return self.candidate.name

    def over_runs(self, map_name: str, metric: str) -> Spread:
        """A metric over the runs."""
        return spread([run.outcomes[map_name].values.get(metric, math.nan) for run in self.runs])

    def tops(self, map_name: str) -> dict[int, TopLabel]:
        """The top labels of the runs that have some, by seed."""
        found = {run.seed: run.outcomes[map_name].top for run in self.runs}
        return {seed: top for seed, top in found.items() if top is not None}


@final
@dataclass(frozen=True, eq=False)
class Evaluated:
    """Every run of every candidate, evaluated on the same test samples."""

    candidates: tuple[EvaluatedCandidate, ...]
    maps: tuple[Calibrator, ...]
    n_bins: int
    n: int  # test samples

    @property
    def map_names(self) -> tuple[str, ...]:
        """Names of the maps, the uncalibrated network first."""
        return (UNCALIBRATED, *(each.name for each in self.maps))

    def find(self, name: str) -> EvaluatedCandidate:
        """The candidate of this name, which must be one of them."""
        return next(each for each in self.candidates if each.name == name)


def evaluate_candidates(
    candidates: Sequence[Candidate],
    *,
    maps: Sequence[Calibrator] = MAPS,
    n_bins: int = 15,
    progress: Callable[[str, int, int], None] = lambda _what, _done, _of: None,
) -> Evaluated:
    """Fit every map once for every run, and measure the test samples before and after.

    Args:
        candidates: From :func:`~calibrant.diagnosis.candidates.grouped`.
        maps: Calibrators to fit on the calibration samples; a temperature must be among them.
        n_bins: Number of bins of the ECE.
        progress: Called with the folder of each run, how many are done, and how many there are.

    Raises:
        InputError: If there is no temperature among the maps, or two of the same name.
    """
    check_bins(n_bins)
    check_maps(maps, "maps")
    total = sum(len(each.runs) for each in candidates)
    done, found = 0, []
    for candidate in candidates:
        evaluated = []
        for run in candidate.runs:
            progress(run.path.name, done, total)
            evaluated.append(_evaluated(run, maps, n_bins))
            done += 1
        found.append(EvaluatedCandidate(candidate, tuple(evaluated)))
    raw = found[0].runs[0].outcomes[UNCALIBRATED].top
    assert raw is not None, "nothing needs no fit"
    return Evaluated(tuple(found), tuple(maps), n_bins, len(raw))


def _evaluated(run: DiagnosedRun, maps: Sequence[Calibrator], n_bins: int) -> EvaluatedRun:
    calibration, test = run.calibration, run.test
    outcomes = {UNCALIBRATED: outcome_of(test, n_bins=n_bins)}
    temperature = math.nan
    for method in maps:
        fitted = try_fit(method.fit, calibration)
        if fitted.map is None:
            outcomes[method.name] = Outcome(None, {}, fitted.failure, fitted.notes)
            continue
        if method.name == TEMPERATURE and isinstance(fitted.map, Scale):
            temperature = float(fitted.map.temperature)
        outcomes[method.name] = outcome_of(test, fitted.map, n_bins=n_bins, notes=fitted.notes)
    oracle = oracle_temperature(test, also=[temperature], n_bins=n_bins)
    return EvaluatedRun(run.seed, outcomes, temperature, oracle, _splits(test), len(calibration))


def _of_top_labels(n_bins: int) -> tuple[Metric, ...]:
    return (
        Accuracy(), Confidence(), ECE(n_bins), TopBrier(), AUROC(), AUPRSuccess(), AUPRError(), AURC(), EAURC(),
    )  # fmt: skip


def outcome_of(
    rows: Predictions, fitted: Map | None = None, *, n_bins: int = 15, notes: tuple[str, ...] = ()
) -> Outcome:
    """Evaluate samples under a map, or uncalibrated.

    Args:
        rows: Samples as the network predicts them.
        fitted: The map; None for none.
        n_bins: Number of bins of the ECE.
        notes: Warnings of the fit.
    """
    mapped = rows if fitted is None else fitted.transform(rows)
    mapped.softmax_rows(Brier().statistic.wanted)  # one pass over the logits for all
    values = Tally(_of_top_labels(n_bins)).add(mapped.top).values()
    values |= {each.name: each(mapped) for each in (NLL(), Brier())}
    return Outcome(mapped.top, values, notes=notes, map=fitted)


def _splits(test: Predictions) -> dict[str, Split]:
    try:
        return calibration_refinement(test) if len(test) >= _FEWEST else {}
    except FitError:  # all samples right, or all logits alike: no temperature is best
        return {}

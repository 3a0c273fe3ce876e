"""Evaluate every run once, uncalibrated and after each map, and compare candidates with a baseline.

Confidence and correctness of every sample are kept; logits are read, used and released, run by run.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from statistics import fmean
from typing import Literal, NamedTuple, TypeAlias, final

from torch import Tensor

from calibrant import catalogue
from calibrant.calibrators import Calibrator, HistogramBinning, StructuredVectorScaling, TemperatureScaling
from calibrant.calibrators.base import try_fit
from calibrant.checks import check_bins
from calibrant.comparison import TEMPERATURE, UNCALIBRATED
from calibrant.diagnosis.over_seeds import Noise, Spread, interval_of, noise_of_seeds, spread
from calibrant.diagnosis.runs import Candidate, DiagnosedRun
from calibrant.errors import FitError, InputError
from calibrant.evidence import Difference, PairedBootstrap, Resampled, corrected_differences
from calibrant.maps import Map, Scale
from calibrant.metrics import AUROC, ECE, NLL, Accuracy, Brier, Metric, ScoreSplit, Tally, calibration_refinement
from calibrant.numerics.binning import lowest_error
from calibrant.predictions import Predictions, TopLabel, counted_samples

__all__ = [
    "MAPS", "PAPER_MAPS", "TEMPERATURE", "UNCALIBRATED", "BaselineDifferences", "CandidateVerdict", "Evaluated",
    "EvaluatedCandidate", "EvaluatedRun", "Oracle", "Outcome", "differences_from", "evaluate_candidates",
    "oracle_temperature", "verdict",
]  # fmt: skip

MAPS: tuple[Calibrator, ...] = (TemperatureScaling(), HistogramBinning(), StructuredVectorScaling())
# As in "Rethinking Calibration": the temperature with the lowest ECE of a grid, and bins of equal width.
PAPER_MAPS: tuple[Calibrator, ...] = (
    TemperatureScaling(criterion="ece-overconfidence"), HistogramBinning(bins="equal_width"), StructuredVectorScaling(),
)  # fmt: skip

_TOP_METRICS = ("accuracy", "confidence", "top_brier", "auroc", "aupr_success", "aupr_error", "aurc", "e_aurc")
_FEWEST = 10  # samples that the cross-fitted split of a score needs


def check_maps(maps: Sequence[Calibrator], name: str) -> None:
    """Check that the maps have different names, with temperature scaling among them, which verdicts use."""
    names = [method.name for method in maps]
    if TEMPERATURE not in names or len(set(names)) < len(names) or UNCALIBRATED in names:
        raise InputError(
            f"{name} must be different methods, temperature among them; got {', '.join(names) or 'none'}. "
            "The uncalibrated network is always evaluated."
        )


@final
@dataclass(frozen=True)
class Oracle:
    """The lowest ECE of any temperature on the test samples themselves, and that temperature."""

    ece: float
    temperature: float


def oracle_temperature(test: Predictions, *, also: Iterable[float] = (), n_bins: int = 15) -> Oracle:
    """Search the temperature with the lowest ECE on the test samples themselves.

    "Rethinking Calibration" calls it the optimal ECE: how far a temperature could get, without the luck of the
    calibration samples. It is optimistic, because it is chosen on the samples that it is evaluated on, and more so the
    fewer they are. All temperatures are searched, usually in relative steps of 1e-5 (see ``numerics.binning``), and
    those of ``also``, such as fitted ones; NaN is skipped. If all predictions are right the lowest temperature is
    taken, and if all are wrong the highest.

    Example:
        >>> import torch
        >>> logits = torch.randn(4000, 5, generator=torch.manual_seed(0))
        >>> labels = logits.softmax(1).multinomial(1, generator=torch.manual_seed(1))[:, 0]
        >>> oracle = oracle_temperature(Predictions.from_logits(3 * logits, labels))
        >>> 2.5 < oracle.temperature < 3.5, oracle.ece < 0.02
        (True, True)
    """
    known = [temperature for temperature in also if not math.isnan(temperature)]
    return Oracle(*lowest_error(test.logits, test.labels, also=known, n_bins=n_bins, weights=test.weights))


@final
@dataclass(frozen=True, eq=False)
class Outcome:
    """The test samples of one run under one map; without samples, and with a reason, where it could not be fitted."""

    top: TopLabel | None
    values: Mapping[str, float]  # by metric
    failure: str | None = None
    notes: tuple[str, ...] = ()
    map: Map | None = None  # None also for the uncalibrated network


@final
@dataclass(frozen=True, eq=False)
class EvaluatedRun:
    """One run under every map, and under an oracle's temperature."""

    seed: int
    outcomes: Mapping[str, Outcome]  # by map, the uncalibrated network first
    temperature: float  # fitted on the calibration samples; NaN if it could not be
    oracle: Oracle
    splits: Mapping[str, ScoreSplit]  # log-loss and Brier score, uncalibrated
    calibration_rows: int
    n_classes: int


@final
@dataclass(frozen=True, eq=False)
class EvaluatedCandidate:
    """All runs of a candidate."""

    candidate: Candidate
    runs: tuple[EvaluatedRun, ...]

    @property
    def name(self) -> str:
        return self.candidate.name

    def over_runs(self, map_name: str, metric: str) -> Spread:
        return spread([run.outcomes[map_name].values.get(metric, math.nan) for run in self.runs])

    def tops(self, map_name: str) -> dict[int, TopLabel]:
        """Return the top labels of the runs that have some, by seed."""
        tops = {run.seed: run.outcomes[map_name].top for run in self.runs}
        return {seed: top for seed, top in tops.items() if top is not None}


@final
@dataclass(frozen=True, eq=False)
class Evaluated:
    """Every run of every candidate, evaluated on the same test samples, as far as these count."""

    candidates: tuple[EvaluatedCandidate, ...]
    maps: tuple[Calibrator, ...]
    n_bins: int
    n: int  # test samples
    n_classes: int
    effective_n: float | None = None  # of weighted ones

    @property
    def map_names(self) -> tuple[str, ...]:
        """Names of the maps, the uncalibrated network first."""
        return (UNCALIBRATED, *(method.name for method in self.maps))

    def find(self, name: str) -> EvaluatedCandidate:
        """Return the candidate of this name, which must exist."""
        return next(candidate for candidate in self.candidates if candidate.name == name)


def evaluate_candidates(
    candidates: Sequence[Candidate],
    *,
    maps: Sequence[Calibrator] = MAPS,
    n_bins: int = 15,
    progress: Callable[[str, int, int], None] = lambda _what, _done, _of: None,
) -> Evaluated:
    """Fit every map once for every run, and evaluate the test samples before and after.

    ``progress`` is called with the folder of each run, how many are done, and how many there are.

    Raises:
        InputError: If there is no temperature among the maps, or two of the same name.
    """
    check_bins(n_bins)
    check_maps(maps, "maps")
    places = count()
    total, evaluated = sum(len(candidate.runs) for candidate in candidates), []
    for candidate in candidates:
        runs = []
        for run in candidate.runs:
            progress(run.path.name, next(places), total)
            runs.append(_evaluate(run, maps, n_bins))
        evaluated.append(EvaluatedCandidate(candidate, tuple(runs)))
    first = evaluated[0].runs[0]
    top = first.outcomes[UNCALIBRATED].top
    assert top is not None, "the uncalibrated network needs no fit"
    effective = None if top.weights is None else top.effective_size
    return Evaluated(tuple(evaluated), tuple(maps), n_bins, len(top), first.n_classes, effective)


def _evaluate(run: DiagnosedRun, maps: Sequence[Calibrator], n_bins: int) -> EvaluatedRun:
    calibration, test = counted_samples(run.calibration), counted_samples(run.test)
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
    try:
        splits = calibration_refinement(test) if len(test) >= _FEWEST else {}
    except FitError:  # all samples right, or all logits alike: no temperature is best
        splits = {}
    return EvaluatedRun(run.seed, outcomes, temperature, oracle, splits, len(calibration), test.n_classes)


def outcome_of(
    samples: Predictions, fitted: Map | None = None, *, n_bins: int = 15, notes: tuple[str, ...] = ()
) -> Outcome:
    """Evaluate samples under a map, or uncalibrated, with the warnings of its fit as notes."""
    mapped = samples if fitted is None else fitted.transform(samples)
    mapped.softmax_rows(Brier().statistic.wanted)  # one pass over the logits for all
    values = Tally([ECE(n_bins), *(catalogue.metrics[name] for name in _TOP_METRICS)]).add(mapped.top).values()
    values |= {metric.name: metric(mapped) for metric in (NLL(), Brier())}
    return Outcome(mapped.top, values, notes=notes, map=fitted)


Differences: TypeAlias = Mapping[str, Mapping[str, Difference]]  # by map and metric
BySeed: TypeAlias = Mapping[str, Mapping[str, Mapping[int, Difference]]]  # by map, metric and seed
Overall: TypeAlias = Literal["better", "worse", "mixed", "alike"]
_Runs: TypeAlias = Mapping[int, Resampled]  # by seed


class BaselineDifferences(NamedTuple):
    """Differences of every candidate but the baseline from it, by candidate; empty for one candidate alone.

    A difference is between means over runs, on the same test samples. With one run of each it is the paired bootstrap
    of samples, and shows which of two networks does better on samples like these, not which way to train does. With
    more, the same resampled samples serve all runs, so that what they have in common cancels, and the noise of seeds is
    added (see :mod:`calibrant.diagnosis.over_seeds`). p-values are corrected for the number of candidates (Holm).
    """

    means: Mapping[str, Differences]
    by_seed: Mapping[str, BySeed]  # paired bootstraps of the two runs of each seed that both have


def differences_from(
    evaluated: Evaluated, baseline: str, *, resamples: int = 500, seed: int = 0
) -> BaselineDifferences:
    """Compare every candidate with the baseline: ECE, AUROC and accuracy under every map.

    Maps are not fitted again in a resample: the noise of the calibration samples is left out, except for the part of it
    that differs from seed to seed. A candidate without a single run under a map has NaN there.
    """
    metrics: tuple[Metric, ...] = (ECE(evaluated.n_bins), AUROC(), Accuracy())
    names = [candidate.name for candidate in evaluated.candidates]
    means: dict[str, dict[str, Mapping[str, Difference]]] = {name: {} for name in names if name != baseline}
    by_seed: dict[str, dict[str, dict[str, dict[int, Difference]]]] = {name: {} for name in means}
    samples = next(iter(evaluated.find(baseline).tops(UNCALIBRATED).values()))
    bootstrap = PairedBootstrap(samples, metrics, resamples=resamples, seed=seed)
    compare = partial(_difference, bootstrap, samples.effective_size)
    for map_name in evaluated.map_names if means else ():
        drawn = {one.name: _drawn(bootstrap, one.tops(map_name)) for one in evaluated.candidates}
        for name, differences in corrected_differences(baseline, drawn, metrics, compare).items():
            means[name][map_name], theirs, ours = differences, drawn[baseline], drawn[name]
            by_seed[name][map_name] = {
                metric.name: {
                    run: bootstrap.difference(metric, theirs[metric.name][run], own)
                    for run, own in ours[metric.name].items()
                    if run in theirs[metric.name]
                }
                for metric in metrics
            }
    return BaselineDifferences(means, by_seed)


def _drawn(bootstrap: PairedBootstrap, tops: Mapping[int, TopLabel]) -> dict[str, _Runs]:
    """Resample every run; AUROC is left out of a run without wrong predictions, as any number that is not defined."""
    drawn = {seed: bootstrap.values(top) for seed, top in tops.items()}
    return {
        metric.name: {
            seed: values[metric.name] for seed, values in drawn.items() if not math.isnan(values[metric.name].value)
        }
        for metric in bootstrap.metrics
    }


def _difference(bootstrap: PairedBootstrap, n: float, metric: Metric, baseline: _Runs, candidate: _Runs) -> Difference:
    """Return the difference of the means over runs, not corrected."""
    first, second = list(baseline.values()), list(candidate.values())
    means = [fmean(run.value for run in runs) if runs else math.nan for runs in (first, second)]
    low = high = p = math.nan
    covers_seeds = bool(first and second) and len(first) + len(second) > 2
    if covers_seeds:
        theirs, ours = Resampled.mean(first), Resampled.mean(second)
        (their_value, their_draws), (our_value, our_draws) = theirs.without_noise, ours.without_noise
        samples = Noise(_variance(our_draws - their_draws), max(n - 1, 1))
        seeds = noise_of_seeds(*([run.value for run in runs] for runs in (first, second)))
        assert seeds is not None, "there are more than two runs"
        # Removing noise from calibration errors spreads them, those of seeds as those of resamples.
        plain = _variance((ours.values - theirs.values)[1:])
        seeds = seeds._replace(variance=seeds.variance * (samples.variance / plain if plain else 1.0))
        low, high, p = interval_of(our_value - their_value, [samples, seeds])
    elif first and second:
        single = bootstrap.difference(metric, *first, *second)
        low, high, p = single.low, single.high, single.p
    return Difference(means[0], means[1], means[1] - means[0], low, high, p, covers_seeds=covers_seeds)


def _variance(drawn: Tensor) -> float:
    known = drawn[~drawn.isnan()]
    return float(known.var()) if len(known) > 1 else 0.0


@final
@dataclass(frozen=True)
class CandidateVerdict:
    """A candidate against the baseline.

    ``overall`` weighs ECE after temperature scaling and AUROC: "better" or "worse" if all that differs points one way,
    "mixed" if it does not, "alike" if nothing differs. Raw ECE does not count: post-hoc calibration can remove it.
    """

    candidate: str
    baseline: str
    raw_ece: Difference
    ece_after_temperature: Difference
    auroc: Difference  # uncalibrated
    accuracy: Difference  # uncalibrated
    overall: Overall
    runs: int
    baseline_runs: int
    n_compared: int  # candidates that were compared with the baseline, for which p-values were corrected


def verdict(
    candidate: EvaluatedCandidate, baseline: EvaluatedCandidate, differences: Differences, *, n_compared: int
) -> CandidateVerdict:
    """Return the verdict on one candidate from its differences by :func:`differences_from`."""
    uncalibrated, scaled = differences[UNCALIBRATED], differences[TEMPERATURE]["ece"]
    sides = {scaled.side, uncalibrated["auroc"].side} - {"alike"}
    return CandidateVerdict(
        candidate=candidate.name, baseline=baseline.name, raw_ece=uncalibrated["ece"], ece_after_temperature=scaled,
        auroc=uncalibrated["auroc"], accuracy=uncalibrated["accuracy"],
        overall="mixed" if len(sides) > 1 else next(iter(sides), "alike"), runs=len(candidate.runs),
        baseline_runs=len(baseline.runs), n_compared=n_compared,
    )  # fmt: skip

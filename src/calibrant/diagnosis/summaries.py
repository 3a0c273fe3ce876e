"""Summaries of candidates: calibratability, direction, coefficients, and refinement."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import torch
from torch import Tensor

from calibrant.diagnosis.evaluated import Differences, Evaluated, EvaluatedCandidate
from calibrant.diagnosis.over_seeds import Noise, Spread, TwoSample, interval_of, noise_of_seeds, spread, two_sample
from calibrant.diagrams import confidence_density
from calibrant.evidence import Difference
from calibrant.metrics import murphy, refinement_terms
from calibrant.predictions import TopLabel

__all__ = [
    "Calibratability", "CoefficientCurve", "CoefficientPoint", "DensityCurves", "Direction", "Refinement",
    "RefinementRow", "SplitSpread", "calibratability", "coefficient_curves", "directions", "refinement",
]  # fmt: skip

ORACLE = "oracle"  # key of the optimal ECE among the maps
NOT_AN_IDENTITY = (
    "equation 9 (ECE = α − β − γ) is not an identity: its right side is no calibration error. Exact is ECE = mean "
    "confidence − accuracy where no bin is underconfident (equation 7), and ECE ≥ its size always."
)
SEPARATION = ("accuracy", "auroc", "aupr_success", "aupr_error", "aurc", "e_aurc", "nll", "brier", "top_brier")
_MURPHY = ("reliability", "resolution", "uncertainty", "within_bin", "refinement")
_TERMS = ("alpha", "beta", "gamma", "equation_9", "ece", "confidence_minus_accuracy", "overconfident_bins")


@final
@dataclass(frozen=True)
class Calibratability:
    """One candidate: its ECE uncalibrated and after each map fitted on its calibration samples, over its runs.

    ``optimal_ece`` is of an oracle, chosen on the test samples: a bound on what a temperature can do, not a method.
    A loss that lowers the raw ECE but not this one has only shifted all confidences; one that raises it has lost
    something that no temperature can restore.
    """

    candidate: str
    seeds: tuple[int, ...]
    accuracy: Spread
    ece: Mapping[str, Spread]  # by map, the uncalibrated network first
    temperature: Spread  # fitted
    optimal_ece: Spread
    oracle_temperature: Spread
    t_tests: Mapping[str, TwoSample]  # ECE against the baseline's runs, by map and "oracle"; empty for itself
    differences: Mapping[str, Difference]  # in ECE on the same samples, by map; empty for the baseline
    failures: Mapping[str, str]  # why a map could not be fitted, by map and seed: "temperature, seed 0"
    notes: tuple[str, ...]  # warnings of the fits


def calibratability(
    candidate: EvaluatedCandidate, baseline: EvaluatedCandidate, differences: Differences
) -> Calibratability:
    """Summarise one candidate and its tests against the baseline; ``differences`` are empty for the baseline itself.

    Reference:
        Wang, Feng & Zhang (2021), Table 2 and Section 5.1.
    """
    maps = list(candidate.runs[0].outcomes)
    ece = {name: candidate.over_runs(name, "ece") for name in maps}
    optimal = spread([run.oracle.ece for run in candidate.runs])
    tests = {}
    if candidate is not baseline:
        tests = {name: two_sample(baseline.over_runs(name, "ece").values, ece[name].values) for name in maps}
        tests[ORACLE] = two_sample([run.oracle.ece for run in baseline.runs], optimal.values)
    outcomes = [(name, run.seed, run.outcomes[name]) for run in candidate.runs for name in maps]
    failures = {f"{name}, seed {seed}": outcome.failure for name, seed, outcome in outcomes}
    return Calibratability(
        candidate=candidate.name,
        seeds=candidate.candidate.seeds,
        accuracy=candidate.over_runs(maps[0], "accuracy"),
        ece=ece,
        temperature=spread([run.temperature for run in candidate.runs]),
        optimal_ece=optimal,
        oracle_temperature=spread([run.oracle.temperature for run in candidate.runs]),
        t_tests=tests,
        differences={name: by_metric["ece"] for name, by_metric in differences.items()},
        failures={where: failure for where, failure in failures.items() if failure is not None},
        notes=tuple(dict.fromkeys(f"{name}: {note}" for name, _, outcome in outcomes for note in outcome.notes)),
    )


DirectionSide: TypeAlias = Literal["overconfident", "underconfident", "neither"]


@final
@dataclass(frozen=True)
class Direction:
    """Mean confidence minus accuracy, over the runs of a candidate under one map, with its 95 % interval.

    It is also 0 where overconfidence on some samples and underconfidence on others cancel; the ECE is at least its
    absolute value.
    """

    candidate: str
    map: str
    gap: Spread
    low: float
    high: float
    side: DirectionSide  # "neither" where the interval holds 0
    covers_seeds: bool  # whether the interval includes the noise of seeds beside that of samples


def directions(candidate: EvaluatedCandidate) -> list[Direction]:
    """Return the direction of a candidate, uncalibrated and after each map.

    The gap of a sample is its confidence minus 1 or 0, so the interval of its mean needs no resampling; over several
    runs the gaps of each sample are averaged first, because all runs have the same samples.
    """
    return [_direction(candidate, name) for name in candidate.runs[0].outcomes]


def _direction(candidate: EvaluatedCandidate, name: str) -> Direction:
    tops = candidate.tops(name)
    gaps = {seed: top.confidence.double() - top.correct.double() for seed, top in tops.items()}
    weights = [torch.ones_like(gaps[seed]) if top.weights is None else top.weights for seed, top in tops.items()]
    means = {seed: float(gap @ weights[0] / weights[0].sum()) for seed, gap in gaps.items()}  # alike in all runs
    gap = spread([means.get(run.seed, math.nan) for run in candidate.runs])
    if not gaps:
        return Direction(candidate.name, name, gap, gap.mean, gap.mean, "neither", covers_seeds=False)
    noise = _noise_of_mean(torch.stack(list(gaps.values())).mean(0), weights[0] / weights[0].sum())
    seeds = noise_of_seeds([mean for mean in means.values() if not math.isnan(mean)])
    low, high, _ = interval_of(gap.mean, [noise] if seeds is None else [noise, seeds])
    side: DirectionSide = "overconfident" if low > 0 else "underconfident" if high < 0 else "neither"
    return Direction(candidate.name, name, gap, low, high, side, covers_seeds=seeds is not None)


def _noise_of_mean(values: Tensor, share: Tensor) -> Noise:
    """Return the noise of the mean gap of samples; weighted ones count as their effective number.

    It is at least that of half an error: where all are right, the samples show none.
    """
    n = 1 / float(share.square().sum())
    if n < 2:
        return Noise(math.inf, 1)
    squares = float((share * (values - values @ share)).square().sum())
    half_error = 0.5 / (n + 1)
    return Noise(max(squares * n / (n - 1), half_error * (1 - half_error) / n), n - 1)


@final
@dataclass(frozen=True)
class CoefficientPoint:
    """One candidate of a curve."""

    value: float
    candidate: str
    ece: Mapping[str, Spread]  # by map
    optimal_ece: Spread  # an oracle's
    temperature: Spread
    accuracy: Spread


@final
@dataclass(frozen=True)
class CoefficientCurve:
    """Candidates that are alike in everything but one number, in its order."""

    option: str  # such as "loss.smoothing" or "recipe.mixup"
    loss: str
    points: tuple[CoefficientPoint, ...]


def coefficient_curves(evaluated: Evaluated) -> tuple[CoefficientCurve, ...]:
    """Find all sets of candidates that differ in one numeric option of loss or recipe alone.

    The best coefficient read off such a curve is optimistic, in the paper too: it is chosen on the test samples that
    evaluate it.

    Reference:
        Wang, Feng & Zhang (2021), Figure 1.
    """
    groups: dict[tuple[str, str, str], list[CoefficientPoint]] = {}
    for candidate in evaluated.candidates:
        options, one = candidate.candidate.options, calibratability(candidate, candidate, {})
        for path, value in options.items():
            if path.startswith(("loss.", "recipe.")) and isinstance(value, int | float) and not isinstance(value, bool):
                rest = repr(sorted((name, other) for name, other in options.items() if name != path))
                point = CoefficientPoint(
                    float(value), one.candidate, one.ece, one.optimal_ece, one.temperature, one.accuracy
                )
                groups.setdefault((path, str(options["loss.loss"]), rest), []).append(point)
    return tuple(
        CoefficientCurve(path, loss, tuple(sorted(points, key=lambda point: point.value)))
        for (path, loss, _), points in groups.items()
        if len(points) > 1
    )


@final
@dataclass(frozen=True, eq=False)
class DensityCurves:
    """Densities of the confidence of right and of wrong predictions, on one grid, averaged over runs."""

    confidence: tuple[float, ...]
    right: tuple[float, ...]
    wrong: tuple[float, ...]
    median_right: Spread
    median_wrong: Spread


@final
@dataclass(frozen=True, eq=False)
class RefinementRow:
    """One candidate under one map, over its runs.

    ``murphy`` divides the top-label Brier score: reliability is what calibration could still remove, refinement
    (uncertainty − resolution) what it cannot. Both are of binned predictions, and noise inflates reliability and
    resolution alike, by about accuracy · (1 − accuracy)/n per bin. AUPR and AURC depend on accuracy: compare them among
    candidates of the same accuracy, which is that after the map (structured vector scaling may change predictions).
    """

    map: str
    metrics: Mapping[str, Spread]  # those of SEPARATION
    t_tests: Mapping[str, TwoSample]  # each metric against the baseline's runs under this map; empty for the baseline
    auroc_difference: Difference | None  # on the same samples
    murphy: Mapping[str, Spread]
    terms: Mapping[str, Spread]  # those of equation 9, with ECE and mean confidence − accuracy
    identity_holds: tuple[bool, ...]  # for each run: no bin is underconfident, so that ECE is that difference exactly
    density: DensityCurves | None  # None where no run could be mapped


@final
@dataclass(frozen=True)
class SplitSpread:
    """A proper score of the uncalibrated network: what a temperature can remove, and what remains, over runs."""

    total: Spread
    calibration: Spread
    refinement: Spread


@final
@dataclass(frozen=True, eq=False)
class Refinement:
    """One candidate: how well its confidence separates right from wrong predictions.

    ``splits`` divide log-loss and Brier score over all classes, by a temperature that is cross-fitted on the test
    samples (see :func:`~calibrant.metrics.calibration_refinement`). A richer recalibration would find more to remove:
    calibration is a lower bound, and refinement an upper one. The cost of fitting the temperature is in refinement,
    too: about 1/(2n) nats of log-loss.
    """

    candidate: str
    rows: tuple[RefinementRow, ...]  # uncalibrated, then after each map
    splits: Mapping[str, SplitSpread]  # nll, brier; empty where no temperature is best
    note: str = NOT_AN_IDENTITY


def refinement(
    candidate: EvaluatedCandidate, baseline: EvaluatedCandidate, differences: Differences, *, n_bins: int = 15
) -> Refinement:
    """Compute the refinement of a candidate and its tests against the baseline.

    Reference:
        Singh et al. (2021).
    """
    rows = []
    for name in candidate.runs[0].outcomes:
        metrics = {metric: candidate.over_runs(name, metric) for metric in SEPARATION}
        tests = {} if candidate is baseline else {
            metric: two_sample(baseline.over_runs(name, metric).values, ours.values) for metric, ours in metrics.items()
        }  # fmt: skip
        tops = candidate.tops(name).values()
        terms = [refinement_terms(top, n_bins=n_bins) for top in tops]
        rows.append(
            RefinementRow(
                map=name,
                metrics=metrics,
                t_tests=tests,
                auroc_difference=differences.get(name, {}).get("auroc"),
                murphy=_spreads([murphy(top, n_bins=n_bins) for top in tops], _MURPHY),
                terms=_spreads(terms, _TERMS),
                identity_holds=tuple(of_run.overconfident_bins == 1 for of_run in terms),
                density=_density(tops),
            )
        )
    splits = {}
    for score in ("nll", "brier"):
        of_runs = [run.splits[score] for run in candidate.runs if score in run.splits]
        if of_runs:
            splits[score] = SplitSpread(**_spreads(of_runs, ("total", "calibration", "refinement")))
    return Refinement(candidate.name, tuple(rows), splits)


def _spreads(of_runs: Sequence[object], names: Iterable[str]) -> dict[str, Spread]:
    return {name: spread([float(getattr(of_run, name)) for of_run in of_runs]) for name in names}


def _density(tops: Iterable[TopLabel]) -> DensityCurves | None:
    densities = [confidence_density(top) for top in tops]
    if not densities:
        return None
    right = torch.stack([density.right for density in densities if density.n_right] or [densities[0].right])
    wrong = torch.stack([density.wrong for density in densities if density.n_wrong] or [densities[0].wrong])
    return DensityCurves(
        tuple(densities[0].confidence.tolist()),
        tuple(right.mean(0).tolist()),
        tuple(wrong.mean(0).tolist()),
        spread([density.median_right for density in densities]),
        spread([density.median_wrong for density in densities]),
    )

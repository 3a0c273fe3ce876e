"""Differences of candidates from a baseline on the same test samples, with the noise of samples and of seeds."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, final

import torch
from torch import Tensor

from calibrant.diagnosis.evaluated import TEMPERATURE, UNCALIBRATED, Evaluated, EvaluatedCandidate
from calibrant.diagnosis.over_seeds import Noise, Record, interval_of, noise_of_seeds
from calibrant.evidence import Difference, PairedBootstrap, Side, correct
from calibrant.metrics import AUROC, ECE, Accuracy, Metric

__all__ = ["BaselineDifferences", "Differences", "Overall", "Verdict", "differences_from", "verdict"]

Differences: TypeAlias = Mapping[str, Mapping[str, Difference]]  # by map and metric
BySeed: TypeAlias = Mapping[str, Mapping[str, Mapping[int, Difference]]]  # by map, metric and seed
Overall: TypeAlias = Literal["better", "worse", "mixed", "alike"]
_Drawn: TypeAlias = Mapping[int, Mapping[str, Tensor]]  # by seed and metric: of the samples, then of every resample


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

    Args:
        evaluated: From :func:`~calibrant.diagnosis.evaluated.evaluate_candidates`.
        baseline: Name of a candidate.
        resamples: Bootstrap draws of the test samples.
        seed: Random seed of the draws.
    """
    metrics: tuple[Metric, ...] = (ECE(evaluated.n_bins), AUROC(), Accuracy())
    first = evaluated.find(baseline)
    others = [candidate for candidate in evaluated.candidates if candidate is not first]
    means: dict[str, dict[str, dict[str, Difference]]] = {candidate.name: {} for candidate in others}
    by_seed: dict[str, dict[str, dict[str, dict[int, Difference]]]] = {candidate.name: {} for candidate in others}
    samples = next(iter(first.tops(UNCALIBRATED).values()))
    bootstrap = PairedBootstrap(samples, metrics, resamples=resamples, seed=seed)
    for map_name in evaluated.map_names if others else ():
        first_drawn = _draw(bootstrap, first, map_name)
        for candidate in others:
            drawn = _draw(bootstrap, candidate, map_name)
            means[candidate.name][map_name], by_seed[candidate.name][map_name] = {}, {}
            for metric in metrics:
                ours, theirs = _known(drawn, metric), _known(first_drawn, metric)
                means[candidate.name][map_name][metric.name] = _difference(bootstrap, metric, theirs, ours, evaluated.n)
                by_seed[candidate.name][map_name][metric.name] = {
                    run: bootstrap.difference(metric, theirs[run], ours[run]) for run in ours if run in theirs
                }
        for metric in metrics:
            corrected = correct(metric, {name: by_map[map_name][metric.name] for name, by_map in means.items()})
            for name, difference in corrected.items():
                means[name][map_name][metric.name] = difference
    return BaselineDifferences(means, by_seed)


def _draw(bootstrap: PairedBootstrap, candidate: EvaluatedCandidate, map_name: str) -> _Drawn:
    return {seed: bootstrap.values(top) for seed, top in candidate.tops(map_name).items()}


def _known(drawn: _Drawn, metric: Metric) -> dict[int, Tensor]:
    """The runs that have such a number: without wrong predictions, for one, there is no AUROC."""
    return {seed: values[metric.name] for seed, values in drawn.items() if not values[metric.name][0].isnan()}


def _difference(
    bootstrap: PairedBootstrap, metric: Metric, baseline: Mapping[int, Tensor], candidate: Mapping[int, Tensor], n: int
) -> Difference:
    """The difference of the means over runs, not corrected."""
    first, second = list(baseline.values()), list(candidate.values())
    means = [float(torch.stack(runs)[:, 0].mean()) if runs else math.nan for runs in (first, second)]
    low = high = p = math.nan
    covers_seeds = bool(first and second) and len(first) + len(second) > 2
    if covers_seeds:
        change = torch.stack(second).mean(0) - torch.stack(first).mean(0)
        value, drawn = float(change[0]), change[1:][~change[1:].isnan()]
        # Noise inflates every calibration error, and resampling does it a second time.
        bias = float(drawn.mean()) - value if metric.family == "calibration" else 0.0
        samples = Noise(float(drawn.var()) if len(drawn) > 1 else 0.0, max(n - 1, 1))
        seeds = noise_of_seeds([float(run[0]) for run in first], [float(run[0]) for run in second])
        assert seeds is not None, "there are more than two runs"
        low, high, p = interval_of(value, [samples, seeds], bias=bias)
    elif first and second:
        found = bootstrap.difference(metric, *first, *second)
        low, high, p = found.low, found.high, found.p
    return Difference(means[0], means[1], means[1] - means[0], low, high, p, covers_seeds=covers_seeds)


@final
@dataclass(frozen=True)
class Verdict(Record):
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
) -> Verdict:
    """Weigh the differences of one candidate from the baseline.

    Args:
        candidate: A candidate of an :class:`~calibrant.diagnosis.evaluated.Evaluated`.
        baseline: Another one.
        differences: The candidate's differences of :func:`differences_from`, by map and metric.
        n_compared: Number of candidates that were compared with the baseline.
    """
    uncalibrated, scaled = differences[UNCALIBRATED], differences[TEMPERATURE]["ece"]
    sides: set[Side] = {scaled.side, uncalibrated["auroc"].side}
    if {"better", "worse"} <= sides:
        overall: Overall = "mixed"
    else:
        overall = "better" if "better" in sides else "worse" if "worse" in sides else "alike"
    return Verdict(
        candidate=candidate.name,
        baseline=baseline.name,
        raw_ece=uncalibrated["ece"],
        ece_after_temperature=scaled,
        auroc=uncalibrated["auroc"],
        accuracy=uncalibrated["accuracy"],
        overall=overall,
        runs=len(candidate.runs),
        baseline_runs=len(baseline.runs),
        n_compared=n_compared,
    )

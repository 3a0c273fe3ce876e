"""The evaluation of the samples behind a state."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TypedDict

import numpy as np
import torch
from torch import Tensor

from calibrant import evaluation
from calibrant.errors import InputError
from calibrant.evidence import by_subject
from calibrant.evidence.decisions import NetBenefit, decision_curve
from calibrant.evidence.estimates import Draws, Estimate, Levels, estimate, estimate_groups, estimate_ranked
from calibrant.evidence.logistic import Outcomes
from calibrant.evidence.risk import risk_with
from calibrant.evidence.thresholds import operating_points
from calibrant.metrics import Metric
from calibrant.metrics.smooth import KernelFeatures
from calibrant.metrics.states import (
    BinMoments,
    Binned,
    BinnedByPrediction,
    BinnedClasswise,
    BinnedMoments,
    Bins,
    Cells,
    ClassBins,
    Ranked,
    TopStatistic,
)
from calibrant.predictions import Predictions, TopLabel, as_risk
from calibrant.scale.risk import decisions_of, estimate_risks, outcomes_of, risk_with_cells
from calibrant.scale.slices import estimate_slice
from calibrant.scale.state import GROUPS, EvaluationState
from calibrant.slices import Slice, SliceRisk, rank_slices

_CHUNK = 64  # resamples computed at a time


def evaluate_state(
    state: EvaluationState,
    *,
    resamples: int = 1000,
    error_rates: Sequence[float] = (),
    thresholds: Sequence[float] = (),
    shards: int = 1,
    missing: Iterable[str] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> evaluation.Evaluation:
    """Evaluate the samples behind a state, as :func:`calibrant.evaluate` does those in memory.

    Sums give every metric and its interval, except the kernel calibration error and what a cross-fitted temperature
    removes from proper scores, which are those of the kept sample.
    """
    design, sample = state.design, state.sample.predictions
    if thresholds:
        as_risk(sample)  # refuses more than two classes
    draws: Draws = {"resamples": resamples, "seed": design.seed}
    of_predictions, of_risk = by_subject(state.metrics, sample)
    estimates, risk = estimate_state(state, sample, of_predictions, resamples=resamples, progress=progress), None
    are_kept, states, exact = len(sample) == state.n, state.states(), state.ranked()
    subject = state.ranked_risks() if of_risk else exact
    if of_risk:
        progress("evaluating the probability of one class")
        if are_kept:
            risk, errors = risk_with(sample, of_risk, n_bins=design.n_bins, **draws)
        else:
            risk, errors = risk_with_cells(subject, of_risk, n_bins=design.n_bins, **draws)
        estimates |= errors
    progress("splitting the scores into calibration and refinement")
    bins, moments = states[Binned(design.n_bins)], states[BinnedMoments(design.n_bins)]
    assert isinstance(bins, Bins)
    assert isinstance(moments, BinMoments)
    outcomes, decisions = None, tuple[NetBenefit, ...]()
    if design.classes in {None, 2}:
        outcomes = Outcomes.of(as_risk(sample)) if are_kept else outcomes_of(subject)
    if thresholds and are_kept:
        decisions = decision_curve(sample, thresholds, **draws)
    elif thresholds:
        decisions = decisions_of(subject, thresholds, dtype=getattr(torch, design.dtype))
    sampled = tuple(metric.name for metric in state.metrics if isinstance(metric.statistic, KernelFeatures))
    return evaluation.evaluation_from(
        sample,
        state.metrics,
        estimates,
        ranked=subject,
        moments=moments,
        bins=bins,
        outcomes=outcomes,
        n=state.n,
        n_bins=design.n_bins,
        seed=design.seed,
        worst_bins=evaluation.worst_of_bins(bins, excess=exact.excess_of_heavy),
        zeros=state.zeros,
        effective_n=float(exact.effective_n) if design.weighted else None,
        streamed=evaluation.Streamed(
            *(shards, len(sample), sampled, float(state.cells.auroc_error)), missing=tuple(missing)
        ),
        operating_points=operating_points(exact, error_rates, edges=state.cells.edges) if error_rates else (),
        risk=risk,
        decisions=decisions,
        **_of_classes(state, exact),
    )


class _OfClasses(TypedDict):
    masses: Tensor | None
    absent_classes: tuple[evaluation.AbsentClass, ...]
    worst_classes: list[evaluation.WorstClass]


def _of_classes(state: EvaluationState, exact: Ranked) -> _OfClasses:
    """Return what an evaluation says of the classes; nothing of top labels."""
    design, states = state.design, state.states()
    if design.classes is None:
        return {"masses": None, "absent_classes": (), "worst_classes": []}
    classwise, by_class = states[BinnedClasswise(design.n_bins)], states[BinnedByPrediction(design.n_bins)]
    assert isinstance(classwise, ClassBins)
    assert isinstance(by_class, ClassBins)
    observed, expected, names = classwise.hits.sum(-1), classwise.probability.sum(-1), design.class_names
    squares = state.sums["predicted.squares"] * exact.excess_of_heavy if design.weighted else None
    size = state.sums["predicted.samples"]
    return {
        "masses": observed,
        "absent_classes": evaluation.absent_classes(observed, expected, float(exact.effective_n), names),
        "worst_classes": evaluation.worst_of_classes(by_class, names, size=size, squared_weights=squares),
    }


def evaluate_state_slices(
    state: EvaluationState,
    columns: Sequence[str],
    *,
    resamples: int = 1000,
    error_rates: Sequence[float] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> list[Slice]:
    """Evaluate the slices by these columns, as :func:`calibrant.evaluate_slices` does those of samples in memory."""
    sums, risks, seed = state.slices["slices"], state.slices.get("risk_slices"), state.design.seed
    if unknown := [column for column in columns if column not in state.design.by]:
        known = ", ".join(map(repr, state.design.by)) or "nothing"
        raise InputError(f"states must be gathered by {unknown[0]!r} to be sliced by it; these are by {known}.")
    draws, slices = draw_counts(sums.groups, resamples, seed), []
    for (column, value), row in sorted(sums.rows.items()):
        if column in columns:
            progress(f"evaluating {column} = {value}")
            estimates, to_rest, risk = estimate_slice(sums, row, draws, seed=seed), sums.to_rest(row), None
            if risks is not None:
                of_risk, to_rest = estimate_slice(risks, row, draws, seed=seed), risks.to_rest(row)
                risk = SliceRisk.of(of_risk)
                estimates["ece"] = risk.ece
            mass, of_column = sums.sums["gap"][1, row], sums.sums["gap"][1, sums.rows_of(column)].sum()
            share = float(mass / of_column) if state.design.weighted else None
            error = float(Cells(*sums.sums["level"][[0, 1, 2, 0], row]).auroc_error)
            points = operating_points(**sums.ranked_cells(row), error_rates=error_rates) if error_rates else ()
            n = int(sums.sums["gap"][0, row])
            slices.append(Slice(column, value, n, estimates, math.nan, to_rest, share, error, points, risk))
    return rank_slices(slices)


def estimate_state(
    state: EvaluationState,
    sample: Predictions | TopLabel,
    metrics: Sequence[Metric] | None = None,
    *,
    resamples: int,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Estimate]:
    """Estimate metrics of a state, all unless given, with a uniform sample of its samples for what sums do not tell."""
    design, states, metrics = state.design, state.states(), state.metrics if metrics is None else metrics
    of_predictions, of_risk = by_subject(metrics, sample)
    sampled = [metric for metric in of_predictions if isinstance(metric.statistic, KernelFeatures)]
    summed = [metric for metric in of_predictions if metric not in sampled]
    values = {metric.name: float(metric.value(states[metric.statistic])) for metric in summed}
    draws = draw_counts(GROUPS, resamples, design.seed)
    progress("resampling the top label")
    exact = state.ranked()
    top = [metric for metric in summed if isinstance(metric.statistic, TopStatistic)]

    def levels_of(_ends: Iterable[int]) -> Levels:
        return Levels(state.levels()[0], resampled_levels(state, draws))

    estimates = estimate_ranked(top, values, exact, levels_of, resamples=resamples, seed=design.seed)
    rest = [metric for metric in summed if metric not in top]
    if rest:
        assert isinstance(sample, Predictions)
        progress("resampling all classes")
        groups = state.group_states().__getitem__
        drawn = draw_counts(state.class_groups, resamples, design.seed)
        n = float(exact.effective_n)
        estimates |= estimate_groups(rest, values, groups, drawn, sample, n=n, seed=design.seed)
    if sampled:
        progress("resampling the kernel calibration error of a sample")
        estimates |= estimate(sample, sampled, resamples=resamples, seed=design.seed)
    if of_risk:
        progress("resampling the probability of one class")
        estimates |= estimate_risks_of_state(state, sample, of_risk, resamples=resamples)
    return {metric.name: estimates[metric.name] for metric in metrics}


def estimate_risks_of_state(
    state: EvaluationState, sample: Predictions | TopLabel, metrics: Sequence[Metric], *, resamples: int
) -> dict[str, Estimate]:
    """Estimate metrics of the probability of the positive class of two; of the sample where it is all samples."""
    draws: Draws = {"resamples": resamples, "seed": state.design.seed}
    if len(sample) == state.n:
        return estimate(as_risk(sample), metrics, **draws)
    return estimate_risks(state.ranked_risks(), metrics, **draws)


@lru_cache(maxsize=4)  # all methods of a comparison have the same
def draw_counts(groups: int, resamples: int, seed: int) -> Tensor:
    """Draw groups with replacement; return how often each was drawn, (resamples, groups)."""
    drawn = np.random.default_rng([seed, 3]).multinomial(groups, np.full(groups, 1 / groups), size=resamples)
    return torch.from_numpy(drawn).double()


def resampled_levels(state: EvaluationState, draws: Tensor) -> Iterator[Ranked]:
    """Yield the levels of confidence, some resamples at a time, given how often each group was drawn, (r, groups)."""
    ranked, mass, squares = state.levels()
    for chunk in draws.split(_CHUNK):
        right, wrong = torch.tensordot(chunk, mass, dims=1).unbind(1)
        drawn = None if squares is None else chunk @ squares
        yield Ranked(ranked.log_odds, ranked.confidence, right, wrong, squared_weights=drawn)

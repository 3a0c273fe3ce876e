"""Curves over the epochs of training and over the number of calibration samples, and logits by learned epoch."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, final

import numpy as np
import torch

from calibrant.calibrators.base import try_fit
from calibrant.checks import check_at_least, check_bins
from calibrant.diagnosis.evaluated import UNCALIBRATED, Evaluated
from calibrant.diagnosis.over_seeds import Spread, spread
from calibrant.diagnosis.runs import Candidate, DiagnosedRun
from calibrant.errors import InputError
from calibrant.maps import Map, Scale, TopLabelMap
from calibrant.metrics import ece
from calibrant.numerics.binning import errors_at_temperatures
from calibrant.predictions import Predictions, TopLabel, counted_samples
from calibrant.training.record import EpochRecord

__all__ = [
    "Band", "EpochCurves", "LearnedEpochs", "LearnedGroup", "SizePoint", "ValidationSize", "epoch_curves",
    "learned_epoch_groups", "validation_sizes",
]  # fmt: skip

_NUMBERS = ("optimal_ece", "ece", "temperature", "accuracy", "nll", "max_logit")


@final
@dataclass(frozen=True)
class Band:
    """A number after every epoch: its mean over runs, and the lowest and highest run."""

    mean: tuple[float, ...]
    lowest: tuple[float, ...]
    highest: tuple[float, ...]


@final
@dataclass(frozen=True)
class EpochCurves:
    """One candidate on one held-out part, after each epoch at which all its runs were evaluated.

    ``optimal_ece`` and ``temperature`` are an oracle's: searched on the samples of that part. ``rise`` is by how much
    the mean optimal ECE of the end lies above its lowest; the lowest of many noisy numbers is too low, so a small rise
    means nothing. ``learned`` belongs to a loss that is learned, in the same epochs: for γ-Net, the mean and standard
    deviation of γ over the calibration samples, and the share of these at its limit.
    """

    candidate: str
    part: str
    runs: int
    epochs: tuple[int, ...]
    numbers: Mapping[str, Band]  # optimal_ece, ece, temperature, accuracy, nll, max_logit
    lowest_epoch: int  # where the mean optimal ECE is lowest
    rise: float
    learned: Mapping[str, Band] = field(default_factory=dict)  # gamma_mean, gamma_std, gamma_clipped; or another loss's


def epoch_curves(candidate: Candidate, part: str = "test") -> EpochCurves | None:
    """Return the curves of a candidate; None where its runs have no epoch in common at which they were evaluated.

    A run that lacks the records of some epochs is left out: its curve would end before its training did.

    Reference:
        Wang, Feng & Zhang (2021), Figure 4.
    """
    records = [run.records for run in candidate.runs if run.is_recorded]
    runs = [{record.epoch: record.held_out[part] for record in run if part in record.held_out} for run in records]
    epochs = sorted(set(runs[0]).intersection(*runs[1:])) if runs else []
    if not epochs:
        return None
    # An epoch without the number of a run is NaN.
    numbers = {name: _band([[getattr(run[epoch], name) for epoch in epochs] for run in runs]) for name in _NUMBERS}
    optimal = numbers["optimal_ece"].mean
    lowest = int(np.argmin(optimal))
    return EpochCurves(
        candidate=candidate.name, part=part, runs=len(runs), epochs=tuple(epochs), numbers=numbers,
        lowest_epoch=epochs[lowest], rise=optimal[-1] - optimal[lowest], learned=_learned(records, epochs),
    )  # fmt: skip


def _learned(records: Sequence[Sequence[EpochRecord]], epochs: list[int]) -> dict[str, Band]:
    """Return the numbers that all runs recorded of a loss that is learned; empty for others."""
    runs = [{record.epoch: record.learned for record in run} for run in records]
    names = [name for name in runs[0][epochs[0]] if all(name in run[epoch] for run in runs for epoch in epochs)]
    return {name: _band([[run[epoch][name] for epoch in epochs] for run in runs]) for name in names}


def _band(runs: list[list[float]]) -> Band:
    """Summarise (runs, epochs); None is NaN."""
    values = np.array(runs, dtype=float)
    return Band(*(tuple(over_runs.tolist()) for over_runs in (values.mean(0), values.min(0), values.max(0))))


@final
@dataclass(frozen=True)
class LearnedGroup:
    """Training samples that were learned in the same epochs; over all runs of the candidate."""

    first: int | None  # epoch, counted from 1; None for samples that were never learned
    last: int | None
    rows: int
    share: float
    mean: float  # of the top logit; NaN without samples
    std: float
    counts: tuple[int, ...]  # of the top logits, between the edges


@final
@dataclass(frozen=True)
class LearnedEpochs:
    """One candidate's top logits by the epoch a sample was learned in. Groups and edges are those of all candidates.

    ``rank_correlation`` is Spearman's, of the epoch in which a sample was learned (never is last) and its top logit:
    clearly negative where late samples keep lower logits, near 0 where logits no longer separate hard from easy ones.
    """

    candidate: str
    runs: int
    edges: tuple[float, ...]
    groups: tuple[LearnedGroup, ...]  # by rising epoch; those never learned last
    rank_correlation: Spread  # NaN for a run whose samples were all learned in one epoch


class _Traced(NamedTuple):
    """One run: the epoch of each sample, whether it was never learned, and its top logit."""

    epoch: np.ndarray
    never: np.ndarray
    logit: np.ndarray


def learned_epoch_groups(
    candidates: Sequence[Candidate], *, groups: int = 4, n_bins: int = 40
) -> tuple[LearnedEpochs, ...]:
    """Compute histograms of top logits by learned epoch, for the candidates whose runs were traced; there must be one.

    At most ``groups`` groups of epochs divide the learned samples of all runs into parts about as equal as whole epochs
    allow (the paper does not say how it divides them); the samples that were never learned are one more.

    Reference:
        Wang, Feng & Zhang (2021), Figure 5.
    """
    check_at_least(groups, 1, "groups")
    check_bins(n_bins)
    traced = {candidate.name: _traces(candidate) for candidate in candidates}
    traced = {name: runs for name, runs in traced.items() if runs}
    if not traced:
        raise InputError("a run must have been traced to know when samples were learned; none was. Train with --trace.")
    everything = [run for runs in traced.values() for run in runs]
    bounds = _bounds(np.concatenate([run.epoch[~run.never] for run in everything]), groups)
    low, high = min(float(run.logit.min()) for run in everything), max(float(run.logit.max()) for run in everything)
    edges = np.linspace(low, high if high > low else low + 1, n_bins + 1)
    return tuple(_of_candidate(name, runs, bounds, edges) for name, runs in traced.items())


def _traces(candidate: Candidate) -> list[_Traced]:
    learned = [(run.learning, run.settings.recipe.epochs) for run in candidate.runs if run.is_traced]
    return [
        _Traced(one.learned_epoch.numpy(), (one.learned_epoch > epochs).numpy(), one.max_logit.double().numpy())
        for one, epochs in learned
        if one is not None
    ]


def _bounds(epochs: np.ndarray, groups: int) -> list[tuple[int, int]]:
    """Return the first and last epoch of each group."""
    if not epochs.size:
        return []
    shares = np.arange(1, groups + 1) / groups
    lasts = np.unique(np.quantile(epochs, shares, method="inverted_cdf").astype(int)).tolist()
    return list(zip([1, *(last + 1 for last in lasts[:-1])], lasts, strict=True))


def _of_candidate(name: str, runs: list[_Traced], bounds: list[tuple[int, int]], edges: np.ndarray) -> LearnedEpochs:
    epoch, never, logit = (np.concatenate([run[column] for run in runs]) for column in range(3))
    groups = [_group(first, last, logit, ~never & (epoch >= first) & (epoch <= last), edges) for first, last in bounds]
    groups.append(_group(None, None, logit, never, edges))
    correlation = spread([_rank_correlation(run) for run in runs])
    return LearnedEpochs(name, len(runs), tuple(edges.tolist()), tuple(groups), correlation)


def _group(
    first: int | None, last: int | None, logit: np.ndarray, chosen: np.ndarray, edges: np.ndarray
) -> LearnedGroup:
    mine = logit[chosen]
    counts, _ = np.histogram(mine, edges)
    mean, std = (float(mine.mean()), float(mine.std())) if mine.size else (math.nan, math.nan)
    return LearnedGroup(first, last, int(mine.size), mine.size / logit.size, mean, std, tuple(counts.tolist()))


def _rank_correlation(run: _Traced) -> float:
    from scipy.stats import rankdata

    epochs, logits = rankdata(run.epoch), rankdata(run.logit)
    return math.nan if epochs.std() == 0 or logits.std() == 0 else float(np.corrcoef(epochs, logits)[0, 1])


_SIZES = tuple(digit * 10**power for power in range(1, 7) for digit in (1, 2, 5))
_STEPS = 4  # default number of sizes below all samples


@final
@dataclass(frozen=True)
class SizePoint:
    """The ECE after each map fitted on a number of samples, over runs and draws; a fit that failed has NaN."""

    rows: int
    ece: Mapping[str, Spread]  # by map; its lowest and highest are of all runs and draws
    failed: Mapping[str, int]  # fits, by map


@final
@dataclass(frozen=True)
class ValidationSize:
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

    ``sizes`` are numbers of samples, by default a few round numbers; those that are not below what the runs have are
    left out. ``progress`` is called with the folder of each run, how many are done, and how many there are.

    Reference:
        Wang, Feng & Zhang (2021), Figure 3.
    """
    check_at_least(draws, 1, "draws")
    for size in sizes or ():
        check_at_least(size, 2, "a number of calibration samples")
    total, done, curves = sum(len(candidate.runs) for candidate in evaluated.candidates), 0, []
    names = evaluated.map_names[1:]
    for candidate in evaluated.candidates:
        n = candidate.runs[0].calibration_rows  # alike in all runs, which have one split
        chosen = [size for size in (_SIZES if sizes is None else sorted(set(sizes))) if size < n]
        chosen = chosen[-_STEPS:] if sizes is None else chosen
        errors = []
        for run in candidate.candidate.runs:
            progress(run.path.name, done, total)
            errors.append(_errors_of_run(run, evaluated, chosen, draws, seed))
            done += 1
        drawn = np.stack(errors)  # (runs, maps, sizes, draws)
        points = [
            _point(size, {name: drawn[:, which, place].ravel().tolist() for which, name in enumerate(names)})
            for place, size in enumerate(chosen)
        ]
        points.append(_point(n, {name: list(candidate.over_runs(name, "ece").values) for name in names}))
        raw = candidate.over_runs(UNCALIBRATED, "ece")
        curves.append(ValidationSize(candidate.name, draws, raw, tuple(points)))
    return tuple(curves)


def _errors_of_run(run: DiagnosedRun, evaluated: Evaluated, sizes: Sequence[int], draws: int, seed: int) -> np.ndarray:
    """Return the ECE of each map, size and draw, (maps, sizes, draws); NaN where the fit failed."""
    calibration, test = counted_samples(run.calibration), counted_samples(run.test)
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
    """Return the ECE after a map, without a pass over every logit where the map needs none."""
    if isinstance(fitted, Scale):
        temperature = fitted.temperature.double()[None]
        errors = errors_at_temperatures(test.logits, test.labels, temperature, n_bins=n_bins, weights=test.weights)
        return float(errors)
    if isinstance(fitted, TopLabelMap):
        # The map keeps the predicted class at one class's share or more.
        log_odds = fitted.curve(test.top.log_odds[:, None])[:, 0].clamp(min=-math.log(test.n_classes - 1))
        return ece(TopLabel(log_odds.double().sigmoid(), test.correct, weights=test.weights), n_bins=n_bins)
    return ece(fitted.transform(test), n_bins=n_bins)


def _point(size: int, values: Mapping[str, list[float]]) -> SizePoint:
    failed = {name: sum(map(math.isnan, errors)) for name, errors in values.items()}
    return SizePoint(size, {name: spread(errors) for name, errors in values.items()}, failed)

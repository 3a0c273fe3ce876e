"""Curves over the epochs of training and over the number of calibration samples, and logits by learned epoch."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, final

import numpy as np
import torch

from calibrant.calibrators.base import try_fit
from calibrant.checks import check_at_least, check_bins
from calibrant.diagnosis.evaluated import UNCALIBRATED, Evaluated, EvaluatedCandidate
from calibrant.diagnosis.over_seeds import Record, Spread, spread
from calibrant.diagnosis.runs import Candidate, DiagnosedRun
from calibrant.errors import InputError
from calibrant.maps import Map, Scale, TopLabelMap
from calibrant.metrics import ece
from calibrant.numerics.binning import errors_at_temperatures
from calibrant.predictions import Predictions, TopLabel
from calibrant.training.record import EpochRecord, HeldOutRecord

__all__ = [
    "Band",
    "EpochCurves",
    "LearnedEpochs",
    "LearnedGroup",
    "SizePoint",
    "ValidationSize",
    "epoch_curves",
    "learned_epoch_groups",
    "validation_sizes",
]

_NUMBERS = ("optimal_ece", "ece", "temperature", "accuracy", "nll", "max_logit")


@final
@dataclass(frozen=True)
class Band(Record):
    """A number epoch by epoch: its mean over runs, and the range from the lowest run to the highest."""

    mean: tuple[float, ...]
    lowest: tuple[float, ...]
    highest: tuple[float, ...]


@final
@dataclass(frozen=True)
class EpochCurves(Record):
    """One candidate on one held-out part, after each epoch in which all its runs looked.

    ``optimal_ece`` and ``temperature`` are an oracle's: searched on the very rows of that part. ``rise`` is by how much
    the mean optimal ECE of the end lies above its lowest; the lowest of many noisy numbers is too low, so a small rise
    is nothing. ``learned`` is of a loss that is learned, in the same epochs: of γ-Net, the mean and the standard
    deviation of γ over the rows set apart to calibrate, and the share of these at its limit.
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
    """The curves of a candidate; None where its runs have no epoch in common at which that part was looked at.

    A run that lacks the records of some epochs is left out: its curve would end before its training did.

    Args:
        candidate: From :func:`~calibrant.diagnosis.runs.grouped`.
        part: ``test`` or ``calibration``.

    Reference:
        Wang, Feng & Zhang (2021), Rethinking Calibration of Deep Neural Networks: Do Not Be Afraid of Overconfidence,
        Figure 4.
    """
    records = [run.records for run in candidate.runs if run.is_recorded]
    runs = [_looks(each, part) for each in records]
    epochs = sorted(set(runs[0]).intersection(*runs[1:])) if runs else []
    if not epochs:
        return None
    numbers = {
        name: _band(np.array([[_number(run[epoch], name) for epoch in epochs] for run in runs])) for name in _NUMBERS
    }
    optimal = numbers["optimal_ece"].mean
    lowest = int(np.argmin(optimal))
    return EpochCurves(
        candidate=candidate.name,
        part=part,
        runs=len(runs),
        epochs=tuple(epochs),
        numbers=numbers,
        lowest_epoch=epochs[lowest],
        rise=optimal[-1] - optimal[lowest],
        learned=_learned(records, epochs),
    )


def _learned(records: Sequence[Sequence[EpochRecord]], epochs: list[int]) -> dict[str, Band]:
    """The numbers that all runs recorded of a loss that is learned; empty for others."""
    runs = [{record.epoch: record.learned for record in of_run} for of_run in records]
    names = [name for name in runs[0][epochs[0]] if all(name in run[epoch] for run in runs for epoch in epochs)]
    return {name: _band(np.array([[run[epoch][name] for epoch in epochs] for run in runs])) for name in names}


def _looks(records: tuple[EpochRecord, ...], part: str) -> dict[int, HeldOutRecord]:
    return {record.epoch: record.held_out[part] for record in records if part in record.held_out}


def _number(record: HeldOutRecord, name: str) -> float:
    value = getattr(record, name)
    return math.nan if value is None else float(value)


def _band(values: np.ndarray) -> Band:
    """Over the runs, (runs, epochs); an epoch in which one has no number has none."""
    return Band(*(tuple(each.tolist()) for each in (values.mean(0), values.min(0), values.max(0))))


@final
@dataclass(frozen=True)
class LearnedGroup(Record):
    """Training rows that were learned in the same epochs; over all runs of the candidate."""

    first: int | None  # epoch, counted from 1; None for rows that were never learned
    last: int | None
    rows: int
    share: float
    mean: float  # of the top logit; NaN without rows
    std: float
    counts: tuple[int, ...]  # of the top logits, between the edges


@final
@dataclass(frozen=True)
class LearnedEpochs(Record):
    """One candidate's top logits by when a row was learned. Groups and edges are the same for all candidates.

    ``rank_correlation`` is Spearman's, of the epoch in which a row was learned (never is last) and its top logit:
    clearly negative where late rows keep lower logits, near 0 where the network no longer tells hard rows from easy
    ones.
    """

    candidate: str
    runs: int
    edges: tuple[float, ...]
    groups: tuple[LearnedGroup, ...]  # by rising epoch; those never learned last
    rank_correlation: Spread  # NaN for a run whose rows were all learned in one epoch


class _Traced(NamedTuple):
    """One run: the epoch of each row, whether it was learned at all, and its top logit."""

    epoch: np.ndarray
    never: np.ndarray
    logit: np.ndarray


def learned_epoch_groups(
    candidates: Sequence[Candidate], *, groups: int = 4, n_bins: int = 40
) -> tuple[LearnedEpochs, ...]:
    """Histograms of top logits by learned epoch, of the candidates whose runs were traced.

    The groups are epochs that divide the learned rows of all runs into parts about as equal as whole epochs allow. (The
    paper does not say how it divides them.)

    Args:
        candidates: From :func:`~calibrant.diagnosis.runs.grouped`; runs without a trace are left out.
        groups: At most so many, beside the rows that were never learned.
        n_bins: Number of bins of the top logit.

    Raises:
        InputError: If no run was traced.

    Reference:
        Wang, Feng & Zhang (2021), Rethinking Calibration of Deep Neural Networks: Do Not Be Afraid of Overconfidence,
        Figure 5.
    """
    check_at_least(groups, 1, "groups")
    check_bins(n_bins)
    traced = {each.name: _traces(each) for each in candidates}
    traced = {name: runs for name, runs in traced.items() if runs}
    if not traced:
        raise InputError("a run must have been traced to tell when rows were learned; none was. Train with --trace.")
    everything = [run for runs in traced.values() for run in runs]
    bounds = _bounds(np.concatenate([run.epoch[~run.never] for run in everything]), groups)
    logits = [run.logit for run in everything]
    low, high = min(float(each.min()) for each in logits), max(float(each.max()) for each in logits)
    edges = np.linspace(low, high if high > low else low + 1, n_bins + 1)
    return tuple(_of_candidate(name, runs, bounds, edges) for name, runs in traced.items())


def _traces(candidate: Candidate) -> list[_Traced]:
    found = []
    for run in candidate.runs:
        if (learning := run.learning) is not None:
            epoch = learning.learned_epoch.numpy()
            found.append(_Traced(epoch, epoch > run.settings.recipe.epochs, learning.max_logit.double().numpy()))
    return found


def _bounds(epochs: np.ndarray, groups: int) -> list[tuple[int, int]]:
    """First and last epoch of each group."""
    if not epochs.size:
        return []
    shares = np.arange(1, groups + 1) / groups
    lasts = np.unique(np.quantile(epochs, shares, method="inverted_cdf").astype(int)).tolist()
    firsts = [1, *(last + 1 for last in lasts[:-1])]
    return list(zip(firsts, lasts, strict=True))


def _of_candidate(name: str, runs: list[_Traced], bounds: list[tuple[int, int]], edges: np.ndarray) -> LearnedEpochs:
    epoch, never, logit = (np.concatenate([run[column] for run in runs]) for column in range(3))
    members = [(first, last, ~never & (epoch >= first) & (epoch <= last)) for first, last in bounds]
    groups = [_group(first, last, logit, chosen, edges) for first, last, chosen in members]
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
    if epochs.std() == 0 or logits.std() == 0:
        return math.nan
    return float(np.corrcoef(epochs, logits)[0, 1])


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
            drawn.append(_errors_of_run(run, evaluated, chosen, draws, seed))
            done += 1
        found.append(_size_curve(each, evaluated, chosen, draws, np.stack(drawn)))
    return tuple(found)


def _errors_of_run(run: DiagnosedRun, evaluated: Evaluated, sizes: Sequence[int], draws: int, seed: int) -> np.ndarray:
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


def _size_curve(
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

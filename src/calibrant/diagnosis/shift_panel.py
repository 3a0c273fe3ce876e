"""The shift panel: the same networks and the same maps, evaluated on images that neither was made for."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, final

import numpy as np
import torch
from torch import nn

from calibrant.checks import check_at_least, check_known
from calibrant.diagnosis.baseline import BaselineDifferences, differences_from
from calibrant.diagnosis.calibratability import Direction, directions
from calibrant.diagnosis.evaluated import Evaluated, EvaluatedCandidate, EvaluatedRun, Oracle, outcome_of
from calibrant.diagnosis.over_seeds import Record, Spread, TwoSample, spread, two_sample
from calibrant.diagnosis.shifted_sets import ShiftedSet, ShiftSource, check_suits
from calibrant.errors import InputError
from calibrant.evidence import Difference
from calibrant.predictions import Predictions
from calibrant.training import load_network, predict

__all__ = ["CLEAN", "ShiftLevel", "ShiftPanel", "ShiftRow", "ShiftSummary", "shift_levels", "shift_panel", "shift_rows"]

CLEAN: Final = "clean"  # the test samples as they are
_METRICS = ("accuracy", "ece", "nll", "brier", "auroc")


@final
@dataclass(frozen=True)
class ShiftSummary(Record):
    """Description of a set."""

    shift: str  # its name; "clean" for the test samples as they are
    source: ShiftSource
    severity: int | None  # None for a shift that has no severities
    n: int


@final
@dataclass(frozen=True, eq=False)
class ShiftRow(Record):
    """One candidate under one map on one set, over its runs.

    The maps were fitted on clean calibration samples. A map that calibrates the clean samples need not
    calibrate these, on which accuracy is another.
    """

    candidate: str
    map: str
    shift: str
    source: ShiftSource
    severity: int | None
    n: int
    metrics: Mapping[str, Spread]  # accuracy, ece, nll, brier, auroc, and gap: mean confidence minus accuracy
    change: Mapping[str, Spread]  # of each since the clean samples, run by run
    direction: Direction
    differences: Mapping[str, Difference]  # from the baseline: ece, auroc, accuracy; empty where not compared
    by_seed: Mapping[str, Mapping[int, Difference]]  # the same of the two runs of a seed


def shift_rows(
    evaluated: Evaluated,
    summary: ShiftSummary,
    *,
    clean: Sequence[ShiftRow] = (),
    compared: BaselineDifferences | None = None,
) -> tuple[ShiftRow, ...]:
    """A row for every candidate and map, in their order.

    Args:
        evaluated: Evaluation on the samples of this set.
        summary: Summary of the set.
        clean: The rows of the clean samples, in the same order; empty if these are the clean samples.
        compared: From :func:`~calibrant.diagnosis.baseline.differences_from` on the samples of this set, if at all.
    """
    found: list[ShiftRow] = []
    for candidate in evaluated.candidates:
        for direction in directions(candidate):
            metrics = {name: candidate.over_runs(direction.map, name) for name in _METRICS} | {"gap": direction.gap}
            before = clean[len(found)].metrics if clean else metrics
            is_compared = compared is not None and candidate.name in compared.means
            found.append(
                ShiftRow(
                    candidate=candidate.name,
                    map=direction.map,
                    shift=summary.shift,
                    source=summary.source,
                    severity=summary.severity,
                    n=summary.n,
                    metrics=metrics,
                    change={name: _change(before[name], value) for name, value in metrics.items()},
                    direction=direction,
                    differences=compared.means[candidate.name][direction.map] if compared and is_compared else {},
                    by_seed=compared.by_seed[candidate.name][direction.map] if compared and is_compared else {},
                )
            )
    return tuple(found)


def _change(before: Spread, after: Spread) -> Spread:
    return spread([new - old for old, new in zip(before.values, after.values, strict=True)])


@final
@dataclass(frozen=True, eq=False)
class ShiftLevel(Record):
    """One candidate under one map at one severity: the mean over corruptions of each run, over its runs.

    A mean of calibration errors is not the error of the mean: a network that claims too much under noise and too little
    under blur has an ECE under both, and ``gap`` may be 0. A number that one corruption does not give (AUROC, where all
    answers are wrong) is missing, because the mean of the others would not be comparable.
    """

    candidate: str
    map: str
    source: ShiftSource  # corruptions of the library, or of files; the two are not mixed
    severity: int  # 0 for the clean samples
    shifts: tuple[str, ...]  # that the mean is over
    metrics: Mapping[str, Spread]
    change: Mapping[str, Spread]  # of each since the clean samples, run by run
    t_tests: Mapping[str, TwoSample]  # of each against the baseline's runs under this map; empty for the baseline


def shift_levels(rows: Sequence[ShiftRow], baseline: str) -> tuple[ShiftLevel, ...]:
    """By source, candidate, map and rising severity; none where no set has a severity.

    Args:
        rows: Rows of all sets, those of the clean samples among them.
        baseline: The name of a candidate.

    Reference:
        Hendrycks & Dietterich (2019), Benchmarking Neural Network Robustness to Common Corruptions and Perturbations.
    """
    groups: dict[tuple[ShiftSource, str, str, int], list[ShiftRow]] = {}
    sources = dict.fromkeys(row.source for row in rows if row.severity is not None)
    for source in sources:
        for row in rows:
            if row.source == CLEAN or (row.source == source and row.severity is not None):
                groups.setdefault((source, row.candidate, row.map, row.severity or 0), []).append(row)
    means = {key: _means(group) for key, group in groups.items()}
    order = list(dict.fromkeys((row.candidate, row.map) for row in rows))
    found = []
    for source, candidate, name, severity in sorted(groups, key=lambda key: (key[0], order.index(key[1:3]), key[3])):
        values, clean = means[source, candidate, name, severity], means[source, candidate, name, 0]
        others = {} if candidate == baseline else means[source, baseline, name, severity]
        found.append(
            ShiftLevel(
                candidate=candidate,
                map=name,
                source=source,
                severity=severity,
                shifts=tuple(row.shift for row in groups[source, candidate, name, severity]),
                metrics={metric: spread(each.tolist()) for metric, each in values.items()},
                change={metric: spread((each - clean[metric]).tolist()) for metric, each in values.items()},
                t_tests={metric: two_sample(each.tolist(), values[metric].tolist()) for metric, each in others.items()},
            )
        )
    return tuple(found)


def _means(rows: Sequence[ShiftRow]) -> dict[str, np.ndarray]:
    """The mean over sets of each run, (runs,) by metric."""
    return {name: np.array([row.metrics[name].values for row in rows]).mean(0) for name in rows[0].metrics}


@final
@dataclass(frozen=True, eq=False)
class ShiftPanel(Record):
    """All sets, the clean samples first.

    A set without severities is compared with the baseline sample by sample (``differences`` of its rows). Sets with
    severities are many, and of the same images; they are compared by their mean, over seeds (``levels``).
    """

    baseline: str
    maps: tuple[str, ...]  # "none", then those that were fitted
    sets: tuple[ShiftSummary, ...]
    rows: tuple[ShiftRow, ...]  # by set, then by candidate, then by map
    levels: tuple[ShiftLevel, ...]  # means over corruptions, the clean samples (severity 0) first


def shift_panel(
    evaluated: Evaluated,
    sets: Sequence[ShiftedSet],
    *,
    baseline: str,
    device: torch.device,
    resamples: int = 500,
    seed: int = 0,
    progress: Callable[[str, int, int], None] = lambda _what, _done, _of: None,
) -> ShiftPanel:
    """Run every network on every set, under the maps that clean calibration samples gave; nothing is fitted.

    The device holds all networks, and one set at a time. Numbers on the clean samples are those that the runs saved: on
    another device than they were trained on, logits differ in their last digits, and these are in every change.

    Args:
        evaluated: From :func:`~calibrant.diagnosis.evaluated.evaluate_candidates`, with its maps.
        sets: From :func:`~calibrant.diagnosis.shifted_sets.corrupted_sets` and
            :func:`~calibrant.diagnosis.shifted_sets.stored_sets`.
        baseline: The candidate that the others are compared with.
        device: Where the networks run.
        resamples: Bootstrap draws of the rows of a set without severities.
        seed: Random seed of the draws.
        progress: Called with what is being done, how many passes of a network over a set are, and how many there are.

    Raises:
        InputError: If there is no set, one is there twice, or one does not suit the networks.
        UnknownNameError: If there is no such baseline.
        FileError: If a run's weights cannot be read.

    Reference:
        Singh et al. (2021), On the Dark Side of Calibration for Modern Neural Networks, Table 3 (natural shifts).
    """
    check_at_least(resamples, 2, "resamples")
    check_known(baseline, [each.name for each in evaluated.candidates], "a candidate")
    _check_different(sets)
    paths = [run.path for each in evaluated.candidates for run in each.candidate.runs]
    networks = {path: load_network(path).to(device) for path in paths}
    summaries = [ShiftSummary(CLEAN, CLEAN, None, evaluated.n)]
    clean = shift_rows(evaluated, summaries[0])
    rows, done, total = list(clean), 0, len(sets) * len(paths)

    def network_of(path: Path, on: ShiftedSet) -> nn.Module:
        nonlocal done
        progress(f"{path.name} on {on.title}", done, total)
        done += 1
        return networks[path]

    for each in sets:
        progress(f"making {each.title}", done, total)
        found = _evaluated_on(evaluated, each, device, network_of)
        summaries.append(ShiftSummary(each.name, each.source, each.severity, found.n))
        is_one = each.severity is None
        compared = differences_from(found, baseline, resamples=resamples, seed=seed) if is_one else None
        rows += shift_rows(found, summaries[-1], clean=clean, compared=compared)
    return ShiftPanel(baseline, evaluated.map_names, tuple(summaries), tuple(rows), shift_levels(rows, baseline))


def _check_different(sets: Sequence[ShiftedSet]) -> None:
    if not sets:
        raise InputError("there must be a shifted set to judge networks on; got none.")
    titles = [(each.source, each.title) for each in sets]
    twice = next((title for title in titles if titles.count(title) > 1), None)
    if twice is not None:
        raise InputError(f"each shifted set must have its own name; {twice[1]} is there twice. Name one otherwise.")


def _evaluated_on(
    evaluated: Evaluated, shifted: ShiftedSet, device: torch.device, network_of: Callable[[Path, ShiftedSet], nn.Module]
) -> Evaluated:
    """Every run evaluated on another set; the set is dropped at the end."""
    examples = shifted.make(device)
    images, labels = examples.inputs.to(device), examples.labels.cpu()
    candidates = []
    for each in evaluated.candidates:
        runs = []
        for run, before in zip(each.candidate.runs, each.runs, strict=True):
            check_suits(examples, run, shifted.title)
            logits = predict(network_of(run.path, shifted), images)
            # Where the clean samples were evaluated: sums of another device would differ in the last digits.
            runs.append(_under_maps(Predictions.from_logits(logits.cpu(), labels), before, evaluated.n_bins))
        candidates.append(EvaluatedCandidate(each.candidate, tuple(runs)))
    return replace(evaluated, candidates=tuple(candidates), n=len(labels))


def _under_maps(rows: Predictions, before: EvaluatedRun, n_bins: int) -> EvaluatedRun:
    outcomes = {
        # A map that could not be fitted is not to be had here either.
        name: outcome if outcome.top is None else outcome_of(rows, outcome.map, n_bins=n_bins, notes=outcome.notes)
        for name, outcome in before.outcomes.items()
    }
    return replace(before, outcomes=outcomes, oracle=Oracle(math.nan, math.nan), splits={})

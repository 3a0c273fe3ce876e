"""The shift panel: the same networks and the same maps, judged on images that neither was made for."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import nn

from calibrant.checks import check_at_least, check_known
from calibrant.datasets import Examples
from calibrant.diagnosis.against import Against, compared_with
from calibrant.diagnosis.direction import Direction, directions
from calibrant.diagnosis.judged import Judged, JudgedCandidate, JudgedRun, outcome_of
from calibrant.diagnosis.oracle import Oracle
from calibrant.diagnosis.over_seeds import Spread, spread
from calibrant.diagnosis.record import Record
from calibrant.diagnosis.runs import DiagnosedRun
from calibrant.diagnosis.shift_levels import ShiftLevel, shift_levels
from calibrant.diagnosis.shifted_sets import ShiftedSet, ShiftSource, check_suits
from calibrant.errors import InputError
from calibrant.predictions import Predictions
from calibrant.training import load_network, predict

__all__ = ["CLEAN", "ShiftPanel", "ShiftRow", "ShiftSummary", "shift_panel"]

CLEAN = "clean"  # the test rows as they are
_METRICS = ("accuracy", "ece", "nll", "brier", "auroc")
_GAP = "gap"


@final
@dataclass(frozen=True)
class ShiftSummary(Record):
    """What a set is."""

    name: str
    source: ShiftSource
    severity: int | None
    n: int


@final
@dataclass(frozen=True, eq=False)
class ShiftRow(Record):
    """One candidate under one map on one set, over its runs.

    The maps were fitted on clean calibration rows. A map that mends the clean rows need not mend these: what a
    temperature takes off suits the accuracy there, and accuracy falls here.
    """

    candidate: str
    map: str
    shift: str  # "clean" for the test rows as they are
    source: ShiftSource
    severity: int | None  # None for a shift that has no severities
    n: int
    metrics: Mapping[str, Spread]  # accuracy, ece, nll, brier, auroc, and gap: mean confidence minus accuracy
    change: Mapping[str, Spread]  # of each against the clean rows, run by run
    direction: Direction
    against: Mapping[str, Against]  # the reference on these rows: ece, auroc, accuracy; empty for it, and see the panel


@final
@dataclass(frozen=True, eq=False)
class ShiftPanel(Record):
    """All sets, the clean rows first.

    A set without severities is held against the reference row by row (``against``). Those with severities are many and
    of the same pictures; they are held against it in their mean, over seeds (``levels``).
    """

    reference: str
    maps: tuple[str, ...]
    sets: tuple[ShiftSummary, ...]
    rows: tuple[ShiftRow, ...]  # by set, then by candidate, then by map
    levels: tuple[ShiftLevel, ...]  # means over corruptions by severity, the clean rows (severity 0) first


def shift_panel(
    judged: Judged,
    sets: Sequence[ShiftedSet],
    *,
    reference: str,
    device: torch.device,
    resamples: int = 500,
    seed: int = 0,
    progress: Callable[[str, int, int], None] = lambda _what, _done, _of: None,
) -> ShiftPanel:
    """Run every network on every set; nothing is fitted.

    All networks are held on the device, and one set at a time. Accuracy that falls where confidence does not is what a
    shift does to most networks; how much of it is the shift's and how much the way to train is told only beside the
    clean rows, which every row is.

    Args:
        judged: From :func:`~calibrant.diagnosis.judged.judge_candidates`; its maps are those judged here.
        sets: From :func:`~calibrant.diagnosis.shifted_sets.corrupted_sets` and
            :func:`~calibrant.diagnosis.shifted_sets.stored_sets`.
        reference: The candidate that the others are held against.
        device: Where the networks run.
        resamples: Bootstrap draws of the rows of sets without severities.
        seed: Of the draws.
        progress: Called with what is being done, how many networks and sets are done, and how many there are.

    Raises:
        InputError: If there is no set, one is there twice, or one does not suit the networks.
        UnknownNameError: If there is no such reference.
        FileError: If a run's weights cannot be read.

    Reference:
        Hendrycks & Dietterich (2019), Benchmarking Neural Network Robustness to Common Corruptions and Perturbations
        (means over corruptions by severity); Singh et al. (2021), On the Dark Side of Calibration for Modern Neural
        Networks, Table 3 (natural shifts).
    """
    check_at_least(resamples, 2, "resamples")
    check_known(reference, [each.name for each in judged.candidates], "a candidate")
    _check_sets(sets)
    networks = {
        run.path: load_network(run.path).to(device) for each in judged.candidates for run in each.candidate.runs
    }
    summaries = [ShiftSummary(CLEAN, "clean", None, judged.n)]
    rows = [*_rows(judged, judged, summaries[0], {})]
    total = len(sets) * len(networks)
    for place, shifted in enumerate(sets):
        progress(f"making {shifted.title}", place * len(networks), total)
        examples = shifted.make(device)
        found = _judged_on(
            judged, examples, networks, shifted.title, device,
            lambda run, done, of=place: progress(f"{run} on {sets[of].title}", of * len(networks) + done, total),
        )  # fmt: skip
        summaries.append(ShiftSummary(shifted.name, shifted.source, shifted.severity, found.n))
        against = {} if shifted.severity is not None else compared_with(
            found, reference, resamples=resamples, seed=seed
        )  # fmt: skip
        rows += _rows(found, judged, summaries[-1], against)
    levels = shift_levels(rows, reference)
    return ShiftPanel(reference, judged.map_names, tuple(summaries), tuple(rows), levels)

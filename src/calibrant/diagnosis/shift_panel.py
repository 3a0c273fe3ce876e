"""The shift panel: the same networks and the same maps, judged on images that neither was made for."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import torch
from torch import nn

from calibrant.checks import check_at_least, check_known
from calibrant.diagnosis.against import compared_with
from calibrant.diagnosis.judged import Judged, JudgedCandidate, JudgedRun, outcome_of
from calibrant.diagnosis.oracle import Oracle
from calibrant.diagnosis.record import Record
from calibrant.diagnosis.run_images import check_suits
from calibrant.diagnosis.shift_levels import ShiftLevel, shift_levels
from calibrant.diagnosis.shift_rows import CLEAN, ShiftRow, ShiftSummary, shift_rows
from calibrant.diagnosis.shifted_sets import ShiftedSet
from calibrant.errors import InputError
from calibrant.predictions import Predictions
from calibrant.training import load_network, predict

__all__ = ["ShiftPanel", "shift_panel"]


@final
@dataclass(frozen=True, eq=False)
class ShiftPanel(Record):
    """All sets, the clean rows first.

    A set without severities is held against the reference row by row (``against`` of its rows). Sets with severities
    are many, and of the same pictures; they are held against it in their mean, over seeds (``levels``).
    """

    reference: str
    maps: tuple[str, ...]  # "none", then those that were fitted
    sets: tuple[ShiftSummary, ...]
    rows: tuple[ShiftRow, ...]  # by set, then by candidate, then by map
    levels: tuple[ShiftLevel, ...]  # means over corruptions, the clean rows (severity 0) first


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
    """Run every network on every set, under the maps that clean calibration rows gave; nothing is fitted.

    The device holds all networks, and one set at a time. Numbers on the clean rows are those that the runs have kept:
    on another device than they were trained on, logits differ in their last digits, and these are in every change.

    Args:
        judged: From :func:`~calibrant.diagnosis.judged.judge_candidates`, with its maps.
        sets: From :func:`~calibrant.diagnosis.shifted_sets.corrupted_sets` and
            :func:`~calibrant.diagnosis.shifted_sets.stored_sets`.
        reference: The candidate that the others are held against.
        device: Where the networks run.
        resamples: Bootstrap draws of the rows of a set without severities.
        seed: Of the draws.
        progress: Called with what is being done, how many passes of a network over a set are, and how many there are.

    Raises:
        InputError: If there is no set, one is there twice, or one does not suit the networks.
        UnknownNameError: If there is no such reference.
        FileError: If a run's weights cannot be read.

    Reference:
        Singh et al. (2021), On the Dark Side of Calibration for Modern Neural Networks, Table 3 (natural shifts).
    """
    check_at_least(resamples, 2, "resamples")
    check_known(reference, [each.name for each in judged.candidates], "a candidate")
    _check_different(sets)
    paths = [run.path for each in judged.candidates for run in each.candidate.runs]
    networks = {path: load_network(path).to(device) for path in paths}
    summaries = [ShiftSummary(CLEAN, CLEAN, None, judged.n)]
    clean = shift_rows(judged, summaries[0])
    rows, done, total = list(clean), 0, len(sets) * len(paths)

    def network_of(path: Path, on: ShiftedSet) -> nn.Module:
        nonlocal done
        progress(f"{path.name} on {on.title}", done, total)
        done += 1
        return networks[path]

    for each in sets:
        progress(f"making {each.title}", done, total)
        found = _judged_on(judged, each, device, network_of)
        summaries.append(ShiftSummary(each.name, each.source, each.severity, found.n))
        is_one = each.severity is None
        against = compared_with(found, reference, resamples=resamples, seed=seed) if is_one else None
        rows += shift_rows(found, summaries[-1], clean=clean, against=against)
    return ShiftPanel(reference, judged.map_names, tuple(summaries), tuple(rows), shift_levels(rows, reference))


def _check_different(sets: Sequence[ShiftedSet]) -> None:
    if not sets:
        raise InputError("there must be a shifted set to judge networks on; got none.")
    titles = [(each.source, each.title) for each in sets]
    twice = next((title for title in titles if titles.count(title) > 1), None)
    if twice is not None:
        raise InputError(f"each shifted set must have its own name; {twice[1]} is there twice. Name one otherwise.")


def _judged_on(
    judged: Judged, shifted: ShiftedSet, device: torch.device, network_of: Callable[[Path, ShiftedSet], nn.Module]
) -> Judged:
    """Every run judged on another set; the set is dropped at the end."""
    examples = shifted.make(device)
    images, labels = examples.inputs.to(device), examples.labels.cpu()
    candidates = []
    for each in judged.candidates:
        runs = []
        for run, before in zip(each.candidate.runs, each.runs, strict=True):
            check_suits(examples, run, shifted.title)
            logits = predict(network_of(run.path, shifted), images)
            # Where the clean rows were judged: sums of another device would differ in the last digits.
            runs.append(_under_maps(Predictions.from_logits(logits.cpu(), labels), before, judged.n_bins))
        candidates.append(JudgedCandidate(each.candidate, tuple(runs)))
    return replace(judged, candidates=tuple(candidates), n=len(labels))


def _under_maps(rows: Predictions, before: JudgedRun, n_bins: int) -> JudgedRun:
    outcomes = {
        # A map that could not be fitted is not to be had here either.
        name: outcome if outcome.top is None else outcome_of(rows, outcome.map, n_bins=n_bins, notes=outcome.notes)
        for name, outcome in before.outcomes.items()
    }
    return replace(before, outcomes=outcomes, oracle=Oracle(math.nan, math.nan), splits={})

"""Diagnose trained networks: runs in, one record out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import torch

from calibrant.calibrators import Calibrator
from calibrant.checks import check_at_least
from calibrant.diagnosis.curves import (
    EpochCurves,
    LearnedEpochs,
    ValidationSize,
    epoch_curves,
    learned_epoch_groups,
    validation_sizes,
)
from calibrant.diagnosis.evaluated import (
    MAPS,
    BySeed,
    CandidateVerdict,
    EvaluatedCandidate,
    differences_from,
    evaluate_candidates,
    verdict,
)
from calibrant.diagnosis.over_seeds import Record
from calibrant.diagnosis.runs import DiagnosedRun, baseline_of, candidate_notes, grouped
from calibrant.diagnosis.shift import ShiftedSet, ShiftPanel, shift_panel
from calibrant.diagnosis.summaries import (
    Calibratability,
    CoefficientCurve,
    Direction,
    Refinement,
    calibratability,
    coefficient_curves,
    directions,
    refinement,
)


@final
@dataclass(frozen=True)
class CandidateSummary(Record):
    """Description of a candidate."""

    name: str
    words: str
    seeds: tuple[int, ...]
    folders: tuple[str, ...]
    calibration_rows: int
    notes: tuple[str, ...] = ()  # on its runs


@final
@dataclass(frozen=True, eq=False)
class Diagnosis(Record):
    """All results, in the order of the candidates; the verdicts leave the baseline out."""

    candidates: tuple[CandidateSummary, ...]
    baseline: str
    maps: tuple[str, ...]  # "uncalibrated", then those that were fitted
    n: int  # test samples
    n_bins: int
    resamples: int
    seed: int
    verdicts: tuple[CandidateVerdict, ...]
    calibratability: tuple[Calibratability, ...]
    refinement: tuple[Refinement, ...]
    directions: tuple[Direction, ...]
    coefficients: tuple[CoefficientCurve, ...]
    validation_sizes: tuple[ValidationSize, ...]
    epochs: tuple[EpochCurves, ...]
    learned_epochs: tuple[LearnedEpochs, ...]
    by_seed: Mapping[str, BySeed] = field(default_factory=dict)  # differences of single runs, by candidate
    shift: ShiftPanel | None = None  # None where no shifted set was given
    map_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # the options of each map, by its name


def diagnose(  # noqa: PLR0913  # one option each
    runs: Sequence[DiagnosedRun],
    *,
    baseline: str | None = None,
    maps: Sequence[Calibrator] = MAPS,
    n_bins: int = 15,
    draws: int = 3,
    resamples: int = 500,
    seed: int = 0,
    sets: Sequence[ShiftedSet] = (),
    device: torch.device | None = None,
    progress: Callable[[str, int, int], None] = lambda _what, _done, _of: None,
) -> Diagnosis:
    """Compare ways to train by what they leave to post-hoc calibration, and by how well confidence separates errors.

    Args:
        runs: From :func:`~calibrant.diagnosis.runs.read_runs`.
        baseline: Name of the candidate that the others are compared with; None for plain cross-entropy, else the first.
        maps: Calibrators to fit on the calibration samples; a temperature must be among them.
        n_bins: Number of bins of the ECE.
        draws: Draws of calibration samples, for the curves over their number; 0 leaves these out.
        resamples: Bootstrap draws of the test samples.
        seed: Random seed of all draws.
        sets: Shifted sets to evaluate the networks and their maps on.
        device: Where the networks run on those; None is the CPU.
        progress: Called with the current step, how much of it is done, and how much there is.

    Raises:
        UnknownNameError: If there is no such baseline.
        InputError: If an option is out of range, or a shifted set does not suit the networks.
    """
    check_at_least(draws, 0, "draws")
    check_at_least(resamples, 2, "resamples")
    candidates = grouped(runs)
    baseline_name = baseline_of(candidates, baseline).name
    evaluated = evaluate_candidates(
        candidates, maps=maps, n_bins=n_bins, progress=lambda run, done, of: progress(f"evaluating {run}", done, of)
    )
    progress("comparing", 0, 1)
    compared = differences_from(evaluated, baseline_name, resamples=resamples, seed=seed)
    first = evaluated.find(baseline_name)
    pairs = [(candidate, compared.means.get(candidate.name, {})) for candidate in evaluated.candidates]
    sizes: tuple[ValidationSize, ...] = ()
    if draws:
        sizes = validation_sizes(
            evaluated, draws=draws, seed=seed, progress=lambda run, done, of: progress(f"refitting {run}", done, of)
        )
    shift = None
    if sets:
        where = device or torch.device("cpu")
        shift = shift_panel(
            evaluated, sets, baseline=baseline_name, device=where, resamples=resamples, seed=seed, progress=progress
        )
    curves = [epoch_curves(candidate) for candidate in candidates]
    return Diagnosis(
        candidates=tuple(_summary(candidate) for candidate in evaluated.candidates),
        baseline=baseline_name,
        maps=evaluated.map_names,
        n=evaluated.n,
        n_bins=n_bins,
        resamples=resamples,
        seed=seed,
        verdicts=tuple(verdict(one, first, by_map, n_compared=len(compared.means)) for one, by_map in pairs if by_map),
        calibratability=tuple(calibratability(candidate, first, by_map) for candidate, by_map in pairs),
        refinement=tuple(refinement(candidate, first, by_map, n_bins=n_bins) for candidate, by_map in pairs),
        directions=tuple(direction for candidate in evaluated.candidates for direction in directions(candidate)),
        coefficients=coefficient_curves(evaluated),
        validation_sizes=sizes,
        epochs=tuple(curve for curve in curves if curve is not None),
        learned_epochs=learned_epoch_groups(candidates) if any(run.is_traced for run in runs) else (),
        by_seed=compared.by_seed,
        shift=shift,
        map_settings={method.name: method.settings() for method in maps},
    )


def _summary(evaluated: EvaluatedCandidate) -> CandidateSummary:
    candidate = evaluated.candidate
    return CandidateSummary(
        candidate.name,
        candidate.words,
        candidate.seeds,
        tuple(str(run.path) for run in candidate.runs),
        evaluated.runs[0].calibration_rows,
        tuple(candidate_notes(candidate)),
    )

"""Diagnose trained networks: runs in, one record out."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, final

import torch

from calibrant.calibrators import Calibrator
from calibrant.checks import check_at_least, check_evidence
from calibrant.diagnosis import curves, summaries
from calibrant.diagnosis.evaluated import MAPS, BySeed, CandidateVerdict, differences_from, evaluate_candidates, verdict
from calibrant.diagnosis.runs import DiagnosedRun, baseline_of, candidate_notes, grouped
from calibrant.diagnosis.shift import ShiftedSet, ShiftPanel, shift_panel
from calibrant.notebook import HasReport

_ENDS = (("", "mean"), ("_std", "std"))
_DIFFERENCE_ENDS = (("", "value"), ("_low", "low"), ("_high", "high"), ("_side", "side"))


@final
@dataclass(frozen=True)
class CandidateSummary:
    """Name, options and runs of a candidate."""

    name: str
    words: str
    seeds: tuple[int, ...]
    folders: tuple[str, ...]
    calibration_rows: int
    notes: tuple[str, ...] = ()  # on its runs


@final
@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis(HasReport):
    """All results, in the order of the candidates; the verdicts leave the baseline out."""

    candidates: tuple[CandidateSummary, ...]
    baseline: str
    maps: tuple[str, ...]  # "uncalibrated", then those that were fitted
    n: int  # test samples; of weighted ones those that count
    n_classes: int
    n_bins: int
    resamples: int
    seed: int
    verdicts: tuple[CandidateVerdict, ...]
    calibratability: tuple[summaries.Calibratability, ...]
    refinement: tuple[summaries.Refinement, ...]
    directions: tuple[summaries.Direction, ...]
    coefficients: tuple[summaries.CoefficientCurve, ...]
    validation_sizes: tuple[curves.ValidationSize, ...]
    epochs: tuple[curves.EpochCurves, ...]
    learned_epochs: tuple[curves.LearnedEpochs, ...]
    by_seed: Mapping[str, BySeed] = field(default_factory=dict)  # differences of single runs, by candidate
    shift: ShiftPanel | None = None  # None where no shifted set was given
    map_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # the options of each map, by its name
    effective_n: float | None = None  # number of test samples of equal weight that know as much, if weights differ

    @property
    def has_seeds(self) -> bool:
        """Whether a candidate has several runs."""
        return any(len(candidate.seeds) > 1 for candidate in self.candidates)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON: tuples become lists, NaN and infinity become None."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)), parse_constant=lambda _: None)
        return plain

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return a row per candidate and map: means over runs (``nll``, ``nll_std``), differences from the baseline."""
        rows = []
        for errors, of_maps in zip(self.calibratability, self.refinement, strict=True):
            for row in of_maps.rows:
                spreads = {"ece": errors.ece[row.map], **row.metrics}
                differences = {"ece": errors.differences.get(row.map), "auroc": row.auroc_difference}
                numbers = {f"{name}{end}": getattr(of, part) for name, of in spreads.items() for end, part in _ENDS}
                for name, of in differences.items():
                    for end, part in _DIFFERENCE_ENDS:
                        numbers[f"{name}_difference{end}"] = None if of is None else getattr(of, part)
                rows.append({"candidate": errors.candidate, "map": row.map, "runs": len(errors.seeds), **numbers})
        return rows


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
    n_bins, resamples, seed = check_evidence(n_bins, resamples, seed)
    candidates = grouped(runs)
    first_name = baseline_of(candidates, baseline).name
    evaluated = evaluate_candidates(
        candidates, maps=maps, n_bins=n_bins, progress=lambda run, done, of: progress(f"evaluating {run}", done, of)
    )
    progress("comparing", 0, 1)
    compared = differences_from(evaluated, first_name, resamples=resamples, seed=seed)
    first = evaluated.find(first_name)
    pairs = [(one, compared.means.get(one.name, {})) for one in evaluated.candidates]
    sizes = curves.validation_sizes(
        evaluated, draws=draws, seed=seed, progress=lambda run, done, of: progress(f"refitting {run}", done, of)
    ) if draws else ()  # fmt: skip
    shift = shift_panel(
        evaluated, sets, baseline=first_name, device=device or torch.device("cpu"), resamples=resamples, seed=seed,
        progress=progress,
    ) if sets else None  # fmt: skip
    epochs = map(curves.epoch_curves, candidates)
    return Diagnosis(
        candidates=tuple(
            CandidateSummary(
                one.name, one.candidate.words, one.candidate.seeds, tuple(str(run.path) for run in one.candidate.runs),
                one.runs[0].calibration_rows, tuple(candidate_notes(one.candidate)),
            )
            for one in evaluated.candidates
        ),
        baseline=first_name, maps=evaluated.map_names, n=evaluated.n, n_classes=evaluated.n_classes,
        n_bins=n_bins, resamples=resamples, seed=seed,
        verdicts=tuple(verdict(one, first, by_map, n_compared=len(compared.means)) for one, by_map in pairs if by_map),
        calibratability=tuple(summaries.calibratability(one, first, by_map) for one, by_map in pairs),
        refinement=tuple(summaries.refinement(one, first, by_map, n_bins=n_bins) for one, by_map in pairs),
        directions=tuple(direction for one in evaluated.candidates for direction in summaries.directions(one)),
        coefficients=summaries.coefficient_curves(evaluated),
        validation_sizes=sizes,
        epochs=tuple(curve for curve in epochs if curve is not None),
        learned_epochs=curves.learned_epoch_groups(candidates) if any(run.is_traced for run in runs) else (),
        by_seed=compared.by_seed,
        shift=shift,
        map_settings={method.name: method.settings() for method in maps},
        effective_n=evaluated.effective_n,
    )  # fmt: skip

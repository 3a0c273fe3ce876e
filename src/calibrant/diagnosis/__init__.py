"""Trained networks side by side over losses and seeds: what calibration can still do, and how errors are separated."""

from calibrant.diagnosis.baseline import BaselineDifferences, Verdict, differences_from, verdict
from calibrant.diagnosis.calibratability import (
    Calibratability,
    CoefficientCurve,
    CoefficientPoint,
    Direction,
    calibratability,
    coefficient_curves,
    directions,
)
from calibrant.diagnosis.candidates import Candidate, baseline_of, grouped
from calibrant.diagnosis.diagnosis import CandidateSummary, Diagnosis, diagnose
from calibrant.diagnosis.epochs import (
    Band,
    EpochCurves,
    LearnedEpochs,
    LearnedGroup,
    epoch_curves,
    learned_epoch_groups,
)
from calibrant.diagnosis.evaluated import (
    MAPS,
    PAPER_MAPS,
    Evaluated,
    EvaluatedCandidate,
    EvaluatedRun,
    Oracle,
    Outcome,
    evaluate_candidates,
    oracle_temperature,
)
from calibrant.diagnosis.over_seeds import Spread, TwoSample, spread, two_sample
from calibrant.diagnosis.refinement import DensityCurves, Refinement, RefinementRow, ScoreSplit, refinement
from calibrant.diagnosis.runs import DiagnosedRun, LearnedRows, read_runs
from calibrant.diagnosis.shift_panel import ShiftLevel, ShiftPanel, ShiftRow, ShiftSummary, shift_panel
from calibrant.diagnosis.shifted_sets import ShiftedSet, clean_examples, corrupted_sets, read_run_dataset, stored_sets
from calibrant.diagnosis.validation_size import SizePoint, ValidationSize, validation_sizes

__all__ = [
    "MAPS",
    "PAPER_MAPS",
    "Band",
    "BaselineDifferences",
    "Calibratability",
    "Candidate",
    "CandidateSummary",
    "CoefficientCurve",
    "CoefficientPoint",
    "DensityCurves",
    "DiagnosedRun",
    "Diagnosis",
    "Direction",
    "EpochCurves",
    "Evaluated",
    "EvaluatedCandidate",
    "EvaluatedRun",
    "LearnedEpochs",
    "LearnedGroup",
    "LearnedRows",
    "Oracle",
    "Outcome",
    "Refinement",
    "RefinementRow",
    "ScoreSplit",
    "ShiftLevel",
    "ShiftPanel",
    "ShiftRow",
    "ShiftSummary",
    "ShiftedSet",
    "SizePoint",
    "Spread",
    "TwoSample",
    "ValidationSize",
    "Verdict",
    "baseline_of",
    "calibratability",
    "clean_examples",
    "coefficient_curves",
    "corrupted_sets",
    "diagnose",
    "differences_from",
    "directions",
    "epoch_curves",
    "evaluate_candidates",
    "grouped",
    "learned_epoch_groups",
    "oracle_temperature",
    "read_run_dataset",
    "read_runs",
    "refinement",
    "shift_panel",
    "spread",
    "stored_sets",
    "two_sample",
    "validation_sizes",
    "verdict",
]

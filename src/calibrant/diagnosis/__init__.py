"""The two-sided verdict on ways to train: what post-hoc calibration can still do, and how well errors are separated."""

from calibrant.diagnosis.against import Against, compared_with
from calibrant.diagnosis.calibratability import Calibratability, calibratability
from calibrant.diagnosis.candidate import Candidate, grouped, reference_of
from calibrant.diagnosis.coefficient import CoefficientCurve, CoefficientPoint, coefficient_curves
from calibrant.diagnosis.diagnosis import CandidateSummary, Diagnosis, diagnose
from calibrant.diagnosis.direction import Direction, directions
from calibrant.diagnosis.fitting import MAPS, PAPER_MAPS
from calibrant.diagnosis.judged import Judged, JudgedCandidate, JudgedRun, Outcome, judge_candidates
from calibrant.diagnosis.learned import LearnedEpochs, LearnedGroup, learned_epoch_groups
from calibrant.diagnosis.oracle import Oracle, oracle_temperature
from calibrant.diagnosis.over_epochs import Band, EpochCurves, epoch_curves
from calibrant.diagnosis.over_seeds import Spread, TwoSample, spread, two_sample
from calibrant.diagnosis.refinement import DensityCurves, Refinement, RefinementRow, ScoreSplit, refinement
from calibrant.diagnosis.run_data import clean_examples, read_run_dataset
from calibrant.diagnosis.runs import DiagnosedRun, LearnedRows, read_runs
from calibrant.diagnosis.shift_levels import ShiftLevel
from calibrant.diagnosis.shift_panel import ShiftPanel, shift_panel
from calibrant.diagnosis.shift_rows import ShiftRow, ShiftSummary
from calibrant.diagnosis.shifted_sets import ShiftedSet, corrupted_sets, stored_sets
from calibrant.diagnosis.validation_size import SizePoint, ValidationSize, validation_sizes
from calibrant.diagnosis.verdict import Verdict, verdict

__all__ = [
    "MAPS",
    "PAPER_MAPS",
    "Against",
    "Band",
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
    "Judged",
    "JudgedCandidate",
    "JudgedRun",
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
    "calibratability",
    "clean_examples",
    "coefficient_curves",
    "compared_with",
    "corrupted_sets",
    "diagnose",
    "directions",
    "epoch_curves",
    "grouped",
    "judge_candidates",
    "learned_epoch_groups",
    "oracle_temperature",
    "read_run_dataset",
    "read_runs",
    "reference_of",
    "refinement",
    "shift_panel",
    "spread",
    "stored_sets",
    "two_sample",
    "validation_sizes",
    "verdict",
]

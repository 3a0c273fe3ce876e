"""Neural Clamping: a frozen network calibrated by one δ added to every input and a map applied to its logits."""

from calibrant.clamping.evaluation import (
    CLAMPED,
    REFITTED,
    ClampingEvaluation,
    NetworkPredictions,
    clamping_metrics,
    evaluate_clamping,
    needs_refit,
)
from calibrant.clamping.fitting import Progress, StrengthRule, samples_digest
from calibrant.clamping.inputs import DeltaShape, InputSpace, LowFrequencies, PerChannel, PerEntry
from calibrant.clamping.model import (
    ClampedModel,
    ClampingOutcome,
    ClampingSummary,
    StrengthTrial,
    caveats_of,
    load_clamped,
    migrate_settings,
    save_clamped,
)
from calibrant.clamping.neural_clamping import GAMMA_POOL, NeuralClamping
from calibrant.clamping.objective import HeadFit, Objective
from calibrant.clamping.solver import ExactSolver, StochasticSolver
from calibrant.clamping.starts import (
    DataDrivenStart,
    Eta,
    RandomStart,
    Start,
    ZeroStart,
    entropy_gradient,
    unlabelled_samples,
)

__all__ = [
    "CLAMPED",
    "GAMMA_POOL",
    "REFITTED",
    "ClampedModel",
    "ClampingEvaluation",
    "ClampingOutcome",
    "ClampingSummary",
    "DataDrivenStart",
    "DeltaShape",
    "Eta",
    "ExactSolver",
    "HeadFit",
    "InputSpace",
    "LowFrequencies",
    "NetworkPredictions",
    "NeuralClamping",
    "Objective",
    "PerChannel",
    "PerEntry",
    "Progress",
    "RandomStart",
    "Start",
    "StochasticSolver",
    "StrengthRule",
    "StrengthTrial",
    "ZeroStart",
    "caveats_of",
    "clamping_metrics",
    "entropy_gradient",
    "evaluate_clamping",
    "load_clamped",
    "migrate_settings",
    "needs_refit",
    "samples_digest",
    "save_clamped",
    "unlabelled_samples",
]

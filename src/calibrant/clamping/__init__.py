"""Neural Clamping: a frozen network calibrated by one δ added to every input and a map behind its logits."""

from calibrant.clamping.evaluation import (
    CLAMPED,
    REFITTED,
    ClampingEvaluation,
    ForwardRuns,
    clamping_metrics,
    evaluate_clamping,
    needs_refit,
)
from calibrant.clamping.fitting import Progress, StrengthRule, samples_digest
from calibrant.clamping.inputs import DeltaShape, InputSpace, LowFrequencies, PerChannel, PerEntry, upgraded_settings
from calibrant.clamping.model import (
    ClampedModel,
    ClampingOutcome,
    ClampingSummary,
    StrengthTrial,
    caveats_of,
    load_clamped,
    save_clamped,
)
from calibrant.clamping.neural_clamping import GAMMA_POOL, NeuralClamping
from calibrant.clamping.objective import HeadFit, Objective
from calibrant.clamping.solver import ExactSolver, StochasticSolver
from calibrant.clamping.starts import DataDrivenStart, Eta, RandomStart, Start, ZeroStart, entropy_gradient, samples_of

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
    "ForwardRuns",
    "HeadFit",
    "InputSpace",
    "LowFrequencies",
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
    "needs_refit",
    "samples_digest",
    "samples_of",
    "save_clamped",
    "upgraded_settings",
]

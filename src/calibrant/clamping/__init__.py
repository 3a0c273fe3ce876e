"""Neural Clamping: a frozen network calibrated by one δ added to every input and a map behind its logits."""

from calibrant.clamping.clamped.clamped_file import load_clamped, save_clamped
from calibrant.clamping.clamped.clamped_model import ClampedModel
from calibrant.clamping.clamped.summary import ClampingOutcome, ClampingSummary, StrengthTrial, caveats_of
from calibrant.clamping.evaluation import (
    CLAMPED,
    REFITTED,
    ClampingEvaluation,
    clamping_metrics,
    evaluate_clamping,
    needs_refit,
)
from calibrant.clamping.fit.identity import rows_digest
from calibrant.clamping.forward_runs import ForwardRuns
from calibrant.clamping.learning.descent import ExactSolver
from calibrant.clamping.learning.freedom import ChannelFreedom, Freedom, FullFreedom, LowFrequencies
from calibrant.clamping.learning.heads import HeadFit
from calibrant.clamping.learning.objective import Objective
from calibrant.clamping.learning.stochastic import StochasticSolver
from calibrant.clamping.network.input_space import InputSpace
from calibrant.clamping.neural_clamping import GAMMA_POOL, NeuralClamping, Progress, StrengthRule
from calibrant.clamping.theory.entropy import EntropyGradient, entropy_gradient
from calibrant.clamping.theory.starts import DataDrivenStart, Eta, RandomStart, Start, ZeroStart
from calibrant.clamping.theory.unlabelled import samples_of

__all__ = [
    "CLAMPED",
    "GAMMA_POOL",
    "REFITTED",
    "ChannelFreedom",
    "ClampedModel",
    "ClampingEvaluation",
    "ClampingOutcome",
    "ClampingSummary",
    "DataDrivenStart",
    "EntropyGradient",
    "Eta",
    "ExactSolver",
    "ForwardRuns",
    "Freedom",
    "FullFreedom",
    "HeadFit",
    "InputSpace",
    "LowFrequencies",
    "NeuralClamping",
    "Objective",
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
    "rows_digest",
    "samples_of",
    "save_clamped",
]

"""Neural Clamping: a frozen network calibrated by one δ added to every input and a map behind its logits."""

from calibrant.clamping.ablation import ablation, ablation_of
from calibrant.clamping.ablation_record import Ablation
from calibrant.clamping.clamped_file import load_clamped, save_clamped
from calibrant.clamping.clamped_model import ClampedModel
from calibrant.clamping.descent import ExactSolver
from calibrant.clamping.efficient import efficient_clamping
from calibrant.clamping.entropy import EntropyGradient, entropy_gradient
from calibrant.clamping.freedom import ChannelFreedom, FullFreedom, LowFrequencies
from calibrant.clamping.initialisation import DataDrivenStart, RandomStart, ZeroStart
from calibrant.clamping.input_space import InputSpace
from calibrant.clamping.neural_clamping import GAMMA_POOL, NeuralClamping
from calibrant.clamping.rows import CalibrationRows
from calibrant.clamping.stochastic import StochasticSolver
from calibrant.clamping.summary import ClampingSummary, StrengthTrial
from calibrant.clamping.sweeps import gamma_sweep, start_spread
from calibrant.clamping.theory import EntropyGain, lemma_residual, theorem_gain

__all__ = [
    "GAMMA_POOL",
    "Ablation",
    "CalibrationRows",
    "ChannelFreedom",
    "ClampedModel",
    "ClampingSummary",
    "DataDrivenStart",
    "EntropyGain",
    "EntropyGradient",
    "ExactSolver",
    "FullFreedom",
    "InputSpace",
    "LowFrequencies",
    "NeuralClamping",
    "RandomStart",
    "StochasticSolver",
    "StrengthTrial",
    "ZeroStart",
    "ablation",
    "ablation_of",
    "efficient_clamping",
    "entropy_gradient",
    "gamma_sweep",
    "lemma_residual",
    "load_clamped",
    "save_clamped",
    "start_spread",
    "theorem_gain",
]

"""Neural Clamping: a frozen network calibrated by one δ added to every input and a map behind its logits."""

from calibrant.clamping.clamped.clamped_file import load_clamped, save_clamped
from calibrant.clamping.clamped.clamped_model import ClampedModel
from calibrant.clamping.clamped.summary import ClampingOutcome, ClampingSummary, StrengthTrial
from calibrant.clamping.learning.descent import ExactSolver
from calibrant.clamping.learning.freedom import ChannelFreedom, FullFreedom, LowFrequencies
from calibrant.clamping.learning.stochastic import StochasticSolver
from calibrant.clamping.network.input_space import InputSpace
from calibrant.clamping.neural_clamping import GAMMA_POOL, NeuralClamping
from calibrant.clamping.study.ablation import ablation, ablation_of
from calibrant.clamping.study.ablation_record import Ablation
from calibrant.clamping.study.sweeps import gamma_sweep, start_spread
from calibrant.clamping.theory.efficient import efficient_clamping
from calibrant.clamping.theory.entropy import EntropyGradient, entropy_gradient
from calibrant.clamping.theory.entropy_gain import EntropyGain, lemma_residual, theorem_gain
from calibrant.clamping.theory.starts import DataDrivenStart, RandomStart, ZeroStart

__all__ = [
    "GAMMA_POOL",
    "Ablation",
    "ChannelFreedom",
    "ClampedModel",
    "ClampingOutcome",
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

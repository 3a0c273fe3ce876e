"""Training of networks, whose predictions are then evaluated and calibrated."""

from calibrant.training.data import MixedBatch, Mixup, TrainingData, read_arrays
from calibrant.training.meta import MetaRegulariser, features_in_evaluation
from calibrant.training.recipe import RECIPES, Recipe
from calibrant.training.record import EpochRecord, HeldOutRecord, learned_epochs, predict
from calibrant.training.run import (
    DIGITS,
    DIGITS_EPOCHS,
    Run,
    RunMetrics,
    load_learned_loss,
    load_network,
    run_metrics,
    train_on_digits,
    train_runs,
    train_together,
)
from calibrant.training.session import RuntimeOptions, Session, deterministic_algorithms

__all__ = [
    "DIGITS", "DIGITS_EPOCHS", "RECIPES", "EpochRecord", "HeldOutRecord", "MetaRegulariser", "MixedBatch", "Mixup",
    "Recipe", "Run", "RunMetrics", "RuntimeOptions", "Session", "TrainingData", "deterministic_algorithms",
    "features_in_evaluation", "learned_epochs", "load_learned_loss", "load_network", "predict", "read_arrays",
    "run_metrics", "train_on_digits", "train_runs", "train_together",
]  # fmt: skip

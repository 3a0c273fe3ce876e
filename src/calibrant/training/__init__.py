"""Training networks whose confidence is then judged."""

from calibrant.training.data import MixedBatch, Mixup, TrainingData
from calibrant.training.meta import MetaRegulariser, features_in_evaluation
from calibrant.training.recipe import RECIPES, Recipe
from calibrant.training.record import EpochRecord, HeldOutRecord, learned_epochs, predict
from calibrant.training.run import Run, load_learned_loss, load_network, train_runs, train_together
from calibrant.training.session import Session, Speed

__all__ = [
    "RECIPES",
    "EpochRecord",
    "HeldOutRecord",
    "MetaRegulariser",
    "MixedBatch",
    "Mixup",
    "Recipe",
    "Run",
    "Session",
    "Speed",
    "TrainingData",
    "features_in_evaluation",
    "learned_epochs",
    "load_learned_loss",
    "load_network",
    "predict",
    "train_runs",
    "train_together",
]

"""Training networks whose confidence is then judged."""

from calibrant.training.data import TrainingData
from calibrant.training.learning import learned_epochs
from calibrant.training.meta.held_out import features_in_evaluation
from calibrant.training.meta.regulariser import MetaRegulariser
from calibrant.training.mixup import MixedBatch, Mixup
from calibrant.training.predict import predict
from calibrant.training.recipe import RECIPES, Recipe
from calibrant.training.record import EpochRecord, HeldOutRecord
from calibrant.training.run import Run, load_learned_loss, load_network, train_runs
from calibrant.training.session import Session, Speed
from calibrant.training.together import train_together

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

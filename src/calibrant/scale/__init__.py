"""The same answer from many files, processes and machines."""

from calibrant.scale.evaluation import evaluate_state, evaluate_state_slices
from calibrant.scale.fits import StreamedFit, fit_streamed
from calibrant.scale.jobs import Engine, Gathered, gather
from calibrant.scale.shards import Plan, Shard, find_shards
from calibrant.scale.state import EvaluationState

__all__ = [
    "Engine", "EvaluationState", "Gathered", "Plan", "Shard", "StreamedFit", "evaluate_state",
    "evaluate_state_slices", "find_shards", "fit_streamed", "gather",
]  # fmt: skip

"""Scores that take the place of the softmax confidence: learned from features, or asked of the training rows.

Both leave every prediction as it is, and give a :class:`~calibrant.predictions.TopLabel` that all metrics take.
"""

from calibrant.confidence.confidence_file import AnyConfidence, load_confidence, save_confidence
from calibrant.confidence.confidnet import ChosenEpoch, ConfidenceHead, ConfidNet, LearnedConfidence
from calibrant.confidence.trust_score import NeighbourConfidence, TrustScore

__all__ = [
    "AnyConfidence",
    "ChosenEpoch",
    "ConfidNet",
    "ConfidenceHead",
    "LearnedConfidence",
    "NeighbourConfidence",
    "TrustScore",
    "load_confidence",
    "save_confidence",
]

"""Scores that replace the softmax confidence: learned from features, or by distance to training samples.

Both keep every prediction, and give a :class:`~calibrant.predictions.TopLabel` that all metrics take.
"""

from calibrant.confidence.confidence_file import AnyConfidence, load_confidence, save_confidence
from calibrant.confidence.confidnet import ConfidNet
from calibrant.confidence.learned_confidence import ChosenEpoch, ConfidenceHead, LearnedConfidence
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

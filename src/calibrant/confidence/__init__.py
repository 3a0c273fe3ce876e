"""Scores that replace the softmax confidence: learned from features, or by distance to training samples."""

from calibrant.confidence.confidence_file import AnyConfidence as AnyConfidence
from calibrant.confidence.confidence_file import load_confidence as load_confidence
from calibrant.confidence.confidence_file import save_confidence as save_confidence
from calibrant.confidence.confidnet import ConfidNet as ConfidNet
from calibrant.confidence.learned import ChosenEpoch as ChosenEpoch
from calibrant.confidence.learned import ConfidenceComparison as ConfidenceComparison
from calibrant.confidence.learned import ConfidenceHead as ConfidenceHead
from calibrant.confidence.learned import LearnedConfidence as LearnedConfidence
from calibrant.confidence.learned import compare_confidences as compare_confidences
from calibrant.confidence.trust_score import NeighbourConfidence as NeighbourConfidence
from calibrant.confidence.trust_score import TrustScore as TrustScore

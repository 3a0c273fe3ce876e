"""Known truth by simulation, of samples whose outcomes are correlated within clusters."""

import functools
import math

import numpy as np
import pytest
from scipy.special import expit, ndtri

from calibrant import Predictions, TopLabel
from calibrant.evidence import estimate
from calibrant.metrics import AUROC, ECE, SCE, Accuracy, Confidence, SmECE, TopBrier

REPEATS = 60
METRICS = (Accuracy(), Confidence(), AUROC(), TopBrier(), ECE(), SmECE())


def draw(rng):
    """60 clusters of 5 samples: calibrated confidences that are alike in a cluster, as are the outcomes."""
    codes = np.repeat(np.arange(60), 5)
    common, own, shared, noise = (rng.normal(size=size) for size in (60, 300, 60, 300))
    confidence = expit(1.5 + 1.2 * (math.sqrt(0.9) * common[codes] + math.sqrt(0.1) * own))
    correct = math.sqrt(0.8) * shared[codes] + math.sqrt(0.2) * noise < ndtri(confidence)
    return TopLabel(confidence, correct, clusters=codes)


@functools.cache
def simulate():
    rng, population = np.random.default_rng(0), np.random.default_rng(1)
    found = []
    for seed in range(REPEATS):
        samples = draw(rng)
        pair = (samples, samples.with_clusters(None))
        found.append([estimate(one, METRICS, resamples=100, seed=seed) for one in pair])
    confidence = expit(1.5 + 1.2 * population.normal(size=1_000_000))
    many = TopLabel(confidence, population.random(1_000_000) < confidence)
    truth = {metric.name: metric(many) for metric in METRICS} | {"ece": 0.0, "smece": 0.0}
    return found, truth


def share_missed(metric, place):
    found, truth = simulate()
    estimates = [pair[place][metric] for pair in found]
    return np.mean([not one.low - 1e-12 <= truth[metric] <= one.high + 1e-12 for one in estimates])


@pytest.mark.parametrize("metric", [metric.name for metric in METRICS])
def test_intervals_of_clusters_cover_the_truth(metric):
    assert share_missed(metric, 0) <= 0.15
    assert share_missed(metric, 1) >= 0.2 or metric in {"ece", "smece"}  # as if samples were independent


@pytest.mark.parametrize("metric", ["ece", "smece"])
def test_p_values_of_clusters_hold_under_calibration(metric):
    found, _ = simulate()
    rejected = [np.mean([pair[place][metric].p <= 0.05 for pair in found]) for place in (0, 1)]
    assert rejected[0] <= 0.15
    assert rejected[1] >= 0.3


@pytest.mark.parametrize("sizes", [(20, 60), (12, 2500)])  # clusters, and samples of each
def test_p_values_of_few_clusters_hold_under_calibration(sizes):
    rejected = []
    for seed in range(40 if sizes[1] < 100 else 8):
        rng = np.random.default_rng(seed)
        codes = np.repeat(np.arange(sizes[0]), sizes[1])
        alike, outcomes = ([rng.normal(size=size) for size in (sizes[0], len(codes))] for _ in range(2))
        confidence = expit(1.5 + 1.2 * (math.sqrt(0.9) * alike[0][codes] + math.sqrt(0.1) * alike[1]))
        right = math.sqrt(0.6) * outcomes[0][codes] + math.sqrt(0.4) * outcomes[1] < ndtri(confidence)
        logits = np.log(confidence) - np.log1p(-confidence)
        samples = Predictions.from_binary_logits(logits, right.astype(int)).with_clusters(codes)
        found = estimate(samples, [ECE(), SCE()], resamples=100, seed=seed)
        rejected.append([one.p <= 0.05 for one in found.values()])
    assert np.mean(rejected, axis=0).max() <= 0.17

"""Kernel calibration error, against the double sum over all pairs of samples."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from strategies import predictions

from calibrant.metrics import SKCE, skce
from calibrant.metrics.smooth import KernelFeatures
from calibrant.predictions import Predictions

many = settings(max_examples=40)


def sample(n, k, seed, temperature=1.0):
    """Labels drawn from softmax(logits); the logits that are given are sharper by the temperature."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, k, generator=generator, dtype=torch.float64) * 1.5
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    return Predictions.from_logits(logits * temperature, labels)


def double_sum(rows, kernel):
    """2/(n(n − 1)) Σ_{i<j} k(p_i, p_j) (e_{y_i} − p_i)·(e_{y_j} − p_j)."""
    probs = rows.logits.double().softmax(1).numpy()
    residual = np.eye(rows.n_classes)[rows.labels.numpy()] - probs
    terms = kernel(probs) * (residual @ residual.T)
    return (terms.sum() - np.trace(terms)) / (len(rows) * (len(rows) - 1))


def gaussian(probs, width=0.5):
    return np.exp(-((probs[:, None] - probs) ** 2).sum(axis=2) / (2 * width**2))


def feature_kernel(statistic, k):
    frequencies = statistic.frequencies(k).numpy()
    return lambda probs: np.cos((probs[:, None] - probs) @ frequencies).mean(axis=2)


@given(rows=predictions(min_rows=2, max_rows=30))
@many
def test_it_agrees_with_the_double_sum_over_its_own_kernel(rows):
    expected = double_sum(rows, feature_kernel(SKCE().statistic, rows.n_classes))
    assert skce(rows) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("k", [2, 3, 10])
def test_many_features_come_close_to_the_gaussian_kernel(k, temperature):
    rows = sample(300, k, 0, temperature)
    assert SKCE(features=20_000)(rows) == pytest.approx(double_sum(rows, gaussian), abs=2e-3)


@pytest.mark.parametrize("k", [2, 3, 10])
def test_the_usual_features_come_close_to_the_gaussian_kernel(k):
    rows = sample(300, k, 0, 2.0)
    assert skce(rows) == pytest.approx(double_sum(rows, gaussian), rel=0.15)


def test_every_row_of_features_has_length_one():
    statistic = KernelFeatures()
    probs = sample(20, 4, 0).probs
    features = statistic.of(probs, statistic.frequencies(4))
    assert features.shape == (20, statistic.features)
    assert torch.allclose(features.square().sum(1), torch.ones(20, dtype=torch.float64))


def test_the_features_are_the_same_every_time():
    assert torch.equal(KernelFeatures().frequencies(5), KernelFeatures().frequencies(5))


def test_it_averages_to_zero_on_calibrated_samples_and_is_positive_on_others():
    calibrated = [skce(sample(200, 3, seed)) for seed in range(300)]
    error = np.std(calibrated) / math.sqrt(len(calibrated))
    assert abs(np.mean(calibrated)) < 4 * error
    assert min(calibrated) < 0
    sharpened = [skce(sample(200, 3, seed, 3.0)) for seed in range(100)]
    assert np.mean(sharpened) > 20 * error


def test_it_averages_to_the_same_for_few_samples_and_for_many():
    few = [skce(sample(10, 3, seed, 2.0)) for seed in range(600)]
    many_rows = skce(sample(40_000, 3, 0, 2.0))
    assert np.mean(few) == pytest.approx(many_rows, abs=4 * np.std(few) / math.sqrt(len(few)))


def test_a_single_sample_has_no_pairs_and_gives_zero():
    assert skce(sample(1, 3, 0)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("features", [0, 1, 101])
def test_the_number_of_features_must_be_even_and_positive(features):
    # Each frequency gives a cosine and a sine: an odd number would scale the kernel by the wrong length.
    with pytest.raises(ValueError, match="features"):
        SKCE(features=features)(sample(10, 3, 0))

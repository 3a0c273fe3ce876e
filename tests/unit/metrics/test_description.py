"""Accuracy, mean confidence and entropy."""

import math

import pytest
import torch
from hypothesis import given, settings
from strategies import predictions

from calibrant.errors import InputError
from calibrant.metrics import accuracy, confidence, entropy
from calibrant.predictions import Predictions, TopLabel

many = settings(max_examples=60)


def test_accuracy_is_the_share_of_right_answers():
    assert accuracy(TopLabel([0.9, 0.8, 0.7, 0.6], [True, True, False, True])) == 0.75
    assert accuracy(Predictions.from_logits([[2.0, 0.0], [2.0, 0.0]], [0, 1])) == 0.5


def test_confidence_is_the_mean_of_the_largest_probabilities():
    rows = Predictions.from_probs([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]], [0, 2])
    assert confidence(rows) == pytest.approx(0.75)


def test_evenly_spread_probabilities_have_the_logarithm_of_k_as_entropy():
    for k in (2, 7, 40, 1000):
        assert entropy(Predictions.from_logits(torch.zeros(3, k), [0, 0, 1])) == pytest.approx(math.log(k), rel=1e-6)


def test_a_certain_prediction_has_no_entropy():
    assert entropy(Predictions.from_logits([[1e4, 0.0, -1e4]], [0])) == 0


@given(rows=predictions())
@many
def test_accuracy_agrees_with_argmax(rows):
    assert accuracy(rows) == pytest.approx(float((rows.logits.argmax(1) == rows.labels).double().mean()))


@given(rows=predictions())
@many
def test_confidence_agrees_with_softmax(rows):
    assert confidence(rows) == pytest.approx(float(rows.logits.double().softmax(1).amax(1).mean()), abs=1e-6)


@given(rows=predictions())
@many
def test_entropy_agrees_with_the_sum_over_all_classes(rows):
    probs = rows.logits.double().softmax(1)
    expected = float(-torch.xlogy(probs, probs).sum(1).mean())
    assert entropy(rows) == pytest.approx(expected, abs=1e-5)
    assert -1e-6 <= entropy(rows) <= math.log(rows.n_classes) + 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logits_whose_difference_overflows_are_refused(dtype):
    largest = torch.finfo(dtype).max
    with pytest.raises(InputError, match="logits must not differ by more than"):
        Predictions.from_logits(torch.tensor([[largest, -largest, 0.0]], dtype=dtype), [0])

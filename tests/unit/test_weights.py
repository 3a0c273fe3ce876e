"""Weights of samples: what is accepted, and that every copy of the samples keeps them."""

import numpy as np
import pytest
import torch

from calibrant.errors import InputError
from calibrant.predictions import Predictions, TopLabel

LOGITS, LABELS, WEIGHTS = np.array([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]]), [0, 1, 1], [1.0, 2.5, 0.0]
PROBS = np.array([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]])


def made(weights=WEIGHTS):
    return Predictions.from_logits(LOGITS, LABELS, weights=weights)


@pytest.mark.parametrize(
    "samples",
    [
        Predictions(LOGITS, LABELS, weights=WEIGHTS),
        made(),
        Predictions.from_probs(PROBS, LABELS, weights=np.array(WEIGHTS, dtype=np.float32)),
        Predictions.from_binary_logits(LOGITS[:, 1], LABELS, weights=torch.tensor(WEIGHTS)),
        TopLabel([0.9, 0.8, 0.7], [True, True, False], weights=WEIGHTS),
        made().top,
        made().mixed_with_uniform(0.1),
        made().with_logits(torch.zeros(3, 2, dtype=torch.float64)),
        next(made().blocks()),
    ],
)
def test_weights_are_kept_in_float64(samples):
    assert samples.weights.dtype == torch.float64
    assert samples.weights.tolist() == WEIGHTS


def test_rows_keep_their_weights():
    for samples in (made(), made().top):
        assert samples[1:].weights.tolist() == [2.5, 0.0]
        assert samples[torch.tensor([2, 0])].weights.tolist() == [0.0, 1.0]
        assert [block.weights.tolist() for block in samples.blocks(2)] == [[1.0, 2.5], [0.0]]


def test_samples_without_weights_are_joined_with_weight_one():
    assert (made() + made(None)).weights.tolist() == [*WEIGHTS, 1, 1, 1]
    assert (made(None) + made()).weights.tolist() == [1, 1, 1, *WEIGHTS]
    assert (made(None) + made(None)).weights is None


def test_the_accuracy_is_by_weight():
    assert made().top.accuracy == 1.0  # the wrong one counts nothing
    assert made([1, 1, 2]).top.accuracy == 0.5


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -2.0, 1.0], "got -2 at row 1"),
        ([1.0, 1.0, float("nan")], "got nan at row 2"),
        ([float("inf"), 1.0, 1.0], "got inf at row 0"),
        ([1.0, 1e-200, 1.0], "got 1e-200 at row 1"),
        ([0, 0, 0], "must not all be 0"),
        ([1.0, 1.0], r"shape \(3,\); got shape \(2,\)"),
        ([[1.0], [1.0], [1.0]], r"got shape \(3, 1\)"),
        (1.0, r"got shape \(\)"),
        (["a", "b", "c"], "weights must be a tensor"),
        ([True, False, True], "weights must be real numbers"),
    ],
)
def test_bad_weights_are_refused_with_their_row(weights, message):
    for build in (lambda: made(weights), lambda: TopLabel([0.9, 0.8, 0.7], [True, True, False], weights=weights)):
        with pytest.raises(InputError, match=message):
            build()

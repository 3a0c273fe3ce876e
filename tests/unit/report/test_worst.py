"""The worst bins and classes: none of a calibrated model, those that stand out of another."""

import numpy as np
import pytest
import torch

from calibrant import Predictions, TopLabel
from calibrant.evaluation import worst_bins, worst_classes


def test_a_calibrated_model_of_many_classes_has_no_worst_ones():
    generator = torch.Generator().manual_seed(0)
    listed = 0
    for _ in range(4):
        logits = 3 * torch.randn(3000, 1000, generator=generator)
        labels = logits.softmax(1).multinomial(1, generator=generator)[:, 0]
        listed += len(worst_classes(Predictions(logits, labels), most=1000))
    assert listed <= 1


def test_calibrated_bins_are_named_in_at_most_five_of_a_hundred_cases():
    rng = np.random.default_rng(0)
    named = 0
    for _ in range(300):
        confidence = rng.uniform(0.6, 1.0, 200) ** 0.2
        named += bool(worst_bins(TopLabel(confidence, rng.random(200) < confidence)))
    assert named / 300 <= 0.05


@pytest.mark.parametrize("weight", [None, 3.0])
def test_a_class_that_is_wrong_too_often_is_named_with_its_numbers(weight):
    logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0]]).repeat(200, 1)
    labels = torch.arange(400) % 2
    labels[labels.eq(1) & (torch.arange(400) % 4 == 1)] = 2  # half of those predicted 1
    weights = None if weight is None else torch.full((400,), weight, dtype=torch.float64)
    named = {one.label: one for one in worst_classes(Predictions(logits, labels, weights=weights))}
    assert list(named) == [1, 0]  # both: 79 % is too little for the first and too much for the second
    assert named[1].accuracy == pytest.approx(0.5)
    assert named[1].count == 200


def test_certainty_that_fails_once_is_named_and_that_which_holds_is_not():
    assert [one.accuracy for one in worst_bins(TopLabel([1.0] * 20, [True] * 19 + [False]))] == [0.95]
    assert not worst_bins(TopLabel([1.0] * 20, [True] * 20))
    assert not worst_bins(TopLabel([0.99], [True]))

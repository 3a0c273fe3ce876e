"""Held-out samples: how many of which kind, and how the best epoch is kept."""

import pytest
import torch

from calibrant.confidence.confidnet import ConfidNet, held_out_value, split_samples
from calibrant.confidence.learned import is_better
from calibrant.errors import InputError
from calibrant.predictions import Predictions


def predictions(right, wrong):
    return torch.cat([torch.ones(right, dtype=torch.bool), torch.zeros(wrong, dtype=torch.bool)])


@pytest.mark.parametrize(
    ("right", "wrong", "held_right", "held_wrong"), [(950, 50, 95, 5), (995, 5, 100, 1), (2, 2, 1, 1), (3, 97, 1, 10)]
)
def test_correct_and_wrong_predictions_are_held_out_alike(right, wrong, held_right, held_wrong):
    correct = predictions(right, wrong)
    fitted, held_out = split_samples(correct, 0.1, criterion="auroc", seed=0)
    held = correct[held_out]
    assert (int(held.sum()), int((~held).sum())) == (held_right, held_wrong)
    assert torch.equal(torch.cat((fitted, held_out)).sort().values, torch.arange(right + wrong))


@pytest.mark.parametrize(("right", "wrong"), [(2, 0), (1, 1), (0, 2), (5, 1)])
def test_the_loss_itself_can_choose_by_one_sample_of_any_kind(right, wrong):
    fitted, held_out = split_samples(predictions(right, wrong), 0.1, criterion="mse", seed=0)
    assert len(held_out) == 1
    assert len(fitted) == right + wrong - 1


def test_a_large_share_leaves_a_sample_of_each_kind_to_fit_on():
    correct = predictions(4, 2)
    fitted, _ = split_samples(correct, 0.99, criterion="auroc", seed=0)
    assert correct[fitted].tolist() == [True, False]


def test_the_draw_depends_on_the_seed_alone():
    correct = predictions(90, 30)
    first, same, other = (split_samples(correct, 0.2, criterion="mse", seed=seed)[1] for seed in (0, 0, 1))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_one_sample_cannot_be_divided():
    with pytest.raises(InputError, match="at least two samples"):
        split_samples(predictions(1, 0), 0.1, criterion="mse", seed=0)


def test_the_criteria_are_what_they_are_called():
    log_odds, correct = torch.tensor([2.0, -1.0, 1.0, 0.0]), torch.tensor([True, False, False, True])
    target = torch.tensor([0.9, 0.2, 0.3, 0.6])
    # Of the four pairs of a correct and a wrong prediction, only the last correct one is below a wrong one.
    assert held_out_value("auroc", log_odds, target, correct) == pytest.approx(3 / 4)
    # From the least confident up: wrong, correct, wrong, correct.
    assert held_out_value("aupr_error", log_odds, target, correct) == pytest.approx((1 + 2 / 3) / 2)
    expected = float((log_odds.double().sigmoid() - target).square().mean())
    assert held_out_value("mse", log_odds, target, correct) == pytest.approx(expected)
    assert is_better("auroc", 0.8, 0.7)
    assert is_better("mse", 0.1, 0.2)
    assert not is_better("mse", 0.2, 0.2)


def test_of_equal_epochs_the_first_stays():
    features = torch.randn(200, 3, generator=torch.manual_seed(0))
    known = Predictions.from_logits(features, (features.argmax(dim=1) + (features[:, 0] > 1)) % 3)
    too_slow = ConfidNet(layers=2, units=4, epochs=4, learning_rate=1e-30)
    assert too_slow.fit_features(known, features).choice.epoch == 1

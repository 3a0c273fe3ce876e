"""Rows set aside: how many of which kind, and what is made of them."""

import pytest
import torch

from calibrant.confidence.confidnet import BestEpoch, held_out_value, is_better, split_samples
from calibrant.errors import InputError


def answers(right, wrong):
    return torch.cat([torch.ones(right, dtype=torch.bool), torch.zeros(wrong, dtype=torch.bool)])


@pytest.mark.parametrize(
    ("right", "wrong", "held_right", "held_wrong"), [(950, 50, 95, 5), (995, 5, 100, 1), (2, 2, 1, 1), (3, 97, 1, 10)]
)
def test_right_and_wrong_answers_are_held_out_alike(right, wrong, held_right, held_wrong):
    correct = answers(right, wrong)
    parts = split_samples(correct, 0.1, criterion="auroc", seed=0)
    held = correct[parts.held_out]
    assert (int(held.sum()), int((~held).sum())) == (held_right, held_wrong)
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(right + wrong))


@pytest.mark.parametrize(("right", "wrong"), [(2, 0), (1, 1), (0, 2), (5, 1)])
def test_the_loss_itself_can_choose_by_one_row_of_any_kind(right, wrong):
    parts = split_samples(answers(right, wrong), 0.1, criterion="mse", seed=0)
    assert len(parts.held_out) == 1
    assert len(parts.fitted) == right + wrong - 1


def test_a_large_share_leaves_a_row_of_each_kind_to_fit_on():
    correct = answers(4, 2)
    parts = split_samples(correct, 0.99, criterion="auroc", seed=0)
    assert correct[parts.fitted].tolist() == [True, False]


def test_the_draw_depends_on_the_seed_alone():
    correct = answers(90, 30)
    first, same, other = (split_samples(correct, 0.2, criterion="mse", seed=seed).held_out for seed in (0, 0, 1))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_one_row_cannot_be_divided():
    with pytest.raises(InputError, match="at least two samples"):
        split_samples(answers(1, 0), 0.1, criterion="mse", seed=0)


def test_the_criteria_are_what_they_are_called():
    log_odds, correct = torch.tensor([2.0, -1.0, 1.0, 0.0]), torch.tensor([True, False, False, True])
    target = torch.tensor([0.9, 0.2, 0.3, 0.6])
    # Of the four pairs of a right and a wrong answer, only the last right one is below a wrong one.
    assert held_out_value("auroc", log_odds, target, correct) == pytest.approx(3 / 4)
    # From the least confident up: wrong, right, wrong, right.
    assert held_out_value("aupr_error", log_odds, target, correct) == pytest.approx((1 + 2 / 3) / 2)
    expected = float((log_odds.double().sigmoid() - target).square().mean())
    assert held_out_value("mse", log_odds, target, correct) == pytest.approx(expected)
    assert is_better("auroc", 0.8, 0.7)
    assert is_better("mse", 0.1, 0.2)
    assert not is_better("mse", 0.2, 0.2)


def test_of_equal_epochs_the_first_stays():
    layer = torch.nn.Linear(1, 1)
    best = BestEpoch([layer], criterion="mse", target=torch.tensor([0.5]), correct=torch.tensor([True]))
    first = layer.weight.detach().clone()
    best.record(1, torch.tensor([1.0]))
    with torch.no_grad():
        layer.weight.add_(1)
    best.record(2, torch.tensor([1.0]))
    best.restore()
    assert best.epoch == 1
    assert torch.equal(layer.weight.detach(), first)

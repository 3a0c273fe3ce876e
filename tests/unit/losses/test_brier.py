import pytest
import torch
from torch.nn import functional as F

from calibrant.losses.regularised import BrierLoss
from calibrant.metrics import brier
from calibrant.predictions import Predictions

LOGITS = 3 * torch.randn(60, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.randint(5, (60,), generator=torch.Generator().manual_seed(1))


def test_its_mean_is_the_brier_score():
    score = brier(Predictions.from_logits(LOGITS, LABELS))
    assert BrierLoss()(LOGITS, LABELS).item() == pytest.approx(float(score), rel=1e-12)


def test_a_value_worked_by_hand():
    logits = torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64).log()
    assert BrierLoss()(logits, torch.tensor([1])).item() == pytest.approx(0.49 + 0.64 + 0.01, rel=1e-12)


def test_soft_labels_of_one_class_are_hard_ones():
    soft, hard = BrierLoss()(LOGITS, F.one_hot(LABELS, 5).double()), BrierLoss()(LOGITS, LABELS)
    torch.testing.assert_close(soft, hard, rtol=8 * torch.finfo(LOGITS.dtype).eps, atol=0)


def test_a_sure_sample_costs_its_own_small_square_and_never_less_than_nothing():
    logits = torch.stack([torch.linspace(4, 30, 500), torch.zeros(500), torch.zeros(500)], 1)
    losses = BrierLoss(reduction="none")(logits, torch.zeros(500, dtype=torch.int64))
    exact = BrierLoss(reduction="none")(logits.double(), torch.zeros(500, dtype=torch.int64))
    assert losses.min() >= 0
    assert (losses.double() - exact).abs().max() < 1e-8


def test_the_worst_that_a_sample_can_cost_is_two():
    logits = torch.tensor([[1e4, -1e4]])
    assert BrierLoss()(logits, torch.tensor([1])).item() == 2

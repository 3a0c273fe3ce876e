import pytest
import torch
from torch.nn import functional as F

from calibrant.errors import InputError
from calibrant.losses.regularised import LabelSmoothingLoss

LOGITS = 3 * torch.randn(40, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.randint(7, (40,), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("smoothing", [-1.0, -0.05, 0.01, 0.05, 0.25, 1.0])
def test_it_is_cross_entropy_mixed_with_that_to_the_uniform_labels(smoothing):
    # Eq. 1 of Wang, Feng & Zhang (2021).
    uniform = torch.full_like(LOGITS, 1 / 7)
    expected = (1 - smoothing) * F.cross_entropy(LOGITS, LABELS) + smoothing * F.cross_entropy(LOGITS, uniform)
    assert torch.allclose(LabelSmoothingLoss(smoothing=smoothing)(LOGITS, LABELS), expected, rtol=1e-12)


def test_smoothing_is_spread_over_all_classes_and_not_over_the_wrong_ones_only():
    log_probs = LOGITS.log_softmax(1)
    smooth = torch.full_like(LOGITS, 0.1 / 7).scatter_add(1, LABELS[:, None], torch.full((40, 1), 0.9).double())
    losses = LabelSmoothingLoss(smoothing=0.1, reduction="none")(LOGITS, LABELS)
    assert torch.allclose(losses, -(smooth * log_probs).sum(1), rtol=1e-7)
    wrong_only = torch.full_like(LOGITS, 0.1 / 6).scatter(1, LABELS[:, None], 0.9)
    as_documented = LabelSmoothingLoss(smoothing=0.1 * 7 / 6, reduction="none")(LOGITS, LABELS)
    assert torch.allclose(as_documented, -(wrong_only * log_probs).sum(1), rtol=1e-12)


def test_its_minimum_is_the_smoothed_label():
    best = torch.full((1, 4), 0.025).scatter(1, torch.tensor([[2]]), 0.925).double().log().requires_grad_()
    (gradient,) = torch.autograd.grad(LabelSmoothingLoss(smoothing=0.1)(best, torch.tensor([2])), best)
    assert gradient.abs().max() < 1e-8


def test_soft_labels_of_one_class_are_hard_ones():
    soft = F.one_hot(LABELS, 7).double()
    for smoothing in (-0.07, 0.07):
        loss = LabelSmoothingLoss(smoothing=smoothing)
        assert torch.allclose(loss(LOGITS, soft), loss(LOGITS, LABELS), rtol=1e-12)


def test_below_zero_ever_larger_logits_of_a_right_answer_cost_ever_less():
    sure = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
    losses = [LabelSmoothingLoss(smoothing=-0.1)(scale * sure, torch.tensor([0])).item() for scale in (10, 100, 1000)]
    # ε times the mean of -log p_j, two thirds of the scale, once the rest of the loss is gone.
    assert losses == pytest.approx([-0.1 * 2 / 3 * scale for scale in (10, 100, 1000)], rel=1e-3)


@pytest.mark.parametrize("smoothing", [-1.01, 1.01, float("nan"), True, "0.1"])
def test_smoothing_outside_its_range_is_refused(smoothing):
    with pytest.raises(InputError, match="smoothing must be between -1 and 1; got"):
        LabelSmoothingLoss(smoothing=smoothing)

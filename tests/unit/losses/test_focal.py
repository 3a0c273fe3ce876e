import math

import pytest
import torch
from torch.nn import functional as F

from calibrant.errors import InputError
from calibrant.losses.focal import FocalLoss, focal_weighted

LOGITS = 3 * torch.randn(200, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.randint(7, (200,), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("prob", "gamma", "value"),
    [(0.5, 2.0, math.log(2) / 4), (0.9, 1.0, -0.1 * math.log(0.9)), (0.1, 3.0, 0.729 * math.log(10))],
)
def test_values_worked_by_hand(prob, gamma, value):
    logits = torch.tensor([[prob, 1 - prob]], dtype=torch.float64).log()
    assert FocalLoss(gamma=gamma)(logits, torch.tensor([0])).item() == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("gamma", [0.1, 0.5, 1.0, 2.0, 3.0, 9.0])
def test_it_is_at_least_the_cross_entropy_less_gamma_times_the_entropy(gamma):
    # Eq. 2 of Wang, Feng & Zhang (2021), whose proof needs γ >= 1; it holds below too.
    entropy = torch.special.entr(LOGITS.softmax(1)).sum(1)
    for labels in (LABELS, LOGITS.argmax(1), LOGITS.argmin(1)):
        focal = FocalLoss(gamma=gamma, reduction="none")(LOGITS, labels)
        assert (focal - F.cross_entropy(LOGITS, labels, reduction="none") + gamma * entropy).min() >= 0


def test_one_minus_p_is_not_rounded_for_samples_that_are_all_but_certain():
    # 1 - exp(-loss) would be 0 in float32, and so would the loss.
    loss = focal_weighted(torch.tensor([1e-9]), 1.0)
    assert loss.item() == pytest.approx(1e-18, rel=1e-5)


def test_the_second_derivative_is_that_of_finite_differences():
    loss = FocalLoss(gamma=2.0)
    assert torch.autograd.gradgradcheck(loss, (LOGITS[:4].clone().requires_grad_(), LABELS[:4]))


def test_gamma_may_differ_by_sample_and_carry_a_gradient():
    losses = F.cross_entropy(LOGITS[:5], LABELS[:5], reduction="none")
    gamma = torch.tensor([0.0, 0.5, 1.0, 3.0, 5.0], dtype=torch.float64, requires_grad=True)
    each = torch.stack([focal_weighted(one, g) for one, g in zip(losses, gamma.tolist(), strict=True)])
    assert torch.allclose(focal_weighted(losses, gamma), each, rtol=1e-12)
    assert torch.autograd.gradcheck(lambda g: focal_weighted(losses, g), gamma)


def test_a_detached_weight_gives_the_weighted_gradient_of_the_cross_entropy():
    logits = LOGITS.clone().requires_grad_()
    loss = FocalLoss(gamma=3.0, detach_weight=True, reduction="sum")
    (gradient,) = torch.autograd.grad(loss(logits, LABELS), logits)
    probs = LOGITS.softmax(1)
    weight = (1 - probs.gather(1, LABELS[:, None])) ** 3
    assert torch.allclose(gradient, weight * (probs - F.one_hot(LABELS, 7)), rtol=1e-9, atol=1e-15)
    (whole,) = torch.autograd.grad(FocalLoss(gamma=3.0, reduction="sum")(logits, LABELS), logits)
    assert not torch.allclose(gradient, whole, rtol=0.1)
    assert torch.equal(loss(LOGITS, LABELS), FocalLoss(gamma=3.0, reduction="sum")(LOGITS, LABELS))


@pytest.mark.parametrize("gamma", [-0.1, float("inf"), float("nan"), None])
def test_gamma_out_of_range_is_refused(gamma):
    with pytest.raises(InputError, match="gamma must be at least 0 and finite; got"):
        FocalLoss(gamma=gamma)


@pytest.mark.parametrize("switch", ["no", 1, None])
def test_a_switch_that_is_not_true_or_false_is_refused(switch):
    with pytest.raises(InputError, match=f"detach_weight must be True or False; got {switch!r}"):
        FocalLoss(gamma=1.0, detach_weight=switch)

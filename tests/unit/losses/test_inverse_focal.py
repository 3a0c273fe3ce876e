import math

import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import lambertw
from torch.nn import functional as F

from calibrant.errors import InputError
from calibrant.losses.focal import LARGEST_GAMMA, InverseFocalLoss

LOGITS = 3 * torch.randn(100, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.randint(5, (100,), generator=torch.Generator().manual_seed(1))


def slopes_in_the_probability(gamma):
    """Of the formula itself, since the class refuses a γ above the bound."""
    p = torch.linspace(1e-4, 1, 100_001, dtype=torch.float64, requires_grad=True)
    (slopes,) = torch.autograd.grad((-((1 + p) ** gamma) * p.log()).sum(), p)
    return slopes


@pytest.mark.parametrize(("prob", "gamma"), [(0.5, 2.0), (0.9, 1.0), (0.1, 3.0)])
def test_values_worked_by_hand(prob, gamma):
    logits = torch.tensor([[prob, 1 - prob]], dtype=torch.float64).log()
    by_hand = -((1 + prob) ** gamma) * math.log(prob)
    assert InverseFocalLoss(gamma=gamma)(logits, torch.tensor([0])).item() == pytest.approx(by_hand, rel=1e-12)


def test_up_to_the_bound_more_probability_always_costs_less_and_above_it_not():
    assert slopes_in_the_probability(3.0).max() < 0
    assert slopes_in_the_probability(LARGEST_GAMMA).max() < 1e-12
    assert slopes_in_the_probability(LARGEST_GAMMA + 0.001).max() > 0
    wrong_way = (slopes_in_the_probability(5.0) > 0).nonzero()[:, 0].double() / 100_000
    assert (round(wrong_way.min().item(), 2), round(wrong_way.max().item(), 2)) == (0.09, 0.58)


def test_the_bound_is_the_smallest_gamma_that_any_probability_allows():
    found = minimize_scalar(lambda p: (1 + p) / (-p * math.log(p)), bounds=(0.01, 0.99), options={"xatol": 1e-12})
    assert pytest.approx(found.fun, rel=1e-12) == LARGEST_GAMMA
    assert pytest.approx(1 / lambertw(1 / math.e).real, rel=1e-15) == LARGEST_GAMMA


def test_a_detached_weight_gives_the_weighted_gradient_of_the_cross_entropy_at_any_gamma():
    logits = LOGITS.clone().requires_grad_()
    loss = InverseFocalLoss(gamma=9.0, detach_weight=True, reduction="sum")
    (gradient,) = torch.autograd.grad(loss(logits, LABELS), logits)
    probs = LOGITS.softmax(1)
    weight = (1 + probs.gather(1, LABELS[:, None])) ** 9
    assert torch.allclose(gradient, weight * (probs - F.one_hot(LABELS, 5)), rtol=1e-9)


def test_a_gamma_above_the_bound_is_refused_with_what_to_do():
    InverseFocalLoss(gamma=3.59)
    with pytest.raises(InputError, match=r"at most 3.5911, .*; got 3.6\. Take a smaller one, or detach_weight=True"):
        InverseFocalLoss(gamma=3.6)


def test_a_gamma_below_zero_is_refused():
    with pytest.raises(InputError, match="gamma must be at least 0 and finite; got -1"):
        InverseFocalLoss(gamma=-1, detach_weight=True)


@pytest.mark.parametrize("switch", ["no", 1, None])
def test_a_switch_that_is_not_true_or_false_is_refused(switch):
    with pytest.raises(InputError, match=f"detach_weight must be True or False; got {switch!r}"):
        InverseFocalLoss(gamma=1.0, detach_weight=switch)

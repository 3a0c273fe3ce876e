import math

import pytest
import torch
from scipy.optimize import brentq
from torch.nn import functional as F

from calibrant.errors import InputError
from calibrant.losses.focal import FocalLoss, SampleDependentFocalLoss, focal_gamma

LOGITS = 2 * torch.randn(300, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.randint(4, (300,), generator=torch.Generator().manual_seed(1))


def slope_ratio(p, gamma):
    """Gradient of the focal loss over that of the cross-entropy."""
    return (1 - p) ** gamma - gamma * p * (1 - p) ** (gamma - 1) * math.log(p)


def test_gamma_is_5_exactly_where_the_true_class_is_below_one_fifth():
    below = LOGITS.softmax(1).gather(1, LABELS[:, None])[:, 0] < 0.2
    assert 0.2 < below.double().mean() < 0.8
    losses = SampleDependentFocalLoss(reduction="none")(LOGITS, LABELS)
    five, three = (FocalLoss(gamma=gamma, reduction="none")(LOGITS, LABELS) for gamma in (5.0, 3.0))
    assert torch.allclose(losses, torch.where(below, five, three), rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_true_class_of_exactly_one_fifth_is_not_below_it(dtype):
    even, label = torch.zeros(1, 5, dtype=dtype), torch.tensor([3])
    assert SampleDependentFocalLoss()(even, label).item() == pytest.approx(0.8**3 * math.log(5))


def test_more_thresholds_make_more_steps():
    logits = torch.tensor([[p, 1 - p] for p in (0.05, 0.15, 0.3, 0.9)], dtype=torch.float64).log()
    loss = SampleDependentFocalLoss(gammas=(7.0, 4.0, 2.0, 0.0), thresholds=(0.1, 0.2, 0.5), reduction="none")
    by_hand = [-(0.95**7) * math.log(0.05), -(0.85**4) * math.log(0.15), -(0.7**2) * math.log(0.3), -math.log(0.9)]
    assert loss(logits, torch.zeros(4, dtype=torch.int64)).tolist() == pytest.approx(by_hand, rel=1e-12)


def test_no_threshold_is_the_focal_loss():
    loss = SampleDependentFocalLoss(gammas=(2.0,), thresholds=())
    # γ is a tensor there and a plain number here, whose powers are worked out by different routines.
    rounding = 8 * torch.finfo(LOGITS.dtype).eps
    torch.testing.assert_close(loss(LOGITS, LABELS), FocalLoss(gamma=2.0)(LOGITS, LABELS), rtol=rounding, atol=0)


def test_the_gradient_is_that_of_each_samples_own_gamma():
    loss = SampleDependentFocalLoss(reduction="none")
    assert torch.autograd.gradcheck(loss, (LOGITS[:6].clone().requires_grad_(), LABELS[:6]))
    logits = LOGITS.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(SampleDependentFocalLoss(reduction="sum")(logits, LABELS), logits)
    below = (F.cross_entropy(LOGITS, LABELS, reduction="none") > math.log(5))[:, None]
    by_gamma = [
        torch.autograd.grad(FocalLoss(gamma=gamma, reduction="sum")(logits, LABELS), logits)[0] for gamma in (5.0, 3.0)
    ]
    assert torch.allclose(gradient, torch.where(below, *by_gamma), rtol=1e-12)


@pytest.mark.parametrize(("p", "gamma"), [(0.2, 4.85), (0.25, 3.07), (0.3, 1.96), (0.4, 0.68), (0.5, 0.0), (0.8, 0.0)])
def test_the_rule_gives_the_gammas_that_the_papers_code_gives(p, gamma):
    assert focal_gamma(p) == pytest.approx(gamma, abs=0.005)


@pytest.mark.parametrize("p", [1e-6, 0.01, 0.1, 0.2, 0.25, 0.4, 0.49])
def test_at_the_rules_gamma_the_two_gradients_are_equal(p):
    gamma = focal_gamma(p)
    assert slope_ratio(p, gamma) == pytest.approx(1, abs=1e-9)
    assert gamma == pytest.approx(brentq(lambda g: slope_ratio(p, g) - 1, gamma / 2, 2 * gamma + 1), rel=1e-8)
    above = [p + step * (1 - p) for step in (0.01, 0.1, 0.5, 0.9)]
    assert max(slope_ratio(each, gamma) for each in above) < 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gammas": 5.0}, "gammas must be a tuple; got 5.0"),
        ({"gammas": (5.0, -3.0)}, "each of gammas must be at least 0 and finite; got -3.0"),
        ({"thresholds": (0.0,)}, "each of thresholds must lie between 0 and 1, without these; got 0.0"),
        ({"thresholds": (1.5,)}, "each of thresholds must lie between 0 and 1, without these; got 1.5"),
        ({"gammas": (5.0, 3.0, 1.0), "thresholds": (0.5, 0.2)}, "thresholds must rise; got"),
        ({"gammas": (5.0,)}, "gammas must be one more than thresholds.*got 1 gammas and 1 thresholds"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        SampleDependentFocalLoss(**options)


@pytest.mark.parametrize("p", [0, 1, -0.1, float("nan")])
def test_the_rule_needs_a_probability_that_is_neither_0_nor_1(p):
    with pytest.raises(InputError, match="probability must"):
        focal_gamma(p)

import math

import pytest
import torch
from torch.nn import functional as F

from calibrant.errors import InputError
from calibrant.losses.regularised import EntropyRegularisedLoss

LOGITS = 3 * torch.randn(40, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.randint(5, (40,), generator=torch.Generator().manual_seed(1))


def test_it_is_cross_entropy_less_the_weighted_entropy_of_all_classes():
    losses = EntropyRegularisedLoss(weight=0.3, reduction="none")(LOGITS, LABELS)
    entropy = torch.distributions.Categorical(logits=LOGITS).entropy()
    assert torch.allclose(losses, F.cross_entropy(LOGITS, LABELS, reduction="none") - 0.3 * entropy, rtol=1e-12)


def test_a_value_worked_by_hand():
    logits = torch.tensor([[0.5, 0.25, 0.25]], dtype=torch.float64).log()
    loss = EntropyRegularisedLoss(weight=0.1)(logits, torch.tensor([0]))
    assert loss.item() == pytest.approx(math.log(2) - 0.1 * 1.5 * math.log(2), rel=1e-12)


def test_code_that_averages_over_the_classes_has_a_weight_k_times_ours():
    log_probs = LOGITS.log_softmax(1)
    averaged = F.cross_entropy(LOGITS, LABELS) + 0.1 * (log_probs.exp() * log_probs).mean(1).mean()
    assert torch.isclose(EntropyRegularisedLoss(weight=0.1 / 5)(LOGITS, LABELS), averaged, rtol=1e-12)


def test_a_masked_class_is_as_good_as_not_there():
    masked = torch.cat([LOGITS, torch.full((40, 1), -torch.inf, dtype=torch.float64)], 1).requires_grad_()
    loss = EntropyRegularisedLoss(weight=0.3)
    value = loss(masked, LABELS)
    (slope,) = torch.autograd.grad(value, masked)
    plain = LOGITS.clone().requires_grad_()
    expected = loss(plain, LABELS)
    assert torch.isclose(value, expected, rtol=1e-12)
    assert torch.allclose(slope[:, :5], torch.autograd.grad(expected, plain)[0], rtol=1e-10)
    assert slope[:, 5].abs().max() == 0


def test_soft_labels_are_weighed_class_by_class():
    soft = torch.randn(40, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64).softmax(1)
    loss = EntropyRegularisedLoss(weight=0.3, reduction="none")
    each = torch.stack([loss(LOGITS, torch.full((40,), label)) for label in range(5)], 1)
    assert torch.allclose(loss(LOGITS, soft), (soft * each).sum(1), rtol=1e-12)


def test_a_weight_below_zero_is_refused():
    with pytest.raises(InputError, match=r"weight must be at least 0 and finite; got -0\.1"):
        EntropyRegularisedLoss(weight=-0.1)

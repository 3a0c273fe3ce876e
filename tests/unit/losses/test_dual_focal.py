import math

import pytest
import torch

from calibrant.errors import InputError
from calibrant.losses.focal import DualFocalLoss, FocalLoss

LOGITS = 2 * torch.randn(60, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.randint(6, (60,), generator=torch.Generator().manual_seed(1))


def by_hand(probs, label, gamma):
    p = probs[label]
    rival = max((each for each in probs if each < p), default=0.0)
    return -((1 - p + rival) ** gamma) * math.log(p)


def test_values_are_those_of_the_formula_sample_by_sample():
    losses = DualFocalLoss(gamma=2.5, reduction="none")(LOGITS, LABELS)
    expected = [by_hand(row, label, 2.5) for row, label in zip(LOGITS.softmax(1).tolist(), LABELS, strict=True)]
    assert losses.tolist() == pytest.approx(expected, rel=1e-10)


def test_the_next_class_is_strictly_below_the_true_class():
    logits = torch.tensor([[0.4, 0.4, 0.2]], dtype=torch.float64).log()
    loss = DualFocalLoss(gamma=2.0)(logits, torch.tensor([0]))
    assert loss.item() == pytest.approx(-(0.8**2) * math.log(0.4), rel=1e-12)


@pytest.mark.parametrize("row", [[1.0, 2.0, 3.0], [1.0, 1.0, 1.0], [-1e4, 0.0, 1e4]])
def test_a_true_class_that_is_last_has_no_next_class(row):
    logits, label = torch.tensor([row], dtype=torch.float64), torch.tensor([0])
    assert torch.equal(DualFocalLoss(gamma=3.0)(logits, label), FocalLoss(gamma=3.0)(logits, label))


def test_a_batch_of_one_keeps_its_shape():
    assert DualFocalLoss(reduction="none")(LOGITS[:1], LABELS[:1]).shape == (1,)


def test_the_gradient_is_that_of_finite_differences_through_the_next_class_too():
    loss = DualFocalLoss(gamma=2.0, reduction="none")
    assert torch.autograd.gradcheck(loss, (LOGITS[:8].clone().requires_grad_(), LABELS[:8]))


def test_gamma_below_zero_is_refused():
    with pytest.raises(InputError, match="gamma must be at least 0 and finite; got -1"):
        DualFocalLoss(gamma=-1)

import itertools
import math

import pytest
import torch
from torch.nn import functional as F

from calibrant.errors import InputError
from calibrant.losses.regularised import PairwiseConstraintsLoss

LOGITS = 3 * torch.randn(20, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.randint(6, (20,), generator=torch.Generator().manual_seed(1))


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def duels_of_the_true_class(row, label):
    lost = [-math.log(sigmoid(row[label] - each)) for j, each in enumerate(row) if j != label]
    return sum(lost) / len(lost)


def duels_of_wrong_classes(row, label):
    wrong = [each for j, each in enumerate(row) if j != label]
    each = [-0.5 * (math.log(sigmoid(a - b)) + math.log(sigmoid(b - a))) for a, b in itertools.combinations(wrong, 2)]
    return sum(each) / len(each)


@pytest.mark.parametrize(("first", "second"), [(1.0, 1.0), (0.3, 0.0), (0.0, 0.7)])
def test_values_are_those_of_every_pair_counted_once(first, second):
    loss = PairwiseConstraintsLoss(discrimination_weight=first, exclusion_weight=second, reduction="none")
    losses = loss(LOGITS, LABELS) - F.cross_entropy(LOGITS, LABELS, reduction="none")
    rows = list(zip(LOGITS.tolist(), LABELS.tolist(), strict=True))
    expected = [first * duels_of_the_true_class(*row) + second * duels_of_wrong_classes(*row) for row in rows]
    assert losses.tolist() == pytest.approx(expected, rel=1e-9)


def test_two_classes_have_no_duel_of_wrong_ones():
    logits, labels = LOGITS[:, :2], LABELS % 2
    loss = PairwiseConstraintsLoss(discrimination_weight=0.5, exclusion_weight=3.0)
    # And with two the duel of the true class is the cross-entropy itself.
    assert torch.allclose(loss(logits, labels), 1.5 * F.cross_entropy(logits, labels), rtol=1e-12)


def test_open_duels_of_wrong_classes_cost_log_two_and_have_no_gradient():
    logits = torch.tensor([[4.0, 1.0, 1.0, 1.0]], dtype=torch.float64, requires_grad=True)
    label = torch.tensor([0])
    loss = PairwiseConstraintsLoss(discrimination_weight=0.0)(logits, label) - F.cross_entropy(logits, label)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == pytest.approx(math.log(2), rel=1e-12)
    assert gradient.abs().max() < 1e-15


def test_a_masked_class_loses_to_the_true_one_for_nothing():
    masked = torch.cat([LOGITS, torch.full((20, 1), -torch.inf, dtype=torch.float64)], 1).requires_grad_()
    loss = PairwiseConstraintsLoss(exclusion_weight=0.0)
    value = loss(masked, LABELS)
    (slope,) = torch.autograd.grad(value, masked)
    plain = F.cross_entropy(LOGITS, LABELS)
    # One duel more, which costs nothing.
    assert torch.isclose((value - plain) * 6 / 5, loss(LOGITS, LABELS) - plain, rtol=1e-12)
    assert slope.isfinite().all()


def test_a_shift_of_all_logits_changes_nothing():
    loss = PairwiseConstraintsLoss()
    assert torch.allclose(loss(LOGITS + 100, LABELS), loss(LOGITS, LABELS), rtol=1e-10)


@pytest.mark.parametrize("option", ["discrimination_weight", "exclusion_weight"])
def test_a_weight_below_zero_is_refused(option):
    with pytest.raises(InputError, match=f"{option} must be at least 0 and finite; got -1.0"):
        PairwiseConstraintsLoss(**{option: -1.0})

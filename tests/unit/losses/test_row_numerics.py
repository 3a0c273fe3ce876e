"""What every loss of single rows must bear: certainty and its opposite, huge logits, limits that are cross-entropy."""

import pytest
import torch
from torch.nn import functional as F

from calibrant.losses.focal import (
    DualFocalLoss,
    FocalLoss,
    InverseFocalLoss,
    SampleDependentFocalLoss,
    ScheduledFocalLoss,
)
from calibrant.losses.regularised import (
    BrierLoss,
    EntropyRegularisedLoss,
    LabelSmoothingLoss,
    LogitNormLoss,
    MarginLoss,
    PairwiseConstraintsLoss,
)

LIMITS = [
    LabelSmoothingLoss(smoothing=0.0),
    LogitNormLoss(weight=0.0),
    FocalLoss(gamma=0.0),
    FocalLoss(gamma=0.0, detach_weight=True),
    SampleDependentFocalLoss(gammas=(0.0, 0.0)),
    ScheduledFocalLoss(gammas=(0.0,), starts=(0,)),
    InverseFocalLoss(gamma=0.0),
    DualFocalLoss(gamma=0.0),
    EntropyRegularisedLoss(weight=0.0),
    MarginLoss(weight=0.0),
    PairwiseConstraintsLoss(discrimination_weight=0.0, exclusion_weight=0.0),
]
USUAL = [
    LabelSmoothingLoss(),
    LogitNormLoss(),
    LogitNormLoss(p=2.0),
    FocalLoss(),
    FocalLoss(gamma=1.0),
    FocalLoss(gamma=0.5),
    FocalLoss(gamma=0.01),
    SampleDependentFocalLoss(),
    SampleDependentFocalLoss(gammas=(0.9, 0.1)),
    ScheduledFocalLoss(),
    ScheduledFocalLoss(gammas=(0.2,), starts=(0,)),
    InverseFocalLoss(),
    InverseFocalLoss(gamma=0.5),
    DualFocalLoss(),
    DualFocalLoss(gamma=0.1),
    EntropyRegularisedLoss(),
    BrierLoss(),
    MarginLoss(),
    PairwiseConstraintsLoss(),
]
EXTREMES = torch.tensor(
    [
        [1e4, -1e4, 0.0],  # p_y is 1, the others are 0
        [-1e4, 1e4, 0.0],  # p_y is 0
        [-1e4, -1e4, 1e4],  # p_y is 0, and has a twin
        [1e4, 1e4, 1e4],
        [17.0, 0.0, 0.0],  # 1 - p_y is the last bit of float32
        [0.0, 0.0, 0.0],
        [-0.0, 1e-38, 1e-45],
    ]
)
FIRST = torch.zeros(len(EXTREMES), dtype=torch.int64)


def name_of(loss):
    return f"{loss.name}({loss.extra_repr()})"


@pytest.mark.parametrize("loss", LIMITS, ids=name_of)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_at_its_limit_it_is_the_cross_entropy_to_the_bit(loss, dtype):
    logits = 4 * torch.randn(100, 9, generator=torch.Generator().manual_seed(0), dtype=dtype).requires_grad_()
    labels = torch.randint(9, (100,), generator=torch.Generator().manual_seed(1))
    losses, expected = loss.rows(logits, labels), F.cross_entropy(logits, labels, reduction="none")
    assert torch.equal(losses, expected)
    gradients = [torch.autograd.grad(each.sum(), logits, retain_graph=True)[0] for each in (losses, expected)]
    assert torch.equal(*gradients)


@pytest.mark.parametrize("loss", USUAL, ids=name_of)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_value_and_gradient_are_finite_at_the_extremes(loss, dtype):
    logits = EXTREMES.to(dtype).requires_grad_()
    value = loss(logits, FIRST)
    (gradient,) = torch.autograd.grad(value, logits)
    assert value.isfinite()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("loss", USUAL, ids=name_of)
def test_float32_agrees_with_float64(loss):
    logits = 5 * torch.randn(200, 10, generator=torch.Generator().manual_seed(0))
    labels = torch.where(torch.arange(200) < 100, logits.argmax(1), torch.arange(200) % 10)
    narrow, wide = logits.clone().requires_grad_(), logits.double().requires_grad_()
    losses = [loss(each, labels) for each in (narrow, wide)]
    assert torch.allclose(losses[0].double(), losses[1], rtol=1e-6)
    gradients = [torch.autograd.grad(each, at)[0] for each, at in zip(losses, (narrow, wide), strict=True)]
    assert (gradients[0].double() - gradients[1]).abs().max() < 1e-5 * gradients[1].abs().max()


@pytest.mark.parametrize("loss", USUAL, ids=name_of)
def test_no_shape_and_no_choice_depends_on_the_data(loss):
    # Tensors without data refuse whatever would have to look at it, as a captured graph does.
    logits = torch.empty(8, 5, device="meta", requires_grad=True)
    value = loss(logits, torch.empty(8, dtype=torch.int64, device="meta"))
    (gradient,) = torch.autograd.grad(value, logits)
    assert (value.shape, gradient.shape) == ((), (8, 5))

"""The objective is eq. 9 of Neural Clamping per sample, and with its options that of the authors' toolkit."""

import math

import pytest
import torch
from torch.nn import functional as F

from calibrant.clamping import Objective


def samples(n=40, k=5, *, scale=2.0):
    generator = torch.Generator().manual_seed(0)
    logits = scale * torch.randn(n, k, generator=generator, dtype=torch.float64)
    return logits, torch.randint(k, (n,), generator=generator)


def label_probs(logits, labels):
    return logits.softmax(1).gather(1, labels[:, None])[:, 0]


def test_without_focus_it_is_the_cross_entropy():
    logits, labels = samples()
    assert torch.equal(Objective().sample_losses(logits, labels), F.cross_entropy(logits, labels, reduction="none"))


@pytest.mark.parametrize("gamma", [0.05, 0.5, 1.0, 3.0])
def test_the_focal_loss_is_that_of_equation_8(gamma):
    logits, labels = samples()
    p = label_probs(logits, labels)
    assert torch.allclose(Objective(gamma).sample_losses(logits, labels), -((1 - p) ** gamma) * p.log())


def test_as_gamma_goes_to_zero_the_focal_loss_goes_to_the_cross_entropy():
    logits, labels = samples()
    plain = Objective().sample_losses(logits, labels)
    gaps = [float((Objective(gamma).sample_losses(logits, labels) - plain).abs().max()) for gamma in (1e-2, 1e-5, 1e-9)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-7


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_clipped_it_is_the_loss_that_the_toolkit_codes(gamma):
    logits, labels = samples(scale=20.0)
    p = label_probs(logits, labels)
    assert p.min() < 1e-7 < 1 - 1e-7 < p.max()
    p = p.clamp(1e-7, 1 - 1e-7)
    assert torch.allclose(Objective(gamma, clip=1e-7).sample_losses(logits, labels), -((1 - p) ** gamma) * p.log())


def test_beyond_the_clip_there_is_no_gradient():
    logits, labels = samples(scale=20.0)
    p = label_probs(logits, labels)
    logits.requires_grad_()
    Objective(1.0, clip=1e-3).sample_losses(logits, labels).sum().backward()
    is_clipped = (p < 1e-3) | (p > 1 - 1e-3)
    assert 0 < int(is_clipped.sum()) < len(p)
    assert torch.equal(logits.grad.abs().amax(dim=1) == 0, is_clipped)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_samples_that_are_quite_sure_have_a_finite_loss_and_gradient(gamma, dtype):
    logits = torch.tensor([[200.0, 0.0], [0.0, 200.0], [1e4, 0.0]], dtype=dtype, requires_grad=True)
    losses = Objective(gamma).sample_losses(logits, torch.zeros(3, dtype=torch.int64))
    losses.sum().backward()
    assert losses.isfinite().all()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("penalty", ["squared", "norm"])
def test_the_pull_is_the_gradient_of_the_penalty(penalty):
    objective = Objective(strength=0.7, penalty=penalty)
    coefficients = torch.tensor([0.3, -1.2, 0.0, 2.0], dtype=torch.float64)
    steps = 1e-6 * torch.eye(4, dtype=torch.float64)
    ends = [(objective.penalty_of(coefficients + step), objective.penalty_of(coefficients - step)) for step in steps]
    assert objective.penalty_gradient(coefficients).tolist() == pytest.approx(
        [(up - down) / 2e-6 for up, down in ends], abs=1e-8
    )


def test_the_penalty_is_the_squared_norm_of_the_paper_or_the_norm_of_the_toolkit():
    delta = torch.tensor([[3.0], [4.0]])
    assert Objective(strength=2.0).penalty_of(delta) == 50.0
    assert Objective(strength=2.0, penalty="norm").penalty_of(delta) == 10.0


def test_the_norm_has_no_pull_at_zero_as_torch_has_it():
    nothing = torch.zeros(3, requires_grad=True)
    nothing.norm().backward()
    assert torch.equal(Objective(penalty="norm").penalty_gradient(nothing.detach()), nothing.grad)


@pytest.mark.parametrize("penalty", ["squared", "norm"])
def test_the_ridge_is_the_curvature_across_delta(penalty):
    objective, coefficients = Objective(strength=0.7, penalty=penalty), torch.tensor([2.0, 0.0]).double()
    across, step = torch.tensor([0.0, 1.0]).double(), 1e-4
    turned = objective.penalty_gradient(coefficients + step * across) - objective.penalty_gradient(
        coefficients - step * across
    )
    assert float(turned[1]) / (2 * step) == pytest.approx(objective.penalty_curvature(coefficients), rel=1e-6)
    assert math.isfinite(objective.penalty_curvature(torch.zeros(2)))

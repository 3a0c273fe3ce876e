"""The gradient is that of what is minimised, the head following δ: whatever stands behind, by finite differences."""

import pytest
import torch
from made_networks import tanh_network
from torch import nn
from torch.nn import functional as F

from calibrant import catalogue
from calibrant.calibrators import (
    DirichletODIR,
    EnsembleTemperatureScaling,
    MatrixScalingODIR,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    VectorScaling,
)
from calibrant.clamping import HeadFit, InputSpace, Objective, PerEntry
from calibrant.clamping.inputs import InputPreparation
from calibrant.clamping.objective import temperature_sensitivity
from calibrant.clamping.passes import Passes
from calibrant.clamping.solver import ProfileLoss
from calibrant.errors import InputError
from calibrant.inference import LabelledInputs
from calibrant.predictions import Predictions

D, K, N = 6, 4, 120
STEP = 1e-4
NUMBERED = {
    "ms_odir, given": MatrixScalingODIR(strength=1.0, bias_strength=1.0),
    "dirichlet_odir, given": DirichletODIR(strength=1.0, bias_strength=1.0),
    "svs, strongly": StructuredVectorScaling(30.0, 3.0),
    "sms, strongly": StructuredMatrixScaling(30.0, 3.0, 1.0),
}


def network():
    return tanh_network().requires_grad_(False)


def data(wrong=0.0):
    """Labels of a network that was fed other inputs, some of them drawn at random."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(N, D, generator=generator, dtype=torch.float64)
    labels = torch.multinomial((network()(inputs + 0.5) / 0.5).softmax(1), 1, generator=generator)[:, 0]
    is_wrong = torch.rand(N, generator=generator) < wrong
    return inputs, labels.where(~is_wrong, torch.randint(K, (N,), generator=generator))


def profiled(calibrator, samples=None, model=None, **options):
    samples = LabelledInputs.of(data() if samples is None else samples)
    passes = Passes(model or network(), samples, **options)
    basis = PerEntry().basis(torch.zeros(samples.input_shape))
    return ProfileLoss(passes, basis, HeadFit(calibrator, 0.0), torch.float64)


def gradients(loss, start):
    """As returned, behind a temperature that does not lag; and by central differences of the loss."""
    objective, start = Objective(), start.flatten()
    here = loss.evaluate(start, loss.evaluate(start, None, objective).head, objective)
    steps = STEP * torch.eye(len(start), dtype=torch.float64)
    ends = [[loss.evaluate(start + sign * step, here.head, objective).loss for sign in (1, -1)] for step in steps]
    return here.gradient, (torch.tensor(ends, dtype=torch.float64) @ torch.tensor([0.5, -0.5]).double()) / STEP


def assert_alike(message, known):
    assert float((message - known).norm() / known.norm()) < 1e-5


@pytest.mark.parametrize("name", [*catalogue.calibrators, *NUMBERED])
def test_every_head_is_either_refused_or_followed_exactly(name):
    calibrator = NUMBERED.get(name) or catalogue.calibrators[name]
    try:
        loss = profiled(calibrator)
    except InputError as error:
        assert name in str(error)  # noqa: PT017  # either is right
        return
    assert_alike(*gradients(loss, torch.full((D,), 0.1, dtype=torch.float64)))


def test_the_heads_asked_for_are_not_among_those_refused():
    for name in ("none", "temperature", "vector", "matrix", "bias_corrected", "svs", "sms", "ets"):
        HeadFit(catalogue.calibrators[name], 0.0)


def test_a_mixture_of_several_parts_is_followed_as_well():
    inputs, labels = data(wrong=0.3)
    fitted = EnsembleTemperatureScaling().fit(Predictions.from_logits(network()(inputs + 0.1), labels))
    assert (fitted.weights > 0.01).sum() > 1
    loss = profiled(EnsembleTemperatureScaling(), (inputs, labels))
    assert_alike(*gradients(loss, torch.full((D,), 0.1, dtype=torch.float64)))


@pytest.mark.parametrize("calibrator", [StructuredVectorScaling(2.0, 3.0), StructuredMatrixScaling(2.0, 0.5, 3.0)])
def test_the_loss_is_that_of_the_head_with_its_own_penalty(calibrator):
    (inputs, labels), delta = data(), torch.full((D,), 0.1, dtype=torch.float64)
    result = profiled(calibrator).evaluate(delta, None, Objective())
    weight, bias = result.head.maps[1].weight, result.head.maps[1].bias
    weight = torch.diag(weight) if weight.ndim == 1 else weight
    diagonal = weight.diagonal()
    share = K / N
    penalty = share * (2.0 * (diagonal - 1).square().sum() + 3.0 * bias.square().sum())
    penalty += share * (K - 1) * 0.5 * (weight - torch.diag(diagonal)).square().sum()
    known = F.cross_entropy(result.head(network()(inputs + delta)), labels)
    assert float(penalty) > 1e-3
    assert result.loss == pytest.approx(float(known + penalty), abs=1e-9)


def test_a_first_temperature_at_the_edge_of_what_is_allowed_does_not_follow():
    logits = network()(data()[0])
    worst = logits.argmin(dim=1)
    head = StructuredVectorScaling().fit(Predictions.from_logits(logits, worst))
    assert temperature_sensitivity(head, logits, worst, Objective()) is None


def test_behind_augmented_samples_the_head_is_that_of_the_samples_seen():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(12, 3)).double().requires_grad_(False)
    inputs = torch.rand(60, 1, 3, 3, dtype=torch.float64)
    labels = torch.multinomial((3 * model(inputs + 0.2)).softmax(1), 1)[:, 0]
    preparation = InputPreparation(InputSpace(), "crop-flip", views=3, seed=5)
    loss = profiled(VectorScaling(), (inputs, labels), model.eval(), preparation=preparation, batch_size=25)
    assert_alike(*gradients(loss, torch.full((1, 3, 3), 0.05, dtype=torch.float64)))

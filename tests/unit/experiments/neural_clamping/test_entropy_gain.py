"""Lemma 3.1's condition at the fitted temperature, and Theorem 3.2's promise for ever smaller perturbations."""

import copy
from itertools import pairwise

import pytest
import torch
from experiments.neural_clamping.theory import EntropyGain, lemma_residual, theorem_gain
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from calibrant.calibrators import TemperatureScaling
from calibrant.clamping import ClampedModel, RandomStart, entropy_gradient
from calibrant.errors import InputError
from calibrant.inference import LabelledInputs
from calibrant.maps import Scale
from calibrant.predictions import Predictions

NOTHING = nn.Identity()  # a network whose inputs are its logits


@pytest.fixture(scope="module")
def answers():
    """Logits and labels."""
    logits = 3 * torch.randn(2000, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.multinomial((logits / 2.5).softmax(1), 1, generator=torch.Generator().manual_seed(1))[:, 0]
    return logits, labels


def test_the_residual_is_zero_at_the_fitted_temperature_and_changes_sign_there(answers):
    best = float(TemperatureScaling().fit(Predictions.from_logits(*answers)).temperature)
    assert abs(lemma_residual(NOTHING, answers, temperature=best)) < 1e-5
    residuals = [lemma_residual(NOTHING, answers, temperature=best * share) for share in (0.3, 0.7, 0.99, 1.01, 1.5, 4)]
    assert residuals == sorted(residuals)
    assert residuals[2] < -1e-4
    assert residuals[3] > 1e-4


def test_the_residual_over_the_temperature_is_the_slope_of_the_log_loss_against_its_logarithm(answers):
    temperature = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)
    loss = nn.functional.cross_entropy(answers[0] / temperature, answers[1])
    (slope,) = torch.autograd.grad(loss, temperature)
    assert lemma_residual(NOTHING, answers, temperature=1.7) / 1.7 == pytest.approx(float(slope * 1.7), rel=1e-10)


def test_the_residual_over_the_temperature_does_not_depend_on_the_logits_scale(answers):
    one = lemma_residual(NOTHING, answers, temperature=1.3) / 1.3
    scaled = 10 * answers[0], answers[1]
    assert lemma_residual(NOTHING, scaled, temperature=13.0) / 13 == pytest.approx(one, rel=1e-12)


def test_a_focal_temperature_does_not_meet_the_lemma(answers):
    focal = float(TemperatureScaling("focal").fit(Predictions.from_logits(*answers)).temperature)
    assert lemma_residual(NOTHING, answers, temperature=focal) > 1e-2


def test_the_residual_of_float32_logits_is_added_up_in_float64(answers):
    single, labels = answers[0].float(), answers[1]
    found, known = (lemma_residual(NOTHING, (each, labels), temperature=2.0) for each in (single, single.double()))
    assert found == pytest.approx(known, rel=1e-13)


def test_the_residual_is_that_of_the_logits_at_x_plus_delta(answers):
    logits, labels = answers
    delta = torch.linspace(-1, 1, 6, dtype=torch.float64)
    found = lemma_residual(NOTHING, TensorDataset(logits, labels), delta=delta, temperature=1.3)
    assert found == lemma_residual(NOTHING, (logits + delta, labels), temperature=1.3)


def test_the_residual_of_a_clamped_model_is_that_at_its_own_delta_and_temperature_over_the_temperature(answers):
    delta = torch.linspace(-1, 1, 6, dtype=torch.float64)
    clamped = ClampedModel(NOTHING, delta, Scale(torch.tensor(1.3, dtype=torch.float64), n_classes=6))
    known = lemma_residual(NOTHING, answers, delta=delta, temperature=1.3)
    assert lemma_residual(clamped, answers) == pytest.approx(known / 1.3, rel=1e-12)


@pytest.fixture(scope="module")
def smooth():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 5)).double()
    inputs = torch.randn(40, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    direction = torch.randn(6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return model, LabelledInputs.of((inputs, torch.arange(40) % 5)), direction


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_the_first_order_gain_becomes_exact_as_the_perturbation_shrinks(smooth, temperature):
    model, rows, direction = smooth
    errors = []
    for size in (1e-1, 1e-2, 1e-3, 1e-4):
        gain = theorem_gain(model, rows, delta=size * direction, temperature=temperature)
        errors.append(abs(gain.realised / gain.predicted - 1))
    assert errors[-1] < 1e-3
    for larger, smaller in pairwise(errors):  # what is left out is of second order
        assert smaller == pytest.approx(larger / 10, rel=0.5)


def test_the_realised_gain_is_the_difference_of_torchs_entropies(smooth):
    model, rows, direction = smooth
    ((inputs, _),) = rows.batches(device="cpu", batch_size=40)
    with torch.no_grad():
        still, moved = (
            torch.distributions.Categorical(logits=model(each)).entropy().mean()
            for each in (inputs, inputs + direction)
        )
    gain = theorem_gain(model, rows, delta=direction)
    assert gain.realised == pytest.approx(float(moved - still), rel=1e-10)


def test_no_perturbation_gains_nothing(smooth):
    model, rows, direction = smooth
    assert theorem_gain(model, rows, delta=0 * direction) == EntropyGain(0.0, 0.0)


def test_the_gain_is_the_same_for_any_batch_size_and_leaves_the_network_alone(smooth):
    model, rows, direction = smooth
    before = copy.deepcopy(model.state_dict())
    whole, parts = (theorem_gain(model, LabelledInputs.of(rows, batch_size=size), delta=direction) for size in (40, 7))
    assert whole == pytest.approx(parts, rel=1e-11)
    assert model.training
    assert all(each.requires_grad and each.grad is None for each in model.parameters())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_data_may_be_inputs_alone_a_pair_a_data_set_or_a_loader(smooth):
    model, rows, direction = smooth
    ((inputs, _),) = rows.batches(device="cpu", batch_size=40)
    pairs = TensorDataset(inputs, rows.labels)
    known = theorem_gain(model, rows, delta=direction)
    for data in (inputs, inputs.numpy(), (inputs, rows.labels), pairs, DataLoader(pairs, batch_size=40, shuffle=True)):
        assert theorem_gain(model, data, delta=direction) == known
        assert torch.equal(entropy_gradient(model, data).low, inputs.amin(0))
        assert RandomStart().delta(model, data).shape == (6,)


def test_what_cannot_be_is_refused(answers, smooth):
    model, rows, direction = smooth
    with pytest.raises(InputError, match="temperature must be above 0"):
        lemma_residual(NOTHING, answers, temperature=0.0)
    with pytest.raises(InputError, match="temperature must be above 0"):
        theorem_gain(model, rows, delta=direction, temperature=-1)
    with pytest.raises(InputError, match="shape of one input"):
        theorem_gain(model, rows, delta=direction[:3])
    with pytest.raises(InputError, match="shape of one input"):
        lemma_residual(NOTHING, answers, delta=direction[:3])
    with pytest.raises(InputError, match=r"labels must lie in 0\.\.5, .*; got 6"):
        lemma_residual(NOTHING, (answers[0], answers[1] + 1))
    with pytest.raises(InputError, match=r"must be a tuple \(inputs, labels\)"):
        lemma_residual(NOTHING, answers[0])  # here labels do play a part
    for call in (entropy_gradient, lemma_residual):
        with pytest.raises(InputError, match=r"nn\.Module; got str"):
            call("resnet", answers)

"""Lemma 3.1's condition at the fitted temperature, and Theorem 3.2's promise for ever smaller perturbations."""

import copy
from itertools import pairwise

import pytest
import torch
from torch import nn

from calibrant.calibrators import TemperatureScaling
from calibrant.clamping.rows.calibration_rows import CalibrationRows
from calibrant.clamping.theory.entropy_gain import EntropyGain, lemma_residual, theorem_gain
from calibrant.errors import InputError
from calibrant.predictions import Predictions

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def predictions():
    logits = 3 * torch.randn(2000, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.multinomial((logits / 2.5).softmax(1), 1, generator=torch.Generator().manual_seed(1))[:, 0]
    return Predictions.from_logits(logits, labels)


def test_the_residual_is_zero_at_the_fitted_temperature_and_changes_sign_there(predictions):
    best = float(TemperatureScaling().fit(predictions).temperature)
    assert abs(lemma_residual(predictions, temperature=best)) < 1e-5
    residuals = [lemma_residual(predictions, temperature=best * share) for share in (0.3, 0.7, 0.99, 1.01, 1.5, 4)]
    assert residuals == sorted(residuals)
    assert residuals[2] < -1e-4
    assert residuals[3] > 1e-4


def test_the_residual_over_the_temperature_is_the_slope_of_the_log_loss_against_its_logarithm(predictions):
    temperature = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)
    loss = nn.functional.cross_entropy(predictions.logits / temperature, predictions.labels)
    (slope,) = torch.autograd.grad(loss, temperature)
    assert lemma_residual(predictions, temperature=1.7) / 1.7 == pytest.approx(float(slope * 1.7), rel=1e-10)


def test_the_residual_over_the_temperature_does_not_depend_on_the_logits_scale(predictions):
    one = lemma_residual(predictions, temperature=1.3) / 1.3
    scaled = Predictions.from_logits(10 * predictions.logits, predictions.labels)
    assert lemma_residual(scaled, temperature=13.0) / 13 == pytest.approx(one, rel=1e-12)


def test_a_focal_temperature_does_not_meet_the_lemma(predictions):
    focal = float(TemperatureScaling("focal").fit(predictions).temperature)
    assert lemma_residual(predictions, temperature=focal) > 1e-2


def test_the_residual_of_float32_logits_is_added_up_in_float64(predictions):
    single = Predictions.from_logits(predictions.logits.float(), predictions.labels)
    double = Predictions.from_logits(single.logits.double(), predictions.labels)
    found, known = (lemma_residual(each, temperature=2.0) for each in (single, double))
    assert found == pytest.approx(known, rel=1e-13)


@pytest.fixture(scope="module")
def smooth():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 5)).double()
    inputs = torch.randn(40, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    direction = torch.randn(6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return model, CalibrationRows.of((inputs, torch.arange(40) % 5)), direction


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_the_first_order_gain_becomes_exact_as_the_perturbation_shrinks(smooth, temperature):
    model, rows, direction = smooth
    errors = []
    for size in (1e-1, 1e-2, 1e-3, 1e-4):
        gain = theorem_gain(model, rows, delta=size * direction, temperature=temperature, device=CPU)
        errors.append(abs(gain.realised / gain.predicted - 1))
    assert errors[-1] < 1e-3
    for larger, smaller in pairwise(errors):  # what is left out is of second order
        assert smaller == pytest.approx(larger / 10, rel=0.5)


def test_the_realised_gain_is_the_difference_of_torchs_entropies(smooth):
    model, rows, direction = smooth
    ((inputs, _),) = rows.batches(device=CPU, batch_size=40)
    with torch.no_grad():
        still, moved = (
            torch.distributions.Categorical(logits=model(each)).entropy().mean()
            for each in (inputs, inputs + direction)
        )
    gain = theorem_gain(model, rows, delta=direction, device=CPU)
    assert gain.realised == pytest.approx(float(moved - still), rel=1e-10)


def test_no_perturbation_gains_nothing(smooth):
    model, rows, direction = smooth
    assert theorem_gain(model, rows, delta=0 * direction, device=CPU) == EntropyGain(0.0, 0.0)


def test_the_gain_is_the_same_for_any_batch_size_and_leaves_the_network_alone(smooth):
    model, rows, direction = smooth
    before = copy.deepcopy(model.state_dict())
    whole, parts = (
        theorem_gain(model, CalibrationRows.of(rows, batch_size=size), delta=direction, device=CPU) for size in (40, 7)
    )
    assert whole == pytest.approx(parts, rel=1e-11)
    assert model.training
    assert all(each.requires_grad and each.grad is None for each in model.parameters())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_what_cannot_be_is_refused(predictions, smooth):
    model, rows, direction = smooth
    with pytest.raises(InputError, match="temperature must be above 0"):
        lemma_residual(predictions, temperature=0.0)
    with pytest.raises(InputError, match="temperature must be above 0"):
        theorem_gain(model, rows, delta=direction, temperature=-1, device=CPU)
    with pytest.raises(InputError, match="shape of one input"):
        theorem_gain(model, rows, delta=direction[:3], device=CPU)

"""The toolkit's options: without them it is the library's preset, and each does what it says."""

import dataclasses

import pytest
import torch
from experiments.neural_clamping.toolkit import ToolkitOptions, cut_out, gradient_start, toolkit_clamping
from torch import nn

from calibrant.clamping import NeuralClamping
from calibrant.errors import InputError


@pytest.fixture
def network():
    torch.manual_seed(0)
    made = nn.Sequential(nn.Flatten(), nn.Linear(48, 16), nn.ReLU(), nn.Linear(16, 4)).double().eval()
    made[3].weight.data.mul_(4)
    return made


@pytest.fixture
def data(network):
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(1200, 3, 4, 4, generator=generator, dtype=torch.float64)
    return images, torch.multinomial(network(images + 0.2).softmax(1), 1, generator=generator)[:, 0]


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_without_options_it_is_the_librarys_preset(network, data, gamma):
    method = NeuralClamping.toolkit(gamma=gamma, seed=3)
    expected = dataclasses.replace(method, solver=dataclasses.replace(method.solver, epochs=4)).fit(network, data)
    clamped = toolkit_clamping(network, data, gamma=gamma, epochs=4, seed=3)
    torch.testing.assert_close(clamped.delta, expected.delta, rtol=0, atol=1e-9)
    assert clamped.temperature == pytest.approx(expected.temperature, abs=1e-9)


OPTIONS = (
    ToolkitOptions(optimiser="adamw"),
    ToolkitOptions(dropout=0.5),
    ToolkitOptions(augmentation="crop-flip", cutout=2),
    ToolkitOptions(starts_at_gradient=True),
)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_option_changes_the_result_and_repeats(network, data, options):
    clamped, again = (toolkit_clamping(network, data, options, epochs=2, seed=1) for _ in range(2))
    assert torch.equal(clamped.delta, again.delta)
    assert not torch.equal(clamped.delta, toolkit_clamping(network, data, epochs=2, seed=1).delta)
    assert clamped.summary.settings["options"] == dataclasses.asdict(options)


@pytest.mark.parametrize("options", OPTIONS[:2], ids=str)
def test_with_adamw_or_dropout_the_loss_falls(network, data, options):
    images, labels = data
    clamped = toolkit_clamping(network, data, options, gamma=0.0, epochs=20)
    before, after = (nn.functional.cross_entropy(model(images), labels) for model in (network, clamped))
    assert after < before - 0.001


def test_the_first_step_of_adamw_has_the_length_of_the_rate_after_its_decay(network, data):
    images, labels = data
    few = (images[:800], labels[:800])  # one batch
    start = toolkit_clamping(network, few, epochs=0).delta
    step = toolkit_clamping(network, few, ToolkitOptions(optimiser="adamw"), epochs=1).delta - start * (1 - 0.01 * 0.01)
    torch.testing.assert_close(step.abs(), torch.full_like(step, 0.01), rtol=1e-3, atol=0)


def test_delta_starts_at_the_gradient_where_that_is_asked_for(network, data):
    start = toolkit_clamping(network, data, epochs=0).delta
    clamped = toolkit_clamping(network, data, ToolkitOptions(starts_at_gradient=True), epochs=0)
    torch.testing.assert_close(clamped.delta, gradient_start(network, data, start))
    assert clamped.temperature == 1


def test_the_start_is_the_gradient_of_the_sum_of_the_logits():
    linear = nn.Linear(5, 3).double().eval()
    inputs, labels = torch.randn(50, 5, dtype=torch.float64), torch.zeros(50, dtype=torch.int64)
    start = gradient_start(linear, (inputs, labels), torch.zeros(5, dtype=torch.float64))
    torch.testing.assert_close(start, linear.weight.detach().sum(dim=0))


def test_a_square_is_cut_out_of_each_image():
    images = torch.ones(400, 2, 9, 9)
    cut = cut_out(images, 4, torch.Generator().manual_seed(0))
    gone = (cut == 0).all(dim=1).sum(dim=(1, 2))
    assert int(gone.max()) == 16
    assert int(gone.min()) >= 4  # a square around a corner is inside by a quarter
    assert torch.equal((cut == 0).any(dim=1), (cut == 0).all(dim=1))  # in all channels
    assert len({tuple(each.nonzero()[0].tolist()) for each in (cut == 0).any(dim=1)}) > 10
    assert cut_out(images, 0, torch.Generator()) is images


def test_what_cannot_be_is_refused():
    with pytest.raises(InputError, match="images"):
        cut_out(torch.ones(3, 5), 2, torch.Generator())
    with pytest.raises(InputError, match="optimiser"):
        ToolkitOptions(optimiser="lbfgs")
    with pytest.raises(InputError, match="dropout"):
        ToolkitOptions(dropout=1.0)

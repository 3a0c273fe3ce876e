"""The entropy's gradient against finite differences, and the inputs' bounds against numpy."""

import copy

import numpy as np
import pytest
import torch
from experiments.neural_clamping.theory import mean_entropy
from torch import nn

from calibrant.clamping import entropy_gradient
from calibrant.clamping.start import _drawn
from calibrant.errors import InputError
from calibrant.inference import LabelledInputs

SHAPE = (2, 3, 2)


def smooth_network(*, dropout=0.0):
    torch.manual_seed(0)
    layers = nn.Flatten(), nn.Linear(12, 9), nn.BatchNorm1d(9), nn.Tanh(), nn.Dropout(dropout), nn.Linear(9, 4)
    return nn.Sequential(*layers).double()


def inputs_of(n=50, *, dtype=torch.float64):
    return torch.rand(n, *SHAPE, generator=torch.Generator().manual_seed(1), dtype=dtype)


def unlabelled_samples(inputs, *, batch_size=None):
    return LabelledInputs.of((inputs, torch.arange(len(inputs)) % 4), batch_size=batch_size)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_gradient_is_that_of_finite_differences(temperature):
    model, samples = smooth_network(), unlabelled_samples(inputs_of())
    result = entropy_gradient(model, samples, temperature=temperature)
    step = 1e-5
    slopes = []
    for entry in torch.eye(12, dtype=torch.float64).reshape(12, *SHAPE):
        up, down = (
            mean_entropy(model, samples, delta=sign * step * entry, temperature=temperature) for sign in (1, -1)
        )
        slopes.append(len(samples) * (up - down) / (2 * step))
    torch.testing.assert_close(
        result.gradient.flatten(), torch.tensor(slopes, dtype=torch.float64), rtol=1e-6, atol=1e-7
    )


def test_the_entropy_is_that_of_torchs_distribution():
    model, inputs = smooth_network().eval(), inputs_of()
    with torch.no_grad():
        known = torch.distributions.Categorical(logits=model(inputs) / 2).entropy().mean()
        moved = torch.distributions.Categorical(logits=model(inputs + 0.3) / 2).entropy().mean()
    samples = unlabelled_samples(inputs)
    assert entropy_gradient(model, samples, temperature=2).entropy == pytest.approx(float(known), rel=1e-12)
    delta = torch.full(SHAPE, 0.3)
    assert mean_entropy(model, samples, delta=delta.double(), temperature=2) == pytest.approx(float(moved), rel=1e-12)


@pytest.mark.parametrize("batch_size", [1, 7, 50, 64])
def test_any_batch_size_gives_the_same(batch_size):
    inputs, model = inputs_of(), smooth_network()
    whole = entropy_gradient(model, unlabelled_samples(inputs), quantile=0.1)
    result = entropy_gradient(model, unlabelled_samples(inputs, batch_size=batch_size), quantile=0.1)
    torch.testing.assert_close(result.gradient, whole.gradient, rtol=1e-12, atol=1e-13)
    assert result.entropy == pytest.approx(whole.entropy, rel=1e-13)
    for name in ("low", "high", "low_quantile", "high_quantile"):
        assert torch.equal(getattr(result, name), getattr(whole, name)), name


def test_the_bounds_are_the_extremes_of_each_entry_in_the_inputs_own_type():
    inputs = inputs_of(dtype=torch.float32)
    result = entropy_gradient(smooth_network().float(), unlabelled_samples(inputs, batch_size=9))
    assert torch.equal(result.low, inputs.amin(0))
    assert torch.equal(result.high, inputs.amax(0))
    assert result.low_quantile is result.low
    assert result.high_quantile is result.high
    assert result.gradient.dtype == torch.float64


@pytest.mark.parametrize("quantile", [0.01, 0.1, 0.25, 0.5])
def test_the_quantiles_of_few_samples_are_numpys(quantile):
    inputs = inputs_of()
    result = entropy_gradient(smooth_network(), unlabelled_samples(inputs, batch_size=8), quantile=quantile)
    low = np.quantile(inputs.numpy(), quantile, axis=0, method="lower")
    high = np.quantile(inputs.numpy(), 1 - quantile, axis=0, method="higher")
    np.testing.assert_array_equal(result.low_quantile.numpy(), low)
    np.testing.assert_array_equal(result.high_quantile.numpy(), high)


def test_the_quantiles_of_many_samples_come_from_a_draw_and_are_nearly_right():
    inputs = inputs_of(20_000)
    result = entropy_gradient(smooth_network(), unlabelled_samples(inputs, batch_size=4096), quantile=0.1, seed=3)
    share = (inputs < result.low_quantile).double().mean(0)
    assert (share - 0.1).abs().max() < 5 * (0.1 * 0.9 / 2000) ** 0.5
    share = (inputs > result.high_quantile).double().mean(0)
    assert (share - 0.1).abs().max() < 5 * (0.1 * 0.9 / 2000) ** 0.5
    again = entropy_gradient(smooth_network(), unlabelled_samples(inputs), quantile=0.1, seed=3)
    assert torch.equal(again.low_quantile, result.low_quantile)


def test_of_large_inputs_fewer_samples_are_kept_for_the_quantiles(monkeypatch):
    monkeypatch.setattr("calibrant.clamping.start._SAMPLED_NUMBERS", 12 * 20)
    assert int(_drawn(unlabelled_samples(inputs_of()), 0).sum()) == 20
    monkeypatch.setattr("calibrant.clamping.start._SORTED_NUMBERS", 60)  # sorted in blocks of three entries
    inputs = inputs_of()
    result = entropy_gradient(smooth_network(), unlabelled_samples(inputs), quantile=0.1)
    sample = inputs[_drawn(unlabelled_samples(inputs), 0)]
    np.testing.assert_array_equal(result.low_quantile, np.quantile(sample.numpy(), 0.1, axis=0, method="lower"))


def test_the_network_and_the_inputs_are_as_they_were():
    model, inputs = smooth_network(dropout=0.5), inputs_of()
    model.train()
    model[1].bias.requires_grad_(False)
    before, kept = copy.deepcopy(model.state_dict()), inputs.clone()
    entropy_gradient(model, unlabelled_samples(inputs))
    mean_entropy(model, unlabelled_samples(inputs), delta=torch.ones(SHAPE))
    assert all(module.training for module in model.modules())
    assert [item.requires_grad for item in model.parameters()] == [True, False, True, True, True, True]
    assert all(item.grad is None for item in model.parameters())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(inputs, kept)
    assert not inputs.requires_grad


def test_dropout_and_batch_statistics_play_no_part():
    model, samples = smooth_network(dropout=0.5), unlabelled_samples(inputs_of())
    first, again = (entropy_gradient(model.train(), samples) for _ in range(2))
    still = entropy_gradient(model.eval(), samples)
    assert torch.equal(first.gradient, again.gradient)
    assert torch.equal(first.gradient, still.gradient)


def test_a_network_that_changes_its_input_in_place_does_not_change_the_data():
    model = nn.Sequential(nn.Threshold(0.5, 0.0, inplace=True), smooth_network())
    inputs = inputs_of()
    kept = inputs.clone()
    result = entropy_gradient(model, unlabelled_samples(inputs))
    mean_entropy(model, unlabelled_samples(inputs), delta=torch.zeros(SHAPE))
    assert torch.equal(inputs, kept)
    apart = nn.Sequential(nn.Threshold(0.5, 0.0), model[1])
    assert torch.equal(result.gradient, entropy_gradient(apart, unlabelled_samples(inputs)).gradient)


def test_a_network_that_is_sure_beyond_doubt_has_no_entropy_and_no_nan():
    model = smooth_network()
    with torch.no_grad():
        model[5].weight.mul_(1e5)
    result = entropy_gradient(model, unlabelled_samples(inputs_of()))
    assert result.entropy < 1e-3
    assert result.gradient.isfinite().all()


class _Odd(nn.Module):
    """A network that does with its logits what a function says."""

    def __init__(self, change):
        super().__init__()
        self.inner, self.change = smooth_network(), change

    def forward(self, inputs):
        return self.change(self.inner(inputs))


def test_logits_in_a_tuple_are_found():
    samples = unlabelled_samples(inputs_of())
    odd = entropy_gradient(_Odd(lambda logits: (logits, None)), samples)
    assert torch.equal(odd.gradient, entropy_gradient(smooth_network(), samples).gradient)


def test_logits_that_are_not_finite_are_refused_with_their_sample():
    inputs = inputs_of()
    inputs[31] = 1e200
    model = nn.Sequential(nn.Flatten(), _Odd(lambda logits: logits**2))
    model[1].inner = nn.Linear(12, 4).double()
    for call in (
        lambda: entropy_gradient(model, unlabelled_samples(inputs, batch_size=8)),
        lambda: mean_entropy(model, unlabelled_samples(inputs, batch_size=8), delta=torch.zeros(SHAPE)),
    ):
        with pytest.raises(InputError, match=r"logits must be finite; they are not at row 31"):
            call()


def test_a_network_without_a_gradient_is_refused():
    with pytest.raises(InputError, match="must carry a gradient to its inputs"):
        entropy_gradient(_Odd(torch.Tensor.detach), unlabelled_samples(inputs_of()))


def test_what_is_out_of_range_is_refused():
    model, samples = smooth_network(), unlabelled_samples(inputs_of())
    with pytest.raises(InputError, match="temperature must be above 0"):
        entropy_gradient(model, samples, temperature=0)
    with pytest.raises(InputError, match=r"quantile must be between 0 and 0\.5"):
        entropy_gradient(model, samples, quantile=0.6)
    with pytest.raises(InputError, match=r"shape of one input, \(2, 3, 2\), without a batch axis; got \(1, 2, 3, 2\)"):
        mean_entropy(model, samples, delta=torch.zeros(1, *SHAPE))

"""Theorem 3.2's start against every other δ that it must beat, and what the other starts promise."""

import copy
import json

import pytest
import torch
from experiments.neural_clamping.theory import mean_entropy
from torch import nn

from calibrant.clamping import DataDrivenStart, InputSpace, RandomStart, ZeroStart, entropy_gradient
from calibrant.errors import CalibrantWarning, InputError
from calibrant.inference import LabelledInputs

SHAPE = (3, 2, 2)
SPACE = InputSpace(mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3))
STARTS = (ZeroStart(), RandomStart(), *(DataDrivenStart(eta) for eta in ("theorem", "quantile", "epsilon")))


def smooth_network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 4)).double()


def normalised(pixels):
    mean, std = (torch.tensor(item).reshape(3, 1, 1).to(pixels) for item in (SPACE.mean, SPACE.std))
    return (pixels - mean) / std


def few_images(n=30):
    """Pixels from 0.1 to 0.8, so that every entry has room on both sides."""
    pixels = torch.rand(n, *SHAPE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return normalised(0.1 + 0.7 * pixels)


def full_range_images(dtype=torch.float32):
    """Of 8 bits; every entry is 0 in one image and 255 in another."""
    pixels = torch.randint(256, (30, *SHAPE), generator=torch.Generator().manual_seed(1))
    pixels[4], pixels[9] = 0, 255
    return normalised(pixels.to(dtype) / 255)


def unlabelled_samples(inputs):
    return LabelledInputs.of((inputs, torch.arange(len(inputs)) % 4))


def start_of(start, inputs, *, model=None, space=SPACE, seed=0):
    model = smooth_network().to(inputs.dtype) if model is None else model
    return start.delta(model, unlabelled_samples(inputs), space=space, seed=seed)


def test_the_theorems_start_is_sign_times_eta_written_out():
    inputs = few_images()
    gradient = entropy_gradient(smooth_network(), unlabelled_samples(inputs)).gradient
    delta = start_of(DataDrivenStart(), inputs)
    edges = [((edge - torch.tensor(SPACE.mean).double()) / torch.tensor(SPACE.std).double()) for edge in (0, 1)]
    for place in torch.cartesian_prod(*map(torch.arange, SHAPE)).tolist():
        channel, entry = place[0], tuple(place)
        values = [float(row[entry]) for row in inputs]
        if gradient[entry] < 0:
            known = -(min(values) - float(edges[0][channel]))
        else:
            known = float(edges[1][channel]) - max(values)
        assert float(delta[entry]) == pytest.approx(known, rel=1e-6), entry


def test_no_feasible_perturbation_promises_more_entropy():
    inputs = few_images()
    result = entropy_gradient(smooth_network(), unlabelled_samples(inputs))
    best = start_of(DataDrivenStart(), inputs)
    alpha, beta = SPACE.bounds(inputs[0])
    promised = float((best * result.gradient).sum())
    assert promised == pytest.approx(float((result.gradient.abs() * best.abs()).sum()), rel=1e-12)
    lowest, highest = alpha - inputs.amin(0), beta - inputs.amax(0)  # what keeps every sample inside
    generator = torch.Generator().manual_seed(2)
    for _ in range(200):
        share = torch.rand(SHAPE, generator=generator, dtype=torch.float64)
        share = share.round() if share[0, 0, 0] < 0.5 else share  # half of them at corners of what is feasible
        rival = lowest + share * (highest - lowest)
        moved = inputs + rival
        assert (moved >= alpha - 1e-12).all()
        assert (moved <= beta + 1e-12).all()
        assert float((rival * result.gradient).sum()) <= promised


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_sample_stays_inside_the_box(dtype):
    inputs = few_images().to(dtype)
    delta = start_of(DataDrivenStart(), inputs)
    assert delta.dtype == dtype
    pixels = SPACE.pixels(inputs + delta)
    assert pixels.min() > -1e-6
    assert pixels.max() < 1 + 1e-6
    # and goes as far as it can
    ends = torch.minimum(pixels.amin(0), 1 - pixels.amax(0)).abs()
    assert ends.max() < 1e-6


def test_an_entry_that_the_entropy_does_not_depend_on_stays():
    model = smooth_network()
    with torch.no_grad():
        model[1].weight[:, 5] = 0
    for start in (DataDrivenStart(), DataDrivenStart("quantile"), DataDrivenStart("epsilon")):
        delta = start_of(start, few_images(), model=model).flatten()
        assert delta[5] == 0
        assert (delta != 0).sum() == 11


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_where_every_pixel_reaches_both_ends_the_start_is_zero_and_warns(dtype):
    with pytest.warns(CalibrantWarning, match="start is δ = 0, that of temperature scaling, because every entry"):
        delta = start_of(DataDrivenStart(), full_range_images(dtype))
    assert torch.equal(delta, torch.zeros(SHAPE, dtype=dtype))
    with pytest.warns(CalibrantWarning, match="start is δ = 0"):  # normalised in float32, and only then made float64
        start_of(DataDrivenStart(), full_range_images().double())


def test_where_the_entropy_does_not_change_the_start_is_zero_and_warns():
    model = smooth_network()
    with torch.no_grad():
        model[3].weight.zero_()
    for eta in ("theorem", "quantile", "epsilon"):
        with pytest.warns(CalibrantWarning, match="entropy does not change with the inputs at all"):
            delta = start_of(DataDrivenStart(eta), few_images(), model=model)
        assert not delta.any()


def test_the_quantile_start_moves_where_the_theorem_cannot_and_only_the_share_leaves_the_box():
    inputs = full_range_images()
    delta = start_of(DataDrivenStart("quantile", quantile=0.1), inputs)
    assert (delta != 0).all()
    pixels = SPACE.pixels(inputs + delta)
    outside = ((pixels < -1e-6) | (pixels > 1 + 1e-6)).double().mean(0)
    assert 0 < outside.max() <= 0.1
    few = few_images()
    assert (start_of(DataDrivenStart("quantile"), few).abs() >= start_of(DataDrivenStart(), few).abs() - 1e-12).all()


def test_the_quantile_start_without_a_space_takes_the_range_of_the_samples_as_the_box():
    inputs = few_images()
    delta = start_of(DataDrivenStart("quantile", quantile=0.2), inputs, space=None)
    gradient = entropy_gradient(smooth_network(), unlabelled_samples(inputs)).gradient
    ordered = inputs.sort(dim=0).values
    beyond = int(0.2 * 29)
    known = torch.where(gradient < 0, ordered[0] - ordered[beyond], ordered[-1] - ordered[-1 - beyond])
    torch.testing.assert_close(delta, known, rtol=1e-12, atol=1e-14)


def test_the_epsilon_start_is_a_step_along_the_sign_but_no_longer_than_the_box():
    inputs = full_range_images(torch.float64)
    gradient = entropy_gradient(smooth_network(), unlabelled_samples(inputs)).gradient
    for space in (SPACE, None):
        delta = start_of(DataDrivenStart("epsilon", epsilon=1e-9), inputs, space=space)
        assert torch.equal(delta, gradient.sign() * 1e-9)
    far = start_of(DataDrivenStart("epsilon", epsilon=100.0), inputs)
    torch.testing.assert_close(far, gradient.sign() / torch.tensor(SPACE.std).reshape(3, 1, 1))


@pytest.mark.parametrize("eta", ["quantile", "epsilon"])
def test_small_steps_of_the_other_options_raise_the_entropy(eta):
    inputs, model = full_range_images(torch.float64), smooth_network()
    delta = start_of(DataDrivenStart(eta, quantile=0.05), inputs)
    still, moved = (mean_entropy(model, unlabelled_samples(inputs), delta=d) for d in (0 * delta, delta / 10))
    assert moved > still


def test_the_theorem_needs_a_space():
    with pytest.raises(InputError, match="space must give the range"):
        start_of(DataDrivenStart(), few_images(), space=None)


@pytest.mark.parametrize("eta", ["theorem", "quantile", "epsilon"])
@pytest.mark.parametrize("value", [-0.2, 1.2])
def test_inputs_outside_the_box_are_refused_with_their_entry(eta, value):
    pixels = torch.full((6, *SHAPE), 0.5, dtype=torch.float64)
    pixels[3, 1, 0, 1] = value
    with pytest.raises(InputError, match=r"range, -2 to 2 as .*; got -?2\.8 at entry \(1, 0, 1\)\. Give the low"):
        start_of(DataDrivenStart(eta), normalised(pixels))


def test_the_random_start_is_even_within_its_scale_and_follows_the_seed():
    inputs = torch.zeros(2, 1, 100, 100)
    delta = start_of(RandomStart(0.05), inputs, seed=1, space=None)
    assert delta.shape == (1, 100, 100)
    assert delta.dtype == torch.float32
    assert delta.abs().max() <= 0.05
    shares = torch.histc(delta, 10, min=-0.05, max=0.05) / 10_000
    assert (shares - 0.1).abs().max() < 5 * (0.1 * 0.9 / 10_000) ** 0.5
    assert torch.equal(delta, start_of(RandomStart(0.05), inputs, seed=1, space=None))
    assert not torch.equal(delta, start_of(RandomStart(0.05), inputs, seed=2, space=None))


def test_the_zero_start_is_zero():
    assert torch.equal(start_of(ZeroStart(), few_images()), torch.zeros(SHAPE, dtype=torch.float64))


@pytest.mark.parametrize("start", STARTS)
def test_the_network_is_as_it_was_and_no_random_number_is_taken(start):
    model = smooth_network().train()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    start_of(start, few_images(), model=model)
    assert model.training
    assert all(item.requires_grad and item.grad is None for item in model.parameters())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("start", STARTS)
def test_the_settings_say_which_start_it_was(start):
    settings = json.loads(json.dumps(start.settings()))
    kind = {item.name: type(item) for item in STARTS}[settings.pop("name")]
    assert kind(**settings) == start


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomStart(0), "scale must be above 0"),
        (lambda: DataDrivenStart("teorem"), "eta must be one of theorem, quantile, epsilon.*Did you mean theorem"),
        (lambda: DataDrivenStart(quantile=0), "quantile must be above 0"),
        (lambda: DataDrivenStart(quantile=0.7), r"quantile must be between 0 and 0\.5"),
        (lambda: DataDrivenStart(epsilon=-1), "epsilon must be above 0"),
    ],
)
def test_options_out_of_range_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()

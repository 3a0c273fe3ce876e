"""The variant without a descent: on a network that has learned the digits, and against its parts by hand."""

import contextlib
import copy

import pytest
import torch
from experiments.neural_clamping.theory import efficient_clamping, lemma_residual, theorem_gain
from torch import nn

from calibrant.calibrators import StructuredVectorScaling, TemperatureScaling
from calibrant.clamping import DataDrivenStart, InputSpace, RandomStart, ZeroStart
from calibrant.datasets import load_digits
from calibrant.errors import CalibrantWarning, InputError
from calibrant.predictions import Predictions

SPACE = InputSpace()


@pytest.fixture(scope="module")
def digits():
    """A network over-fitted to 600 digits, with noise so that some are wrong; and 600 others."""
    torch.manual_seed(0)
    images, labels = load_digits()
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Dropout(0.2), nn.Linear(32, 10))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(80):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images[:600] + 0.1 * torch.randn(600, 1, 8, 8)), labels[:600]).backward()
        optimiser.step()
    optimiser.zero_grad()
    return model.eval(), images[600:1200], labels[600:1200]


def test_the_digits_network_is_clamped_by_the_theorem_and_its_temperature_is_exact(digits):
    model, images, labels = digits
    clamped = efficient_clamping(model, (images, labels), space=SPACE)
    # Pixels that are white nowhere may be made whiter, and black ones that are black everywhere cannot go down.
    assert clamped.delta.any()
    moved = images + clamped.delta
    assert moved.min() > -1e-6
    assert moved.max() < 1 + 1e-6
    with torch.no_grad():
        logits = model(moved)
        torch.testing.assert_close(clamped(images), logits / clamped.temperature, rtol=1e-6, atol=1e-6)
    residual = lemma_residual(model, (images, labels), delta=clamped.delta, temperature=clamped.temperature)
    assert abs(residual) < 1e-4


def test_small_steps_along_the_digits_start_gain_the_entropy_that_is_promised(digits):
    model, images, labels = digits
    start = efficient_clamping(model, (images, labels), space=SPACE).delta
    gain = theorem_gain(model, images, delta=start / 1000)
    assert gain.predicted > 0
    assert gain.realised == pytest.approx(gain.predicted, rel=0.05)


def test_without_a_perturbation_it_is_the_head_alone(digits):
    model, images, labels = digits
    clamped = efficient_clamping(model, (images, labels), space=None, start=ZeroStart())
    with torch.no_grad():
        known = TemperatureScaling().fit(Predictions.from_logits(model.eval()(images), labels))
    assert clamped.temperature == pytest.approx(float(known.temperature), rel=1e-5)
    assert clamped.summary.strength == float("inf")


def test_any_head_can_stand_behind_it(digits):
    model, images, labels = digits
    head = StructuredVectorScaling()
    clamped = efficient_clamping(model, (images, labels), space=SPACE, head=head, start=DataDrivenStart("epsilon"))
    with torch.no_grad():
        known = head.fit(Predictions.from_logits(model.eval()(images + clamped.delta), labels))
        torch.testing.assert_close(clamped(images), known(model(images + clamped.delta)), rtol=1e-4, atol=1e-4)


def test_a_space_that_clips_is_clipped_for_the_head_too(digits):
    model, images, labels = digits
    space = InputSpace(clips=True)
    clamped = efficient_clamping(
        model, (images, labels), space=space, start=DataDrivenStart("epsilon", epsilon=0.3), seed=1
    )
    assert abs(lemma_residual(clamped, (images, labels))) < 1e-4
    assert not torch.equal((images + clamped.delta).clamp(0, 1), images + clamped.delta)


def test_the_summary_tells_how_it_came_about(digits):
    model, images, labels = digits
    clamped = efficient_clamping(
        model,
        (images, labels),
        space=None,
        head=TemperatureScaling("focal", gamma=0.5),
        start=RandomStart(0.02),
        seed=7,
    )
    summary = clamped.summary
    assert summary.settings["method"] == "efficient"
    head = {"method": "temperature", "criterion": "focal", "gamma": 0.5, "n_bins": 15, "value": None}
    assert summary.settings["head"] == head
    assert summary.settings["start"] == {"name": "random", "scale": 0.02}
    assert summary.settings["seed"] == 7
    assert (summary.n_samples, summary.strength, summary.gamma, summary.certificate) == (600, 0.0, 0.5, None)
    assert summary.seconds > 0
    assert clamped.head.summary.certificate is not None
    assert summary.notes[0].startswith("δ was not learned: it is the random start, with the head fitted")


def test_what_the_start_warns_of_is_noted():
    torch.manual_seed(0)
    images = torch.rand(60, 1, 4, 4)
    images[0], images[1] = 0, 1
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).eval()
    labels = torch.multinomial(model(images).softmax(1), 1)[:, 0]
    with pytest.warns(CalibrantWarning, match="start is δ = 0"):
        clamped = efficient_clamping(model, (images, labels), space=SPACE)
    assert any("start is δ = 0" in note for note in clamped.summary.notes)


def test_weights_and_what_is_to_be_trained_are_as_they_were(digits):
    model = copy.deepcopy(digits[0])
    model[1].bias.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    efficient_clamping(model, digits[1:], space=SPACE)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert [each.requires_grad for each in model.parameters()] == [True, False, True, True]
    assert all(each.grad is None for each in model.parameters())


@pytest.mark.parametrize("mode", [True, False])
def test_the_network_is_left_in_its_mode_and_the_answer_is_that_of_evaluation_mode(digits, mode):
    model, *data = copy.deepcopy(digits[0]).train(mode), *digits[1:]
    said = pytest.warns(CalibrantWarning, match="training mode, and stays so") if mode else contextlib.nullcontext()
    with said:
        clamped = efficient_clamping(model, tuple(data), space=SPACE)
    assert all(module.training == mode for module in clamped.modules())
    assert any("training mode" in note for note in clamped.summary.notes) == mode
    known = efficient_clamping(digits[0], tuple(data), space=SPACE)
    assert torch.equal(clamped.eval()(data[0]), known(data[0]))


def test_inputs_outside_the_space_are_refused_whatever_the_start(digits):
    model, images, labels = digits
    for start in (ZeroStart(), RandomStart(), DataDrivenStart()):
        with pytest.raises(InputError, match=r"inputs must lie in the space's range, 0 to 0\.5"):
            efficient_clamping(model, (images, labels), space=InputSpace(high=0.5), start=start)


def test_samples_come_in_batches_of_the_size_given_and_the_result_is_the_same(digits):
    model, images, labels = digits
    seen = []
    watched = nn.Sequential(nn.Identity(), model).eval()
    watched[0].register_forward_hook(lambda _module, inputs, _output: seen.append(len(inputs[0])))
    clamped = efficient_clamping(watched, (images, labels), space=SPACE, batch_size=70)
    assert max(seen) == 70
    known = efficient_clamping(model, (images, labels), space=SPACE)
    assert torch.equal(clamped.delta, known.delta)
    assert clamped.temperature == pytest.approx(known.temperature, rel=1e-5)
    with pytest.raises(InputError, match="batch_size must be at least 1"):
        efficient_clamping(model, (images, labels), space=SPACE, batch_size=0)


def test_a_failed_fit_leaves_the_network_in_its_mode(digits):
    model = copy.deepcopy(digits[0]).train()
    with (
        pytest.raises(InputError, match=r"labels must lie in 0\.\.9"),
        pytest.warns(CalibrantWarning, match="training mode"),
    ):
        efficient_clamping(model, (digits[1], digits[2] + 5), space=SPACE)
    assert all(module.training for module in model.modules())
    assert all(each.requires_grad for each in model.parameters())


def test_words_for_methods_are_refused(digits):
    model, images, labels = digits
    with pytest.raises(InputError, match="head must be a Calibrator; got 'temperature'"):
        efficient_clamping(model, (images, labels), space=SPACE, head="temperature")
    with pytest.raises(InputError, match="start must be a Start"):
        efficient_clamping(model, (images, labels), space=SPACE, start="random")
    with pytest.raises(InputError, match="space must be an InputSpace"):
        efficient_clamping(model, (images, labels), space="pixels")

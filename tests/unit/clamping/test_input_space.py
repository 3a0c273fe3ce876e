"""Pixels and network inputs: bounds, the way back, and what is refused."""

import json
import math

import pytest
import torch

from calibrant.clamping import InputSpace
from calibrant.errors import InputError
from calibrant.inference import LabelledInputs

CIFAR = InputSpace(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616))


def normalised(pixels, space):
    """Each channel on its own, in the words of the definition."""
    return torch.stack([(pixels[c] - space.mean[c]) / space.std[c] for c in range(len(space.mean))])


def test_the_bounds_are_what_a_black_and_a_white_picture_become():
    low, high = CIFAR.bounds(torch.zeros(3, 4, 5, dtype=torch.float64))
    torch.testing.assert_close(low, normalised(torch.zeros(3, 4, 5, dtype=torch.float64), CIFAR))
    torch.testing.assert_close(high, normalised(torch.ones(3, 4, 5, dtype=torch.float64), CIFAR))


def test_bounds_without_a_normalisation_are_the_range_itself():
    low, high = InputSpace(low=0, high=255).bounds(torch.zeros(2, 3))
    assert torch.equal(low, torch.zeros(2, 3))
    assert torch.equal(high, torch.full((2, 3), 255.0))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(3,), (3, 7), (3, 4, 5), (3, 2, 4, 5)])
def test_bounds_have_the_shape_and_type_of_what_they_are_for_and_memory_of_their_own(shape, dtype):
    for edge in CIFAR.bounds(torch.ones(shape, dtype=dtype)):
        assert edge.shape == shape
        assert edge.dtype == dtype
        assert edge.is_contiguous()
        edge.add_(1)  # refused where entries share memory


def test_one_entry_is_for_all_channels_and_may_stand_beside_several():
    one = InputSpace(mean=(0.5,), std=(0.25,)).bounds(torch.zeros(3, 2, 2))
    three = InputSpace(mean=(0.5, 0.5, 0.5), std=(0.25,)).bounds(torch.zeros(3, 2, 2))
    assert all(torch.equal(a, b) for a, b in zip(one, three, strict=True))


# Vectors, series, images and clips; of some, another axis is as long as that of the channels.
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 7), (2, 3, 3), (3, 3, 4, 5), (2, 3, 3, 3), (6, 3, 2, 4, 5)])
def test_pixels_are_what_was_normalised_with_channels_at_dim_1_whatever_follows(shape):
    pixels = torch.rand(shape, generator=torch.manual_seed(0), dtype=torch.float64)
    batch = torch.stack([normalised(one, CIFAR) for one in pixels])
    torch.testing.assert_close(CIFAR.pixels(batch), pixels)
    low, high = CIFAR.bounds(batch[0])  # of one input, the same channels at dim 0
    torch.testing.assert_close(CIFAR.pixels(low[None]), torch.zeros_like(pixels[:1]))
    torch.testing.assert_close(CIFAR.pixels(high[None]), torch.ones_like(pixels[:1]))


def test_pixels_of_half_precision_come_in_float32():
    assert CIFAR.pixels(torch.zeros(1, 3, 2, 2, dtype=torch.bfloat16)).dtype == torch.float32


def test_settings_are_plain_json_and_come_back_equal():
    for space in (InputSpace(), InputSpace(low=-1, high=2, mean=[0.5], std=(0.25,), clips=True), CIFAR):
        assert InputSpace.from_settings(json.loads(json.dumps(space.settings()))) == space
    assert isinstance(InputSpace(mean=[0.5]).mean, tuple)
    assert hash(InputSpace(mean=[0.5])) == hash(InputSpace(mean=(0.5,)))


def test_settings_with_other_names_are_refused():
    for settings in ({"low": 0.0}, InputSpace().settings() | {"peak": 255}):
        with pytest.raises(InputError, match="must have low, high, mean, std, clips"):
            InputSpace.from_settings(settings)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"low": 1.0}, "below high; got 1 and 1"),
        ({"low": 2.0}, "below high"),
        ({"low": math.nan}, "low must be a finite number; got nan"),
        ({"high": math.inf}, "high must be a finite number"),
        ({"high": True}, "high must be a finite number"),
        ({"high": "1"}, "high must be a finite number"),
        ({"mean": 0.5}, "mean must be a tuple"),
        ({"mean": ()}, "must have a number for each"),
        ({"mean": (0.5, math.nan)}, "each of mean must be a finite number"),
        ({"std": (0.5, 0.0)}, "each of std must be above 0"),
        ({"std": (-1.0,)}, "each of std must be above 0"),
        ({"mean": (0.5, 0.5), "std": (1.0, 1.0, 1.0)}, "same channels.*got 2 and 3"),
        ({"clips": "no"}, "clips must be True or False"),
    ],
)
def test_what_makes_no_space_is_refused(options, text):
    with pytest.raises(InputError, match=text):
        InputSpace(**options)


def test_inputs_of_other_channels_or_of_whole_numbers_are_refused():
    with pytest.raises(InputError, match=r"normalisation, 3, at dim 0; got 1 \(shape \(1, 8, 8\)\)"):
        CIFAR.bounds(torch.zeros(1, 8, 8))
    with pytest.raises(InputError, match="at dim 1; got 1"):
        CIFAR.pixels(torch.zeros(3, 1, 8, 8))
    with pytest.raises(InputError, match=r"at dim 1; got 8 \(shape \(3, 8, 8\)\)"):
        CIFAR.pixels(torch.zeros(3, 8, 8))
    with pytest.raises(InputError, match=r"batch, \(n, c, \.\.\.\); got shape \(3,\)\. For one"):
        CIFAR.pixels(torch.zeros(3))
    with pytest.raises(InputError, match="got 0"):
        InputSpace().bounds(torch.tensor(0.0))
    with pytest.raises(InputError, match="floating point"):
        CIFAR.bounds(torch.zeros(3, 8, 8, dtype=torch.uint8))


def test_inputs_beyond_the_range_are_refused_by_entry_and_by_sample_where_samples_have_names():
    space, inputs = InputSpace(mean=(0.5, 0.5), std=(0.25, 0.5)), torch.zeros(2, 2, 3)
    space.check_inside(inputs)
    inputs[0, 0, 1], inputs[1, 1, 2] = 2 * (1 + 5e-6), -1 * (1 + 5e-6)  # what normalising may leave
    space.check_inside(inputs)
    inputs[1, 1, 2] = -1.5
    with pytest.raises(
        InputError, match=r"range, -1 to 1 as .* got -1\.5 at entry \(1, 2\)\. Give the low, high, mean"
    ):
        space.check_inside(inputs)
    with pytest.raises(InputError, match=r"got -1\.5 at row 40 \(counting from 0\), entry \(1, 2\)"):
        space.check_inside(inputs, torch.tensor([30, 40]))


def refusal(space, samples):
    with pytest.raises(InputError) as caught:
        space.check_samples(samples)
    return str(caught.value)


class TestSamples:
    def test_inputs_of_8_bits_normalised_in_any_precision_lie_inside(self):
        pixels = torch.arange(256).reshape(256, 1, 1, 1) / 255
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            inputs = ((pixels - 0.4914) / 0.2023).to(dtype)
            data = LabelledInputs.of((inputs, torch.arange(256) % 2))
            InputSpace(mean=(0.4914,), std=(0.2023,)).check_samples(data)

    @pytest.mark.parametrize("step", [-1, 1])
    def test_one_pixel_a_step_of_8_bits_outside_is_found_wherever_it_is(self, step):
        inputs = torch.rand(50, 3, 4, 4, generator=torch.Generator().manual_seed(0))
        inputs[37, 2, 1, 3] = 1 + 1 / 255 if step > 0 else -1 / 255
        data = LabelledInputs.of((inputs, torch.arange(50) % 2), batch_size=8)
        message = refusal(InputSpace(), data)
        value = "1.004" if step > 0 else "-0.003922"
        assert message == (
            f"inputs must lie in the space's range, 0 to 1 as the network takes them; got {value} at row 37 "
            "(counting from 0), entry (2, 1, 3). Give the low, high, mean and std of these inputs."
        )

    def test_inputs_that_were_not_normalised_are_refused(self):
        data = LabelledInputs.of((torch.rand(50, 3, 4, 4) * 255, torch.arange(50) % 2))
        assert "at row 0 (counting from 0), entry" in refusal(InputSpace(), data)

    def test_a_normalisation_of_other_channels_is_refused(self):
        data = LabelledInputs.of((torch.rand(20, 4), torch.arange(20) % 3))
        message = refusal(InputSpace(mean=(0.1, 0.2, 0.3)), data)
        assert "must have the channels of the normalisation, 3, at dim 0; got 4" in message

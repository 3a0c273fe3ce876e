"""Inputs on their way to the network: shifted and mirrored as by padding and cropping, then x + δ, clipped."""

import pytest
import torch
from torch.nn import functional as F

from calibrant.clamping import InputSpace
from calibrant.clamping.inputs import InputPreparation
from calibrant.errors import InputError


def augmented(inputs, kind, generator, space):
    return InputPreparation(space, kind).augmented(inputs, generator)


def chance(seed=0):
    return torch.Generator().manual_seed(seed)


def images(n=200, side=8, channels=2):
    return torch.rand(n, channels, side, side, generator=chance(5), dtype=torch.float64) + 1


def candidates(image, most, border=0.0):
    """Every shift of an image, and then every one mirrored, {(down, right, is_mirrored): image}."""
    padded = F.pad(image, (most,) * 4, value=border)
    side = image.shape[-1]
    result = {}
    for down in range(2 * most + 1):
        for right in range(2 * most + 1):
            shifted = padded[:, down : down + side, right : right + side]
            result[down, right, False], result[down, right, True] = shifted, shifted.flip(-1)
    return result


def fates(inputs, given, most, border=0.0):
    """What became of each image."""
    message = []
    for before, after in zip(inputs, given, strict=True):
        every = candidates(before, most, border)
        gaps = (torch.stack(list(every.values())) - after).abs().amax(dim=(1, 2, 3))
        (fate,) = (gaps < 1e-12).nonzero()[:, 0].tolist()
        message.append(list(every)[fate])
    return message


@pytest.mark.parametrize(("side", "most"), [(8, 1), (32, 4), (40, 4)])
@pytest.mark.parametrize("kind", ["crop", "crop-flip"])
def test_every_image_is_one_of_its_shifts_and_every_shift_occurs(kind, side, most):
    inputs = images(300 if most == 1 else 40, side, channels=1)
    message = fates(inputs, augmented(inputs, kind, chance(), None), most)
    share = sum(mirrored for *_, mirrored in message) / len(message)
    assert share == 0 if kind == "crop" else 0.3 < share < 0.7
    if most == 1:
        shifts = {(down, right) for down, right, _ in message}
        assert len(shifts) == 9


def test_the_border_is_the_lowest_pixel_as_the_network_takes_it():
    space = InputSpace(mean=(0.5, 0.25), std=(0.1, 0.5))
    inputs = images(40)
    given = augmented(inputs, "crop", chance(), space)
    for channel, lowest in enumerate((-5.0, -0.5)):
        message = fates(inputs[:, [channel]], given[:, [channel]], 1, border=lowest)
        assert len(set(message)) > 5


def test_the_channels_of_an_image_stay_together():
    inputs = images(30)
    message = [
        fates(inputs[:, [channel]], augmented(inputs, "crop-flip", chance(), None)[:, [channel]], 1)
        for channel in (0, 1)
    ]
    assert message[0] == message[1]


def test_a_sample_meets_the_same_fate_in_batches_of_any_size():
    inputs = images(100)
    whole = augmented(inputs, "crop-flip", chance(), None)
    for size in (1, 7, 33):
        generator = chance()
        parts = [augmented(part, "crop-flip", generator, None) for part in inputs.split(size)]
        assert torch.equal(torch.cat(parts), whole)


def test_the_seed_decides_and_the_images_given_are_not_changed():
    inputs = images(50)
    before = inputs.clone()
    first, again, other = (augmented(inputs, "crop-flip", chance(seed), None) for seed in (0, 0, 1))
    assert torch.equal(inputs, before)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_very_small_image_is_not_shifted():
    inputs = images(20, side=4)
    assert torch.equal(augmented(inputs, "crop", chance(), None), inputs)


@pytest.mark.parametrize("shape", [(5, 3), (5, 3, 8), (5, 1, 3, 8, 8)])
def test_only_images_can_be_shifted(shape):
    with pytest.raises(InputError, match=r"only images, \(n, c, h, w\), can be shifted; got inputs of shape"):
        augmented(torch.zeros(shape), "crop", chance(), None)


INPUTS = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
DELTA = torch.linspace(-2, 2, 64).reshape(1, 8, 8)


def test_delta_is_added_and_nothing_else_done():
    assert torch.equal(InputPreparation().add_delta(INPUTS, DELTA), INPUTS + DELTA)
    assert torch.equal(InputPreparation(InputSpace()).add_delta(INPUTS, DELTA), INPUTS + DELTA)


def test_a_space_that_clips_brings_pixels_back_to_its_range():
    space = InputSpace(mean=(0.5,), std=(0.25,), clips=True)
    normalised = (INPUTS - 0.5) / 0.25
    pixels = InputPreparation(space).add_delta(normalised, DELTA) * 0.25 + 0.5
    assert torch.allclose(pixels, (INPUTS + 0.25 * DELTA).clamp(0, 1), atol=1e-6)


def test_delta_takes_the_type_of_the_inputs():
    assert InputPreparation().add_delta(INPUTS.half(), DELTA).dtype == torch.float16


def test_neither_inputs_nor_delta_are_changed():
    before = INPUTS.clone(), DELTA.clone()
    InputPreparation(InputSpace(clips=True)).add_delta(INPUTS, DELTA).zero_()
    assert torch.equal(INPUTS, before[0])
    assert torch.equal(DELTA, before[1])


def test_samples_that_are_not_augmented_are_seen_once_and_as_they_are():
    preparation = InputPreparation(views=7)
    assert preparation.n_views == 1
    assert preparation.augmented(INPUTS, preparation.generator(0)) is INPUTS


def test_augmented_samples_are_seen_in_several_views():
    preparation = InputPreparation(augmentation="crop-flip", views=7, seed=3)
    assert preparation.n_views == 7
    views = [preparation.augmented(INPUTS, preparation.generator(view)) for view in (0, 1, 0)]
    assert torch.equal(views[0], views[2])
    assert not torch.equal(views[0], views[1])


def test_draws_differ_between_views_and_seeds():
    drawn = [
        tuple(torch.rand(3, generator=InputPreparation(seed=seed).generator(view)).tolist())
        for seed in range(3)
        for view in range(50)
    ]
    assert len(set(drawn)) == 150


def test_the_draws_of_large_seeds_can_be_had_and_those_of_small_ones_are_what_they_were():
    for seed in (2**45, 2**63 - 1):
        draws = {float(torch.rand((), generator=InputPreparation(seed=seed).generator(number))) for number in range(4)}
        assert len(draws) == 4
    assert InputPreparation(seed=3).generator(2).initial_seed() == 300_011

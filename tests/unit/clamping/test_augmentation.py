"""Shifted and mirrored images are those that padding and cropping give, whatever the batches."""

import pytest
import torch
from torch.nn import functional as F

from calibrant.clamping import InputSpace
from calibrant.clamping.inputs import augmented
from calibrant.errors import InputError


def chance(seed=0):
    return torch.Generator().manual_seed(seed)


def images(n=200, side=8, channels=2):
    return torch.rand(n, channels, side, side, generator=chance(5), dtype=torch.float64) + 1


def candidates(image, most, border=0.0):
    """Every shift of an image, and then every one mirrored, {(down, right, is_mirrored): image}."""
    padded = F.pad(image, (most,) * 4, value=border)
    side = image.shape[-1]
    found = {}
    for down in range(2 * most + 1):
        for right in range(2 * most + 1):
            shifted = padded[:, down : down + side, right : right + side]
            found[down, right, False], found[down, right, True] = shifted, shifted.flip(-1)
    return found


def fates(inputs, given, most, border=0.0):
    """What became of each image."""
    told = []
    for before, after in zip(inputs, given, strict=True):
        every = candidates(before, most, border)
        gaps = (torch.stack(list(every.values())) - after).abs().amax(dim=(1, 2, 3))
        (fate,) = (gaps < 1e-12).nonzero()[:, 0].tolist()
        told.append(list(every)[fate])
    return told


@pytest.mark.parametrize(("side", "most"), [(8, 1), (32, 4), (40, 4)])
@pytest.mark.parametrize("kind", ["crop", "crop-flip"])
def test_every_image_is_one_of_its_shifts_and_every_shift_occurs(kind, side, most):
    inputs = images(300 if most == 1 else 40, side, channels=1)
    told = fates(inputs, augmented(inputs, kind, chance(), None), most)
    share = sum(mirrored for *_, mirrored in told) / len(told)
    assert share == 0 if kind == "crop" else 0.3 < share < 0.7
    if most == 1:
        shifts = {(down, right) for down, right, _ in told}
        assert len(shifts) == 9


def test_the_border_is_the_lowest_pixel_as_the_network_takes_it():
    space = InputSpace(mean=(0.5, 0.25), std=(0.1, 0.5))
    inputs = images(40)
    given = augmented(inputs, "crop", chance(), space)
    for channel, lowest in enumerate((-5.0, -0.5)):
        told = fates(inputs[:, [channel]], given[:, [channel]], 1, border=lowest)
        assert len(set(told)) > 5


def test_the_channels_of_an_image_stay_together():
    inputs = images(30)
    told = [
        fates(inputs[:, [channel]], augmented(inputs, "crop-flip", chance(), None)[:, [channel]], 1)
        for channel in (0, 1)
    ]
    assert told[0] == told[1]


def test_a_row_meets_the_same_fate_in_batches_of_any_size():
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

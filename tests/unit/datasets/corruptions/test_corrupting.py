"""What holds for every corruption, found in the table: a new one is tested without anyone remembering."""

import dataclasses

import numpy as np
import pytest
import torch

from calibrant.datasets import DigitsReader, corruptions
from calibrant.datasets.corruptions import CORRUPTIONS, corrupt
from calibrant.errors import InputError, UnknownNameError

NAMES = [
    *("brightness", "contrast", "defocus_blur", "gaussian_blur", "gaussian_noise", "impulse_noise"),
    *("jpeg_compression", "motion_blur", "pixelate", "shot_noise"),
]
DRAWN = {"gaussian_noise", "impulse_noise", "motion_blur", "shot_noise"}
every = pytest.mark.parametrize("name", NAMES)


def distance(images, others):
    return float((images.double() - others.double()).square().mean())


def test_every_corruption_is_there_under_its_name():
    assert list(CORRUPTIONS) == NAMES
    assert all(corruption.name == name for name, corruption in CORRUPTIONS.items())


@every
def test_a_corruption_is_a_frozen_record_with_five_ordered_strengths(name):
    corruption = CORRUPTIONS[name]
    with pytest.raises(dataclasses.FrozenInstanceError):
        corruption.other = 1
    assert corruption.title
    assert corruption.unit
    assert corruption.paper.year == 2019
    steps = np.diff(corruption.strengths)
    assert len(steps) == 4
    assert (steps > 0).all() or (steps < 0).all()


@every
def test_severity_0_leaves_images_as_they_are_in_a_new_tensor(name, photos):
    same = corrupt(photos, name, severity=0)
    assert torch.equal(same, photos)
    assert same.data_ptr() != photos.data_ptr()


@every
def test_photographs_are_farther_from_themselves_at_every_severity(name, photos):
    before = photos.clone()
    distances = [distance(corrupt(photos, name, severity=severity), photos) for severity in range(6)]
    assert (np.diff(distances) > 0).all()
    assert torch.equal(photos, before)


@every
def test_digits_are_no_nearer_to_themselves_at_a_higher_severity(name):
    digits = DigitsReader().read().test.inputs
    corrupted = [corrupt(digits, name, severity=severity, peak=16) for severity in range(6)]
    assert max(int(images.max()) for images in corrupted) == 16
    distances = [distance(images, digits) for images in corrupted]
    assert distances[5] > distances[1] > 0
    # Seventeen greys may round two severities to the same; and of 7, 7, 6, 6 and 5 boxes for 8 pixels it matters more
    # where they fall than how many they are.
    assert name == "pixelate" or (np.diff(distances) >= 0).all()


@every
def test_images_are_bytes_of_the_same_shape_in_the_whole_range_or_less(name, photos):
    corrupted = corrupt(photos // 2, name, severity=5, peak=127)
    assert corrupted.dtype == torch.uint8
    assert corrupted.shape == photos.shape
    assert int(corrupted.max()) <= 127


@every
def test_an_image_comes_out_the_same_in_any_batch(name, photos, monkeypatch):
    for severity in (1, 5):
        whole = corrupt(photos, name, severity=severity, seed=3)
        assert torch.equal(whole, corrupt(photos, name, severity=severity, seed=3))
        for size in (1, 7):
            parts = [
                corrupt(photos[start : start + size], name, severity=severity, seed=3, first_row=start)
                for start in range(0, len(photos), size)
            ]
            assert torch.equal(torch.cat(parts), whole)
        with monkeypatch.context() as patch:
            patch.setattr(corruptions, "_BLOCK", 5 * 3072 + 1)
            assert torch.equal(corrupt(photos, name, severity=severity, seed=3), whole)


@every
def test_how_images_lie_in_memory_makes_no_difference(name, photos):
    expected = corrupt(photos, name, severity=4)
    assert torch.equal(corrupt(photos.contiguous(memory_format=torch.channels_last), name, severity=4), expected)
    assert torch.equal(corrupt(photos.numpy(), name, severity=4), expected)


@every
def test_the_seed_and_the_sample_matter_where_something_is_drawn_and_only_there(name, photos):
    corrupted = corrupt(photos, name, severity=5)
    assert torch.equal(corrupted, corrupt(photos, name, severity=5, seed=1)) is (name not in DRAWN)
    assert torch.equal(corrupted, corrupt(photos, name, severity=5, first_row=1)) is (name not in DRAWN)


@every
def test_the_state_of_torch_makes_no_difference_and_is_left_alone(name, photos):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    corrupted = corrupt(photos[:2], name, severity=5)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(6)
    assert torch.equal(corrupt(photos[:2], name, severity=5), corrupted)


@every
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(1, 1), (1, 7), (2, 1), (3, 3), (5, 3), (33, 31)])
def test_images_of_any_size_can_be_corrupted(name, channels, size):
    images = torch.arange(2 * channels * size[0] * size[1]).reshape(2, channels, *size).mul(37).remainder(256).byte()
    corrupted = corrupt(images, name, severity=5)
    assert corrupted.shape == images.shape
    assert corrupted.dtype == torch.uint8


@every
def test_no_images_stay_no_images(name):
    assert corrupt(torch.zeros(0, 3, 32, 32, dtype=torch.uint8), name, severity=3).shape == (0, 3, 32, 32)


@pytest.mark.parametrize("name", sorted(set(NAMES) - DRAWN | {"motion_blur"}))
def test_a_grey_image_is_corrupted_as_a_colour_one_without_colour(name, photos):
    grey = photos[:, 1:2]
    apart = corrupt(grey, name, severity=3).int() - corrupt(grey.expand(-1, 3, -1, -1), name, severity=3).int()
    assert int(apart.abs().max()) <= (1 if name == "jpeg_compression" else 0)


@pytest.mark.parametrize("name", sorted(set(NAMES) - DRAWN - {"brightness", "jpeg_compression"} | {"motion_blur"}))
def test_an_image_without_detail_stays_unchanged(name):
    plain = torch.tensor([7, 100, 255], dtype=torch.uint8).reshape(1, 3, 1, 1).expand(2, 3, 9, 10)
    for severity in range(1, 6):
        assert torch.equal(corrupt(plain, name, severity=severity), plain)


def test_an_unknown_name_is_refused_with_the_closest(photos):
    with pytest.raises(UnknownNameError, match=r"a corruption must be one of .*Did you mean gaussian_noise\?"):
        corrupt(photos, "gausian_noise", severity=1)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.rand(2, 3, 8, 8), r"uint8 in 0\.\.255; got torch\.float32.*before they are scaled.*\(images \* 255\)"),
        (torch.zeros(2, 50, dtype=torch.int64), r"got torch\.int64.*texts cannot be corrupted"),
        (torch.zeros(2, 8, 8, 3, dtype=torch.uint8), r"got \(2, 8, 8, 3\).*images\.movedim\(-1, 1\)"),
        (torch.zeros(2, 8, 8, dtype=torch.uint8), r"got \(2, 8, 8\).*images\[:, None\]"),
        (torch.zeros(2, 2, 8, 8, dtype=torch.uint8), r"one or three channels; got \(2, 2, 8, 8\)\.$"),
        ("photo.png", "images must be a tensor"),
    ],
)
def test_what_are_no_stored_images_is_refused_with_what_to_do(images, message):
    with pytest.raises(InputError, match=message):
        corrupt(images, "contrast", severity=0)


def test_options_out_of_range_are_refused(photos):
    for severity, message in ((6, "at most 5; got 6"), (-1, "at least 0; got -1"), (2.0, "whole number; got 2.0")):
        with pytest.raises(InputError, match=f"severity must be (a )?{message}"):
            corrupt(photos, "contrast", severity=severity)
    for option in ("seed", "first_row", "peak"):
        with pytest.raises(InputError, match=f"{option} must be at least"):
            corrupt(photos, "contrast", severity=1, **{option: -1})
    with pytest.raises(InputError, match=rf"in 0\.\.16; got {int(photos.max())}.*peak of their scale"):
        corrupt(photos, "contrast", severity=1, peak=16)

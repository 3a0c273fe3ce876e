"""Inputs on the device: the stored pixels, standardised; each crop and mirror image as the slow way gives it."""

import pytest
import torch
from torch.nn import functional as F

from calibrant.datasets import PixelScale, Samples
from calibrant.errors import InputError
from calibrant.training import TrainingData
from calibrant.training.stores import PADDING, ImageStore, PlainStore, Standardise, store_of

CPU = torch.device("cpu")
CHANCE = torch.Generator().manual_seed(0)
IMAGES = torch.randint(1, 256, (30, 3, 6, 9), dtype=torch.uint8, generator=CHANCE)  # not square, no pixel black
SCALE = PixelScale((0.5, 0.4, 0.3), (0.25, 0.2, 0.1))


@pytest.mark.parametrize("augmentation", ["none", "crop", "crop-flip"])
def test_plain_images_are_the_stored_ones_standardised_exactly(augmentation):
    rows = torch.tensor([4, 0, 29, 4])
    given = store_of(IMAGES, SCALE, augmentation, CPU).plain(rows)
    assert torch.equal(given, Standardise(SCALE)(IMAGES[rows]))


def test_standardised_means_what_it_says():
    mean, std = (torch.tensor(each, dtype=torch.float64)[:, None, None] for each in (SCALE.mean, SCALE.std))
    expected = (IMAGES.double() / 255 - mean) / std
    torch.testing.assert_close(Standardise(SCALE)(IMAGES).double(), expected, rtol=1e-6, atol=1e-6)
    scaled = Standardise(PixelScale.of(IMAGES))(IMAGES)
    assert scaled.dtype == torch.float32
    # The scale is rounded to four digits.
    torch.testing.assert_close(scaled.mean(dim=(0, 2, 3)), torch.zeros(3), rtol=0, atol=1e-3)
    torch.testing.assert_close(scaled.std(dim=(0, 2, 3)), torch.ones(3), rtol=0, atol=1e-3)


@pytest.mark.parametrize("augmentation", ["crop", "crop-flip"])
def test_a_crop_is_that_of_the_slow_way_in_every_sample(augmentation):
    places = 2 * PADDING + 1
    count = 2 * places**2  # every shift, mirrored and not
    rows = torch.arange(count) % len(IMAGES)
    shifts = torch.cartesian_prod(torch.arange(places), torch.arange(places)).repeat(2, 1)
    mirrored = torch.arange(count) < places**2
    given = store_of(IMAGES, SCALE, augmentation, CPU).augmented(rows, shifts, mirrored)
    padded = F.pad(IMAGES, (PADDING,) * 4)
    for row, (down, right), mirror, image in zip(rows, shifts.tolist(), mirrored, given, strict=True):
        cut = padded[row, :, down : down + 6, right : right + 9]
        cut = cut.flip(-1) if mirror and augmentation == "crop-flip" else cut
        assert torch.equal(image, Standardise(SCALE)(cut))


def test_what_lies_outside_an_image_is_black():
    store = store_of(IMAGES, SCALE, "crop", CPU)
    given = store.augmented(torch.tensor([0]), torch.tensor([[0, 2 * PADDING]]), torch.tensor([False]))[0]
    black = torch.tensor([-2.0, -2.0, -3.0])  # -mean / std
    corner = given[:, :PADDING, -PADDING:]
    torch.testing.assert_close(corner, black[:, None, None].expand_as(corner))
    assert torch.equal(given[:, PADDING:, :-PADDING], Standardise(SCALE)(IMAGES[0, :, : 6 - PADDING, PADDING:]))


def test_without_augmentation_shifts_and_mirrors_change_nothing():
    rows, shifts, mirrored = torch.arange(5), torch.full((5, 2), 8), torch.ones(5, dtype=torch.bool)
    store = store_of(IMAGES, SCALE, "none", CPU)
    assert torch.equal(store.augmented(rows, shifts, mirrored), store.plain(rows))


@pytest.mark.parametrize("augmentation", ["none", "crop-flip"])
def test_batches_are_laid_out_with_the_channels_last(augmentation):
    store = store_of(IMAGES, SCALE, augmentation, CPU)
    rows, shifts, mirrored = torch.arange(4), torch.ones(4, 2, dtype=torch.int64), torch.zeros(4, dtype=torch.bool)
    for batch in (store.plain(rows), store.augmented(rows, shifts, mirrored)):
        assert batch.shape == (4, 3, 6, 9)
        assert batch.is_contiguous(memory_format=torch.channels_last)


def test_images_are_kept_in_a_byte_a_pixel():
    store = store_of(IMAGES, SCALE, "none", CPU)
    assert isinstance(store, ImageStore)
    assert store._pixels.dtype == torch.uint8
    assert store._pixels.numel() == IMAGES.numel()


def test_texts_are_given_as_they_are():
    texts = torch.randint(100, (20, 7))
    store = store_of(texts, None, "none", CPU)
    assert isinstance(store, PlainStore)
    rows = torch.tensor([3, 3, 19])
    assert torch.equal(store.plain(rows), texts[rows])
    assert torch.equal(store.augmented(rows, torch.zeros(3, 2), torch.ones(3)), texts[rows])


def test_texts_cannot_be_cropped():
    texts = Samples(torch.randint(100, (20, 7)), torch.zeros(20, dtype=torch.int64))
    with pytest.raises(InputError, match="augmentation must be 'none' for inputs without a pixel scale; got 'crop'"):
        TrainingData(texts, {}, ("a",), augmentation="crop")
    with pytest.raises(
        InputError, match="augmentation must be 'none' for inputs without a pixel scale; got 'crop-flip'"
    ):
        TrainingData(texts, {}, ("a",)).on(CPU, "crop-flip")


def test_held_out_samples_are_never_augmented(data):
    moved = data.on(CPU, "crop")
    rows = torch.arange(3)
    shifts, mirrored = torch.zeros(3, 2, dtype=torch.int64), torch.zeros(3, dtype=torch.bool)
    assert not torch.equal(moved.training.inputs.augmented(rows, shifts, mirrored), moved.training.inputs.plain(rows))
    for part in moved.held_out.values():
        assert torch.equal(part.inputs.augmented(rows, shifts, mirrored), part.inputs.plain(rows))

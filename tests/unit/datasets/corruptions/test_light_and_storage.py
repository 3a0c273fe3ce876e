"""Brightness, contrast, JPEG and pixelation against their formulas and against other libraries."""

import io

import numpy as np
import pytest
import torch
from matplotlib import colors
from PIL import Image

from calibrant.datasets import DigitsReader
from calibrant.datasets.corruptions import CORRUPTIONS, corrupt

SEVERITIES = range(1, 6)


def strength(name, severity):
    return CORRUPTIONS[name].strengths[severity - 1]


@pytest.mark.parametrize("severity", SEVERITIES)
def test_brightness_adds_to_the_value_of_hsv(severity, photos):
    hsv = colors.rgb_to_hsv(photos.permute(0, 2, 3, 1).numpy() / 255)
    hsv[..., 2] = (hsv[..., 2] + strength("brightness", severity)).clip(0, 1)
    expected = colors.hsv_to_rgb(hsv) * 255
    corrupted = corrupt(photos, "brightness", severity=severity).permute(0, 2, 3, 1).numpy()
    assert np.abs(corrupted - expected).max() < 0.501


def test_brightness_of_grey_is_a_sum_that_ends_at_white():
    grey = torch.arange(256).byte().reshape(1, 1, 16, 16)
    expected = (torch.arange(256) + 0.2 * 255).clamp(max=255).round().byte().reshape(1, 1, 16, 16)
    assert torch.equal(corrupt(grey, "brightness", severity=4), expected)


def test_black_becomes_grey_and_a_pure_colour_stays_pure():
    pixels = torch.tensor([[0, 0, 0], [200, 0, 100]], dtype=torch.uint8).T.reshape(1, 3, 1, 2)
    corrupted = corrupt(pixels, "brightness", severity=2)[0, :, 0].T
    assert corrupted.tolist() == [[26, 26, 26], [226, 0, 113]]


@pytest.mark.parametrize("severity", SEVERITIES)
def test_contrast_shrinks_every_channel_towards_its_mean(severity, photos):
    pixels = photos.double()
    mean = pixels.mean((2, 3), keepdim=True)
    expected = mean + strength("contrast", severity) * (pixels - mean)
    corrupted = corrupt(photos, "contrast", severity=severity)
    assert float((corrupted - expected).abs().max()) < 0.501


def pillow_jpeg(image, quality):
    file = io.BytesIO()
    Image.fromarray(image).save(file, format="JPEG", quality=quality)
    return np.asarray(Image.open(io.BytesIO(file.getvalue())))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_jpeg_is_that_of_pillow(severity, photos):
    quality = (80, 65, 58, 50, 40)[severity - 1]
    corrupted, grey = (corrupt(images, "jpeg_compression", severity=severity) for images in (photos, photos[:, :1]))
    for row, image in enumerate(photos):
        expected = pillow_jpeg(image.permute(1, 2, 0).contiguous().numpy(), quality)
        assert np.array_equal(corrupted[row].permute(1, 2, 0).numpy(), expected)
        assert np.array_equal(grey[row, 0].numpy(), pillow_jpeg(image[0].numpy(), quality))


def test_jpeg_stretches_a_smaller_range_to_eight_bits_and_back():
    digits = DigitsReader().read().test.inputs[:5]
    stretched = (digits.double() * 255 / 16).round().byte()
    expected = torch.stack([torch.from_numpy(pillow_jpeg(image[0].numpy(), 40).copy()) for image in stretched])
    corrupted = corrupt(digits, "jpeg_compression", severity=5, peak=16)[:, 0]
    assert torch.equal(corrupted, (expected.double() * 16 / 255 + 0.5).floor().byte())


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("size", [(32, 32), (16, 32), (8, 8)])
def test_pixelation_is_that_of_pillow_with_boxes(severity, size, photos):
    # Where no pixel's middle lies between two boxes, which Pillow counts to one of them going down and the other up.
    images = photos[:, :, : size[0], : size[1]]
    left = strength("pixelate", severity)
    small = tuple(int(side * left) for side in reversed(size))
    corrupted = corrupt(images, "pixelate", severity=severity)
    for row, image in enumerate(images):
        picture = Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())
        expected = picture.resize(small, Image.Resampling.BOX).resize(picture.size, Image.Resampling.BOX)
        apart = corrupted[row].permute(1, 2, 0).int().numpy() - np.asarray(expected, dtype=np.int32)
        assert np.abs(apart).max() <= 1  # Pillow rounds half-way, too


def test_pixelation_of_a_line_can_be_done_by_hand():
    line = torch.tensor([0, 10, 20, 30, 40, 50], dtype=torch.uint8).reshape(1, 1, 1, 6)
    # Three boxes of two pixels.
    assert corrupt(line, "pixelate", severity=5).flatten().tolist() == [5, 5, 25, 25, 45, 45]

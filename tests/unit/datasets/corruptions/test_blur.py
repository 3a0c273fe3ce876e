"""Blurs against SciPy's filters, and what they do to a point and to a chequerboard."""

import math

import numpy as np
import pytest
import torch
from scipy import ndimage

from calibrant.datasets.corruptions import CORRUPTIONS, RowDraws, corrupt, mirrored, weighted_shifts

SEVERITIES = range(1, 6)
SYMMETRIC = ("defocus_blur", "gaussian_blur")


def rounded(values):
    return np.floor(values + 0.5001)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_gaussian_blur_is_that_of_scipy(severity, photos):
    sigma = CORRUPTIONS["gaussian_blur"].strengths[severity - 1]
    expected = ndimage.gaussian_filter(photos.double().numpy(), sigma, axes=(2, 3), mode="reflect", truncate=4)
    corrupted = corrupt(photos, "gaussian_blur", severity=severity).numpy()
    assert (corrupted == rounded(expected)).mean() > 0.9999  # a float32 may lie on the other side of a half
    assert np.abs(corrupted - expected).max() < 0.51


@pytest.mark.parametrize("severity", SEVERITIES)
def test_defocus_blur_is_a_disk_with_a_soft_edge(severity, photos):
    edge = (0.4, 0.5, 0.6, 0.2, 0.1)[severity - 1]
    bell = math.exp(-1 / (2 * edge**2))
    soft = np.array([bell, 1, bell]) / (1 + 2 * bell)
    disks = {1: [[1]], 2: [[1]], 3: [[1]], 4: [[0, 1, 0], [1, 1, 1], [0, 1, 0]], 5: np.ones((3, 3))}
    disk = np.array(disks[severity], dtype=float)
    pixels = photos.double().numpy()
    expected = ndimage.convolve(pixels, disk[None, None] / disk.sum(), mode="reflect")
    expected = ndimage.convolve(expected, np.outer(soft, soft)[None, None], mode="reflect")
    assert np.abs(corrupt(photos, "defocus_blur", severity=severity).numpy() - expected).max() < 0.51


@pytest.mark.parametrize("name", SYMMETRIC)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_a_symmetric_blur_keeps_the_mean_of_an_image(name, severity, photos):
    corruption, pixels = CORRUPTIONS[name], photos / 255
    corrupted = corruption.apply(pixels, corruption.strengths[severity - 1], RowDraws(name, 0, 0))
    assert torch.allclose(corrupted.mean((2, 3)), pixels.mean((2, 3)), rtol=0, atol=1e-6)
    stored = corrupt(photos, name, severity=severity).double()
    assert float((stored.mean((2, 3)) - photos.double().mean((2, 3))).abs().max()) < 0.2  # all rounding


@pytest.mark.parametrize("name", SYMMETRIC)
def test_a_symmetric_blur_flattens_a_chequerboard_as_its_transfer_function_says(name):
    board = (torch.arange(20)[:, None] + torch.arange(20)).remainder(2).mul(200).byte().expand(1, 1, 20, 20)
    contrasts = []
    for severity in SEVERITIES:
        inner = corrupt(board, name, severity=severity)[0, 0, 6:14, 6:14].double()
        contrasts.append(float(inner.max() - inner.min()) / 200)
        if name == "gaussian_blur":
            strength = CORRUPTIONS[name].strengths[severity - 1]
            weights = np.exp(-(np.arange(-12, 13) ** 2) / (2 * strength**2))
            signs = (-1.0) ** np.arange(-12, 13)
            assert contrasts[-1] == pytest.approx((weights @ signs / weights.sum()) ** 2, abs=0.01)
    # The cross of five: mean of one and minus four fifths.
    assert name == "gaussian_blur" or contrasts[3:] == pytest.approx([3 / 5, 1 / 9], abs=0.01)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_motion_blur_smears_a_point_to_one_side_by_half_a_bell(severity):
    sigma = CORRUPTIONS["motion_blur"].strengths[severity - 1]
    points = torch.zeros(30, 1, 31, 31, dtype=torch.uint8)
    points[:, :, 15, 15] = 250
    smears = corrupt(points, "motion_blur", severity=severity, seed=1)[:, 0].double()
    bell = np.exp(-(np.arange(11) ** 2) / (2 * sigma**2))
    assert smears[:, 15, 15].unique().tolist() == [rounded(250 / bell[: math.floor(4 * sigma) + 1].sum())]
    assert float((smears.sum((1, 2)) - 250).abs().max()) <= 5
    assert not smears[:, :, 16:].any()
    weights = smears / smears.sum((1, 2), keepdim=True)
    places = torch.arange(31, dtype=torch.float64) - 15
    left, down = -(weights * places).sum((1, 2)), (weights * places[:, None]).sum((1, 2))
    assert float((down.abs() / left).max()) <= 1 + 1e-9  # 45 degrees
    along = (left**2 + down**2).sqrt()
    assert float(along.mean()) == pytest.approx(float(bell @ np.arange(11) / bell.sum()), rel=0.15)
    assert bool((down > 0.2).any())
    assert bool((down < -0.2).any())


def test_motion_blur_goes_the_same_way_at_every_severity():
    points = torch.zeros(20, 1, 31, 31, dtype=torch.uint8)
    points[:, :, 15, 15] = 250
    weak, strong = (corrupt(points, "motion_blur", severity=severity) > 0 for severity in (2, 5))
    assert bool((strong | ~weak).all())
    assert int(strong.sum()) > int(weak.sum())


def test_a_mirror_has_no_end():
    assert mirrored(torch.arange(-9, 9), 1).tolist() == [0] * 18
    assert mirrored(torch.arange(-5, 5), 2).tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 0, 0]


def test_a_kernel_is_not_turned_round():
    pixels = torch.zeros(1, 1, 5, 5)
    pixels[0, 0, 2, 2] = 1
    kernel = torch.zeros(3, 5)
    kernel[0, 1] = 1  # takes the pixel above, one to the left
    assert weighted_shifts(pixels, kernel).nonzero().tolist() == [[0, 0, 3, 3]]

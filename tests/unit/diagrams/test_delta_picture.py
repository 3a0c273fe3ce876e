"""δ in pixels: undone normalisation, a factor that is true, and what leaves the range."""

import pytest
import torch
from torch import nn

from calibrant.clamping import ClampedModel, InputSpace
from calibrant.diagrams import delta_picture
from calibrant.errors import InputError, UnknownNameError
from calibrant.maps import Scale

HEAD = Scale(torch.tensor(2.0), n_classes=3)
SPACE = InputSpace(mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.5))


def clamped(delta, space=None):
    return ClampedModel(nn.Flatten(), delta, HEAD, space=space)


@pytest.fixture
def images():
    return torch.rand(4, 3, 5, 6, generator=torch.Generator().manual_seed(0))


def normalised(images, space=SPACE):
    mean, std = (torch.tensor(values)[:, None, None] for values in (space.mean, space.std))
    return (images - mean) / std


def test_a_delta_of_one_tenth_of_a_pixel_is_shown_as_that(images):
    delta = 0.1 / torch.tensor(SPACE.std)[:, None, None].expand(3, 5, 6)
    picture = delta_picture(clamped(delta, SPACE), normalised(images))
    assert torch.allclose(picture.maps, torch.full((3, 5, 6), 0.1))
    assert torch.allclose(picture.inputs, images, atol=1e-6)
    assert torch.allclose(picture.perturbed, images + 0.1, atol=1e-6)
    assert picture.factor == pytest.approx(10, rel=1e-5)
    assert picture.norm == pytest.approx(float(delta.norm()), rel=1e-5)
    assert (picture.low, picture.high, picture.in_pixels) == (0.0, 1.0, True)
    assert picture.outside == pytest.approx(float((images > 0.9).double().mean()), abs=0.01)


def test_what_is_clipped_is_nowhere_outside(images):
    space = InputSpace(mean=SPACE.mean, std=SPACE.std, clips=True)
    picture = delta_picture(clamped(torch.full((3, 5, 6), 3.0), space), normalised(images))
    assert picture.outside == 0
    assert float(picture.perturbed.max()) <= 1 + 1e-5


def test_every_channel_has_its_map_or_their_mean_one(images):
    delta = torch.randn(3, 5, 6, generator=torch.Generator().manual_seed(1))
    each, mean = (delta_picture(clamped(delta), images, channels=kind) for kind in ("each", "mean"))
    assert torch.equal(each.maps, delta)
    assert each.map_names == ("δ, red", "δ, green", "δ, blue")
    assert torch.allclose(mean.maps, delta.mean(0, keepdim=True))
    assert mean.limit == pytest.approx(float(delta.mean(0).abs().max()))
    assert not each.in_pixels
    assert (each.low, each.high) == (float(images.min()), float(images.max()))


def test_other_channels_than_one_or_three_are_shown_by_their_mean():
    inputs = torch.rand(2, 5, 4, 4)
    picture = delta_picture(clamped(torch.ones(5, 4, 4)), inputs)
    assert picture.maps.shape == (1, 4, 4)
    assert torch.allclose(picture.inputs, inputs.mean(1, keepdim=True))
    grey = delta_picture(clamped(torch.ones(1, 4, 4)), inputs[:, :1])
    assert (grey.map_names, tuple(grey.inputs.shape)) == (("δ",), (2, 1, 4, 4))


def test_a_delta_of_nothing_and_an_even_input_have_a_picture():
    picture = delta_picture(clamped(torch.zeros(1, 4, 4)), torch.full((1, 1, 4, 4), 0.3))
    assert picture.factor == 1
    assert picture.outside == 0
    assert picture.high > picture.low


@pytest.mark.parametrize("shape", [(4, 6), (0, 3, 5, 6), (3, 5, 6)])
def test_inputs_that_are_no_images_are_refused(shape):
    with pytest.raises(InputError, match="must be images"):
        delta_picture(clamped(torch.ones(3, 5, 6)), torch.zeros(shape))


def test_inputs_of_another_shape_and_captions_of_another_number_are_refused(images):
    with pytest.raises(InputError, match="of the δ that is added"):
        delta_picture(clamped(torch.ones(3, 4, 4)), images)
    with pytest.raises(InputError, match="captions must be as many as inputs, 4"):
        delta_picture(clamped(torch.ones(3, 5, 6)), images, captions=("one",))
    with pytest.raises(UnknownNameError, match="each, mean"):
        delta_picture(clamped(torch.ones(3, 5, 6)), images, channels="red")

"""Every shape of δ has an orthonormal basis, and it is the one that its name says."""

import pytest
import torch
from scipy.fft import dctn, idctn

from calibrant.clamping import LowFrequencies, PerChannel, PerEntry
from calibrant.errors import InputError

CASES = [
    (PerEntry(), (2, 5, 4), (2, 5, 4)),
    (PerEntry(), (6,), (6,)),
    (PerChannel(), (2, 5, 4), (2,)),
    (PerChannel(), (6,), (6,)),
    (LowFrequencies(3), (2, 5, 4), (2, 3, 3)),
    (LowFrequencies(1), (2, 5, 4), (2, 1, 1)),
    (LowFrequencies(), (1, 8, 2), (1, 4, 2)),  # a side that is shorter has all of its frequencies
]


def drawn(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("freedom", "shape", "size"), CASES)
def test_the_coefficients_have_the_norm_of_delta_and_come_back_from_it(freedom, shape, size):
    basis = freedom.basis(torch.zeros(shape))
    assert basis.shape == size
    coefficients = drawn(size)
    delta = basis.to_delta(coefficients)
    assert delta.shape == shape
    assert float(delta.norm()) == pytest.approx(float(coefficients.norm()), rel=1e-12)
    assert torch.allclose(basis.transpose(delta), coefficients, atol=1e-12)


@pytest.mark.parametrize(("freedom", "shape", "size"), CASES)
def test_gathering_is_the_transpose_of_spreading(freedom, shape, size):
    basis = freedom.basis(torch.zeros(shape))
    coefficients, gradient = drawn(size), drawn(shape, seed=1)
    along_delta = float((basis.to_delta(coefficients) * gradient).sum())
    assert float((coefficients * basis.transpose(gradient)).sum()) == pytest.approx(along_delta, rel=1e-12)


def test_one_number_a_channel_is_constant_within_it():
    delta = PerChannel().basis(torch.zeros(3, 4, 5)).to_delta(drawn((3,)))
    assert torch.equal(delta, delta[:, :1, :1].expand(3, 4, 5))
    assert len(delta.unique()) == 3


def test_low_frequencies_are_the_first_of_the_cosine_transform():
    basis, coefficients = LowFrequencies(3).basis(torch.zeros(2, 6, 5)), drawn((2, 3, 3))
    padded = torch.zeros(2, 6, 5, dtype=torch.float64)
    padded[:, :3, :3] = coefficients
    assert torch.allclose(
        basis.to_delta(coefficients), torch.from_numpy(idctn(padded.numpy(), axes=(1, 2), norm="ortho"))
    )
    gradient = drawn((2, 6, 5), seed=1)
    transformed = torch.from_numpy(dctn(gradient.numpy(), axes=(1, 2), norm="ortho"))
    assert torch.allclose(basis.transpose(gradient), transformed[:, :3, :3])


def test_the_lowest_frequency_alone_is_one_number_a_channel():
    lowest, channels = (item.basis(torch.zeros(3, 4, 5)) for item in (LowFrequencies(1), PerChannel()))
    coefficients = drawn((3,))
    assert torch.allclose(lowest.to_delta(coefficients.reshape(3, 1, 1)), channels.to_delta(coefficients))


def test_all_frequencies_leave_every_delta_possible():
    basis, delta = LowFrequencies(9).basis(torch.zeros(2, 9, 7)), drawn((2, 9, 7))
    assert torch.allclose(basis.to_delta(basis.transpose(delta)), delta)


@pytest.mark.parametrize("size", [0, -1, 2.5, True])
def test_frequencies_that_are_no_whole_number_above_zero_are_refused(size):
    with pytest.raises(InputError, match="size must be"):
        LowFrequencies(size)


@pytest.mark.parametrize("shape", [(7,), (5, 5), (1, 2, 3, 4)])
def test_only_images_have_low_frequencies(shape):
    with pytest.raises(InputError, match=r"low frequencies need images.*PerEntry"):
        LowFrequencies().basis(torch.zeros(shape))


def test_channels_need_an_axis():
    with pytest.raises(InputError, match="needs inputs with an axis"):
        PerChannel().basis(torch.zeros(()))

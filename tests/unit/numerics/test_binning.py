"""Where numbers fall, and sums by where they fall."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrant.numerics.binning import bin_ends, bin_index, sums_between, sums_by

DTYPES = [torch.float32, torch.float64]
many = settings(max_examples=100)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_bins", [1, 2, 10, 15, 100, 1000])
class TestEdges:
    def test_confidence_of_one_falls_in_the_last_bin(self, n_bins, dtype):
        assert bin_index(torch.ones(1, dtype=dtype), n_bins).tolist() == [n_bins - 1]

    def test_a_confidence_of_zero_falls_in_the_first_bin(self, n_bins, dtype):
        # focal_calibration raises a KeyError here, and (lo, hi] without care drops the sample.
        assert bin_index(torch.zeros(1, dtype=dtype), n_bins).tolist() == [0]

    def test_a_rounding_error_beyond_one_stays_in_the_last_bin(self, n_bins, dtype):
        assert bin_index(torch.tensor([1 + 1e-7], dtype=dtype), n_bins).tolist() == [n_bins - 1]

    def test_an_edge_belongs_to_the_bin_below_it(self, n_bins, dtype):
        edges = torch.tensor([b / n_bins for b in range(1, n_bins + 1)], dtype=dtype)
        assert bin_index(edges, n_bins).tolist() == list(range(n_bins))

    def test_an_edge_worked_out_in_float32_belongs_to_the_bin_below_it(self, n_bins, dtype):
        edges = (torch.arange(1, n_bins + 1, dtype=torch.float32) * torch.tensor(1 / n_bins)).to(dtype)
        assert bin_index(edges, n_bins).tolist() == list(range(n_bins))

    def test_what_lies_clearly_above_an_edge_belongs_to_the_bin_above_it(self, n_bins, dtype):
        above = torch.tensor([b / n_bins + 1e-6 for b in range(n_bins)], dtype=dtype)
        assert bin_index(above, n_bins).tolist() == list(range(n_bins))


@pytest.mark.parametrize("dtype", DTYPES)
def test_tenths_and_fifteenths_fall_in_the_lower_bin(dtype):
    tenths = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0], dtype=dtype)
    assert bin_index(tenths, 10).tolist() == list(range(10))
    # Of fifteen bins, .2 is the third edge, .4 the sixth, …
    assert bin_index(tenths[1::2], 15).tolist() == [2, 5, 8, 11, 14]


def test_the_values_are_left_as_they_were():
    values = torch.tensor([0.1, 0.5])
    bin_index(values, 10)
    assert values.tolist() == torch.tensor([0.1, 0.5]).tolist()


@given(values=st.lists(st.floats(0, 1), min_size=1, max_size=50), n_bins=st.integers(1, 200))
@many
def test_every_number_lies_in_its_bin(values, n_bins):
    slack = Fraction(1, 2**22) + Fraction(1, 2**45)
    for value, b in zip(values, bin_index(torch.tensor(values, dtype=torch.float64), n_bins).tolist(), strict=True):
        assert 0 <= b < n_bins
        assert Fraction(value) <= Fraction(b + 1, n_bins) + slack
        assert Fraction(value) >= Fraction(b, n_bins)


@given(
    values=st.lists(st.one_of(st.floats(0, 1), st.integers(0, 15).map(lambda i: i / 15)), min_size=1, max_size=50),
    n_bins=st.integers(1, 60),
    dtype=st.sampled_from(DTYPES),
)
@many
def test_ends_among_sorted_numbers_say_the_same_as_the_index(values, n_bins, dtype):
    rising = torch.tensor(sorted(values), dtype=dtype)
    ends = bin_ends(rising, n_bins)
    assert len(ends) == n_bins + 1
    sizes = np.diff(ends).tolist()
    assert sizes == torch.bincount(bin_index(rising, n_bins), minlength=n_bins).tolist()


@given(seed=st.integers(0, 1000), n=st.integers(1, 50), size=st.integers(1, 20))
@many
def test_sums_by_index_and_between_ends_agree_with_loops(seed, n, size):
    rng = np.random.default_rng(seed)
    index = np.sort(rng.integers(0, size, n))
    values = rng.normal(size=(2, 3, n))
    expected = np.zeros((2, 3, size))
    for position, b in enumerate(index):
        expected[..., b] += values[..., position]
    whole = sums_by(torch.from_numpy(index), torch.from_numpy(values), size)
    assert np.allclose(whole.numpy(), expected)
    flat = sums_by(torch.from_numpy(index), torch.from_numpy(values[0, 0]), size)
    assert np.allclose(flat.numpy(), expected[0, 0])
    ends = [0, *np.cumsum(np.bincount(index, minlength=size)).tolist()]
    assert np.allclose(sums_between(ends, torch.from_numpy(values)).numpy(), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(4,), (2, 4)])
def test_sums_are_in_float64(dtype, shape):
    assert sums_by(torch.zeros(4, dtype=torch.long), torch.ones(shape, dtype=dtype), 3).dtype == torch.float64

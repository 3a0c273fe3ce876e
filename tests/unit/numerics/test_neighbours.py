"""Nearest neighbours against all distances, one by one."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

from calibrant.checks import as_features
from calibrant.errors import InputError
from calibrant.numerics import neighbours
from calibrant.numerics.neighbours import nearest_distances, proximity, unit_rows


def some_features(n, d=8, *, seed=0, dtype=torch.float64):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_distances_are_those_of_brute_force():
    points, reference = some_features(50), some_features(70, seed=1)
    expected = np.sort(cdist(points.numpy(), reference.numpy()), axis=1)[:, :6]
    np.testing.assert_allclose(nearest_distances(points, reference, 6).numpy(), expected, atol=1e-12)


def test_a_sample_that_is_skipped_is_no_neighbour():
    points = some_features(40)
    everything = cdist(points.numpy(), points.numpy())
    np.fill_diagonal(everything, np.inf)
    expected = np.sort(everything, axis=1)[:, :5]
    np.testing.assert_allclose(nearest_distances(points, points, 5, skip=torch.arange(40)), expected, atol=1e-12)


def test_close_neighbours_keep_their_digits_in_float32():
    reference = unit_rows(some_features(30, dtype=torch.float32))
    moved = reference.clone()
    moved[:, 0] += 1e-4  # by inner products alone this would be 0 or 3e-4
    found = nearest_distances(moved, reference, 1)[:, 0]
    assert torch.allclose(found, (moved - reference).norm(dim=1), rtol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_proximity_is_the_exponential_of_minus_the_mean_distance_of_unit_rows(dtype):
    features, reference = 100 * some_features(20, dtype=dtype), some_features(60, seed=1, dtype=dtype)
    a, b = ((each / each.norm(dim=1, keepdim=True)).double().numpy() for each in (features, reference))
    distances = np.sort(cdist(a, b), axis=1)[:, :10]
    np.testing.assert_allclose(proximity(features, reference), np.exp(-distances.mean(1)), atol=1e-6)
    squares = np.exp(-np.square(distances)).mean(1)
    np.testing.assert_allclose(proximity(features, reference, closeness="mean_exp_square"), squares, atol=1e-6)


def test_without_a_reference_no_sample_is_its_own_neighbour():
    features = some_features(30)
    unit = unit_rows(features).numpy()
    everything = cdist(unit, unit)
    np.fill_diagonal(everything, np.inf)
    expected = np.exp(-np.sort(everything, axis=1)[:, :3].mean(1))
    np.testing.assert_allclose(proximity(features, neighbours=3), expected, atol=1e-9)
    assert (proximity(features, features, neighbours=3) > proximity(features, neighbours=3)).all()


def test_repeated_samples_are_as_near_as_can_be():
    features = some_features(4).repeat(5, 1)
    assert torch.equal(proximity(features, neighbours=4), torch.ones(20, dtype=torch.float64))


def test_pieces_give_what_the_whole_gives(monkeypatch):
    features = some_features(100)
    whole = proximity(features)
    monkeypatch.setattr(neighbours, "_BLOCK", 1000)
    assert torch.allclose(proximity(features), whole, atol=1e-12)


def test_rows_get_length_one_whatever_their_size():
    rows = torch.tensor([[3.0, 4.0], [3e30, 4e30], [3e-30, 4e-30]])
    assert torch.allclose(unit_rows(rows), torch.tensor([0.6, 0.8]).expand(3, 2))
    assert torch.equal(unit_rows(torch.zeros(1, 2)), torch.zeros(1, 2))
    assert unit_rows(rows.half()).dtype == torch.float32


def test_too_few_samples_are_refused():
    with pytest.raises(InputError, match="11 rows or more are needed for 10 neighbours"):
        proximity(some_features(10))
    with pytest.raises(InputError, match="10 rows or more"):
        proximity(some_features(5), some_features(9))


def test_features_are_a_finite_matrix_with_a_row_for_each_prediction():
    assert as_features([[1, 2], [3, 4]], rows=2).dtype == torch.float64
    broken = some_features(4)
    broken[2, 5] = torch.nan
    for wrong, message in (
        (some_features(4)[0], r"shape \(n, d\).*flatten"),
        (torch.zeros(3, 4, 5), r"got \(3, 4, 5\)"),
        (torch.zeros(3, 0), r"shape \(n, d\)"),
        (some_features(3), "as many rows as the predictions, 4; got 3"),
        (broken, r"finite; got nan at row 2 \(counting from 0\), column 5"),
        (torch.ones(4, 2, dtype=torch.bool), "real numbers"),
        ("text", "array"),
    ):
        with pytest.raises(InputError, match=message):
            as_features(wrong, rows=4)

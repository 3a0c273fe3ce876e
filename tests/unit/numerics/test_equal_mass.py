import pytest
import torch

from calibrant.numerics.isotonic import equal_mass_edges, equal_mass_starts


@pytest.mark.parametrize(("n", "n_bins"), [(10, 3), (100, 7), (7, 7), (5, 12)])
def test_without_ties_bins_differ_in_size_by_one_sample_at_most(n, n_bins):
    scores = torch.randn(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    edges = equal_mass_edges(scores, n_bins)
    sizes = torch.bincount(torch.searchsorted(edges, scores), minlength=len(edges) + 1)
    assert len(sizes) == min(n, n_bins)
    assert int(sizes.max() - sizes.min()) <= 1


def test_equal_scores_stay_together_and_no_bin_is_empty():
    scores = torch.tensor([1.0] * 50 + [2.0] * 3 + [3.0] * 47)
    edges = equal_mass_edges(scores, 4)
    sizes = torch.bincount(torch.searchsorted(edges, scores.double()), minlength=len(edges) + 1)
    assert sizes.tolist() in ([50, 3, 47], [50, 50], [53, 47])


def test_one_score_makes_one_bin():
    assert len(equal_mass_edges(torch.full((20,), 0.7), 5)) == 0
    assert equal_mass_starts(torch.tensor([20.0], dtype=torch.float64), 5).tolist() == [0]


def test_each_cut_lies_where_its_rank_is_nearest():
    up_to = torch.tensor([10.0, 45.0, 60.0, 100.0], dtype=torch.float64)
    assert equal_mass_starts(up_to, 2).tolist() == [0, 2]


@pytest.mark.parametrize("rows", [[1, 1, 1, 1, 1], [3, 1, 2], [5]])
@pytest.mark.parametrize("more", [0, 1, 3, 4, 20_000])
def test_more_bins_than_samples_cut_between_all_scores(rows, more):
    up_to = torch.tensor(rows, dtype=torch.float64).cumsum(0)
    assert equal_mass_starts(up_to, sum(rows) + more).tolist() == list(range(len(rows)))

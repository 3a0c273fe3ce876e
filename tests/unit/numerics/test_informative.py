from itertools import combinations

import numpy as np
import pytest

from calibrant.numerics.isotonic import informative_bins


def information(scores, edges):
    """By its definition: entropy of the label less its mean entropy in the bins, a hit having probability σ(s)."""

    def entropy(probs):
        p = probs.mean()
        return -(p * np.log(p) + (1 - p) * np.log1p(-p))

    probs = 1 / (1 + np.exp(-scores))
    place = np.searchsorted(edges, scores)
    return entropy(probs) - sum(entropy(probs[place == b]) * (place == b).mean() for b in np.unique(place))


def scores_of(kind, n=3000):
    rng = np.random.default_rng(0)
    match kind:
        case "two sided":
            return np.sort(rng.normal(0, 3, n))
        case "rare":
            return np.sort(rng.normal(-6, 3, n))
        case "float32":
            return np.sort(rng.normal(-2, 4, n).astype(np.float32))
        case "saturated":
            return np.sort(rng.normal(0, 300, n))
        case "tied":
            return np.sort(rng.integers(-8, 9, n) / 2)


KINDS = ["two sided", "rare", "float32", "saturated", "tied"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_information_never_falls_from_turn_to_turn(kind):
    found = informative_bins(scores_of(kind), 10).information
    assert len(found) >= 2
    assert (np.diff(found) >= -1e-14).all()


@pytest.mark.parametrize("kind", ["two sided", "rare", "float32", "tied"])
def test_the_information_is_that_between_bin_and_label(kind):
    scores = scores_of(kind)
    found = informative_bins(scores, 10)
    assert found.information[-1] == pytest.approx(information(scores.astype(float), found.edges), rel=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_it_comes_close_to_the_best_of_all_ways_to_cut(seed):
    scores = np.sort(np.random.default_rng(seed).normal(-1, 3, 24))
    halfway = (scores[1:] + scores[:-1]) / 2
    best = max(information(scores, np.array(edges)) for edges in combinations(halfway, 3))
    assert informative_bins(scores, 4).information[-1] > 0.985 * best


@pytest.mark.parametrize("kind", ["two sided", "rare"])
def test_it_keeps_more_than_bins_of_equal_mass_or_width(kind):
    scores = scores_of(kind)
    found = informative_bins(scores, 8)
    equal_mass = np.quantile(scores, np.arange(1, 8) / 8)
    equal_width = np.linspace(scores[0], scores[-1], 9)[1:-1]
    assert found.information[-1] > information(scores, equal_mass)
    assert found.information[-1] > information(scores, equal_width)


def test_at_an_edge_a_sample_is_described_equally_well_by_both_bins():
    scores = scores_of("two sided")
    edges = informative_bins(scores, 6).edges
    probs = 1 / (1 + np.exp(-scores))
    means = [probs[np.searchsorted(edges, scores) == b].mean() for b in range(6)]
    for edge, below, above in zip(edges, means[:-1], means[1:], strict=True):
        p = 1 / (1 + np.exp(-edge))
        loss = [-(p * np.log(q) + (1 - p) * np.log(1 - q)) for q in (below, above)]
        assert loss[0] == pytest.approx(loss[1], abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_no_bin_is_empty(kind):
    scores = scores_of(kind)
    edges = informative_bins(scores, 30).edges
    assert (np.diff(edges) > 0).all()
    assert (np.bincount(np.searchsorted(edges, scores), minlength=len(edges) + 1) > 0).all()


def test_fewer_numbers_than_bins_are_separated_and_a_single_one_is_not_cut():
    assert len(informative_bins(np.array([-1.0, -1.0, 0.5, 2.0]), 15).edges) == 2
    assert len(informative_bins(np.array([0.3, 0.3]), 15).edges) == 0
    assert len(informative_bins(np.array([0.3]), 2).edges) == 0


def test_log_odds_that_differ_by_rounding_leave_no_bin_empty():
    tiny = np.array([-1e-16, 0.0, 0.0, 1e-16, 2e-16, 1e-5, 3e-5])
    rising = np.sort(np.concatenate([np.full(20, -500.0), np.repeat(tiny, 6), np.full(20, 500.0)]))
    found = informative_bins(rising, 15)
    assert np.isfinite(found.edges).all()
    assert np.isfinite(found.information).all()
    assert (np.diff(np.searchsorted(rising, found.edges, side="right")) > 0).all()

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from calibrant.numerics.isotonic import fits_with_one_more


def fit_at(place, values, weights):
    return isotonic_regression(values, weights=weights).x[place]


def groups(seed):
    """A few distinct scores: plain, with ties, with long runs of hits or misses."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 15))
    count = rng.integers(1, 4, m).astype(float) if seed % 2 else np.ones(m)
    hits = np.array([rng.integers(0, int(rows) + 1) for rows in count], dtype=float)
    if seed % 3 == 0:
        hits = count * (rng.random(m) < np.linspace(0, 1, m))
    return count, hits


@pytest.mark.parametrize("seed", range(60))
def test_the_fits_are_those_of_isotonic_regression_with_the_sample_added_at_a_score(seed):
    count, hits = groups(seed)
    with_miss, with_hit = fits_with_one_more(count, hits)
    for place in range(len(count)):
        more = count + (np.arange(len(count)) == place)
        assert with_miss[place] == pytest.approx(fit_at(place, hits / more, more), abs=1e-12)
        hit = hits + (np.arange(len(count)) == place)
        assert with_hit[place] == pytest.approx(fit_at(place, hit / more, more), abs=1e-12)


@pytest.mark.parametrize("seed", range(60))
def test_between_scores_a_hit_counts_as_at_the_upper_and_a_miss_as_at_the_lower_one(seed):
    count, hits = groups(seed)
    with_miss, with_hit = fits_with_one_more(count, hits)
    for gap in range(len(count) + 1):
        weights = np.insert(count, gap, 1)
        miss = fit_at(gap, np.insert(hits / count, gap, 0), weights)
        hit = fit_at(gap, np.insert(hits / count, gap, 1), weights)
        assert miss == pytest.approx(0 if gap == 0 else with_miss[gap - 1], abs=1e-12)
        assert hit == pytest.approx(1 if gap == len(count) else with_hit[gap], abs=1e-12)


def test_thousands_of_samples_agree_at_some_places():
    rng = np.random.default_rng(0)
    hits = (rng.random(3000) < np.linspace(0, 1, 3000) ** 4).astype(float)
    with_miss, with_hit = fits_with_one_more(np.ones(3000), hits)
    for place in rng.integers(0, 3000, 40):
        more = 1 + (np.arange(3000) == place).astype(float)
        assert with_miss[place] == pytest.approx(fit_at(place, hits / more, more), abs=1e-12)
        assert with_hit[place] == pytest.approx(fit_at(place, (hits + more - 1) / more, more), abs=1e-12)


def test_both_rise_and_the_hit_lies_above_the_miss():
    rng = np.random.default_rng(1)
    with_miss, with_hit = fits_with_one_more(np.ones(2000), (rng.random(2000) < 0.3).astype(float))
    assert (np.diff(with_miss) >= -1e-15).all()
    assert (np.diff(with_hit) >= -1e-15).all()
    assert (with_hit > with_miss).all()


def test_after_nothing_but_misses_the_next_hit_is_worth_one_in_all_above():
    _, with_hit = fits_with_one_more(np.ones(4), np.zeros(4))
    assert with_hit == pytest.approx([1 / 5, 1 / 4, 1 / 3, 1 / 2])


@pytest.mark.parametrize("seed", range(5))
def test_without_a_hit_one_more_is_pooled_with_all_above_it(seed):
    count = np.random.default_rng(seed).integers(1, 4, 12).astype(float)
    with_miss, with_hit = fits_with_one_more(count, np.zeros(12))
    assert not with_miss.any()
    for place in range(12):
        more, hits = count.copy(), np.zeros(12)
        more[place] += 1
        hits[place] = 1
        assert with_hit[place] == pytest.approx(fit_at(place, hits / more, more))

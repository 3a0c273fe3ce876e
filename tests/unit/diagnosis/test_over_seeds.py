"""Numbers over runs, and what the noise of samples and seeds leaves of a difference."""

import math

import numpy as np
import pytest
from scipy import stats

from calibrant.diagnosis import spread, two_sample
from calibrant.diagnosis.over_seeds import Noise, interval_of, noise_of_seeds

NAN = math.nan


def test_a_spread_is_of_the_runs_that_have_a_number():
    found = spread([0.1, NAN, 0.3])
    assert (found.mean, found.lowest, found.highest) == (pytest.approx(0.2), 0.1, 0.3)
    assert found.std == pytest.approx(np.std([0.1, 0.3], ddof=1))
    assert len(found.values) == 3


def test_one_run_has_no_deviation_and_none_has_nothing():
    assert math.isnan(spread([0.1]).std)
    assert spread([0.1]).mean == 0.1
    assert math.isnan(spread([NAN]).mean)
    assert math.isnan(spread([]).highest)


@pytest.mark.parametrize(("n", "m", "shift"), [(5, 5, 0.0), (2, 2, 3.0), (3, 7, 1.0), (2, 5, -4.0)])
def test_the_two_sample_test_is_welchs(n, m, shift):
    rng = np.random.default_rng(n * m)
    first, second = rng.normal(0, 1, n), rng.normal(shift, 3, m)
    found, expected = two_sample(first, second), stats.ttest_ind(second, first, equal_var=False)
    assert (found.t, found.df, found.p) == pytest.approx((expected.statistic, expected.df, expected.pvalue))
    assert found.note is None


def test_the_side_is_higher_or_lower_only_at_the_level():
    low, high = [0.010, 0.011, 0.012], [0.020, 0.021, 0.022]
    assert two_sample(low, high).side == "higher"
    assert two_sample(high, low).side == "lower"
    assert two_sample(low, [0.0, 0.011, 0.03]).side == "alike"


def test_too_few_runs_are_noted():
    for first, second, said in (([0.1], [0.2, 0.3], "there are 2 and 1"), ([0.1, NAN], [0.2], "there are 1 and 1")):
        found = two_sample(first, second)
        assert found.note == f"a test over runs needs 2 of each or more; {said}"
        assert found.side == "alike"
        assert math.isnan(found.p)
        assert not math.isnan(found.difference)
    assert math.isnan(two_sample([NAN], [0.1]).difference)


def test_runs_that_are_all_the_same_show_nothing_about_noise():
    assert two_sample([0.3] * 3, [0.3] * 3).p == 1
    found = two_sample([0.1] * 3, [0.3] * 3)
    assert math.isnan(found.p)
    assert "nothing about noise" in found.note


def test_the_noise_of_seeds_is_that_of_welch_or_borrowed_by_a_single_run():
    first, second = [1.0, 2.0, 4.0], [5.0, 9.0]
    noise = noise_of_seeds(first, second)
    assert noise.variance == pytest.approx(np.var(first, ddof=1) / 3 + np.var(second, ddof=1) / 2)
    assert noise.df == pytest.approx(stats.ttest_ind(first, second, equal_var=False).df)
    borrowed = noise_of_seeds(first, [5.0])
    assert borrowed.variance == pytest.approx(np.var(first, ddof=1) * (1 / 3 + 1))
    assert borrowed.df == 2
    # As Student's test has it, which takes both to spread alike.
    expected = stats.ttest_ind([5.0], first).pvalue
    assert interval_of(5 - np.mean(first), [borrowed])[2] == pytest.approx(expected)
    assert noise_of_seeds([1.0], [2.0]) is None
    assert noise_of_seeds(first) == (pytest.approx(np.var(first, ddof=1) / 3), 2)


def test_an_interval_of_one_kind_of_noise_is_students():
    sample = np.random.default_rng(0).normal(0.4, 1, 12)
    low, high, p = interval_of(sample.mean(), [Noise(sample.var(ddof=1) / 12, 11)])
    test = stats.ttest_1samp(sample, 0)
    assert (low, high) == pytest.approx(tuple(test.confidence_interval()))
    assert p == pytest.approx(test.pvalue)
    known = interval_of(1.0, [Noise(0.25, 1e9)])
    assert known[0] == pytest.approx(1 - 0.5 * stats.norm.ppf(0.975))
    assert known[2] == pytest.approx(2 * stats.norm.sf(2))


def test_no_noise_at_all_leaves_the_number_and_no_p_value():
    assert interval_of(0.0, [Noise(0.0, 3)]) == (0, 0, 1)
    low, high, p = interval_of(0.2, [Noise(0.0, 3)])
    assert (low, high) == (0.2, 0.2)
    assert math.isnan(p)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_the_sum_of_both_kinds_of_noise_covers_the_truth(seeds):
    # Each run's number is the truth, a row effect that all runs of a test set share, one of its seed, and one of both.
    rng, hits, trials = np.random.default_rng(seeds), 0, 1500
    truth, of_rows, of_seed, of_both = 0.3, 0.02, 0.03, 0.01
    for _ in range(trials):
        shared = of_rows * rng.normal()
        means = [truth + shared, 0.0]
        runs = [mean + of_seed * rng.normal(size=seeds) + of_both * rng.normal(size=seeds) for mean in means]
        # What a bootstrap of samples sees, seeds fixed, with the noise of its own estimate.
        rows = (of_rows**2 + 2 * of_both**2 / seeds) * rng.chisquare(200) / 200
        low, high, _ = interval_of(runs[0].mean() - runs[1].mean(), [Noise(rows, 200), noise_of_seeds(*runs)])
        hits += low <= truth <= high
    assert 0.94 <= hits / trials <= 0.99

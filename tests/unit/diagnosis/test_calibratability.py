"""Calibratability: ECE before and after, over runs, beside a baseline."""

import math

import numpy as np
import pytest
from scipy import stats

from calibrant.diagnosis import calibratability, differences_from
from calibrant.metrics import ece


@pytest.fixture
def both(made, evaluated_of):
    """Three runs of cross-entropy, too cold; three of a loss that is warmer, but noisier."""
    plain = [made("ce", seed, scale=3.0, noise=0.1) for seed in range(3)]
    smooth = [made("label_smoothing", seed, scale=1.0, noise=0.5) for seed in range(3)]
    return evaluated_of(*plain, *smooth)


def test_the_numbers_are_means_and_deviations_over_seeds(both):
    baseline, candidate = both.candidates
    against = differences_from(both, "ce", resamples=100).means
    found = calibratability(candidate, baseline, against[candidate.name])
    raw = [ece(run.test) for run in candidate.candidate.runs]
    assert found.ece["uncalibrated"].values == pytest.approx(raw)
    assert (found.ece["uncalibrated"].mean, found.ece["uncalibrated"].std) == pytest.approx(
        (np.mean(raw), np.std(raw, ddof=1))
    )
    assert found.seeds == (0, 1, 2)
    assert found.temperature.values == tuple(run.temperature for run in candidate.runs)
    assert found.optimal_ece.values == tuple(run.oracle.ece for run in candidate.runs)
    scaled = found.ece["temperature"].values
    assert all(low <= high + 1e-6 for low, high in zip(found.optimal_ece.values, scaled, strict=True))
    assert found.differences["uncalibrated"] == against[candidate.name]["uncalibrated"]["ece"]
    assert found.failures == {}


def test_runs_are_tested_against_the_references_runs_under_every_map_and_the_oracle(both):
    baseline, candidate = both.candidates
    found = calibratability(candidate, baseline, {})
    assert list(found.t_tests) == ["uncalibrated", "temperature", "oracle"]
    ours, theirs = (each.over_runs("uncalibrated", "ece").values for each in (candidate, baseline))
    assert found.t_tests["uncalibrated"].p == pytest.approx(stats.ttest_ind(ours, theirs, equal_var=False).pvalue)
    assert found.t_tests["uncalibrated"].side == "lower"
    oracle = [[run.oracle.ece for run in each.runs] for each in (candidate, baseline)]
    assert found.t_tests["oracle"].p == pytest.approx(stats.ttest_ind(*oracle, equal_var=False).pvalue)


def test_the_reference_is_not_held_against_itself(both):
    baseline = both.candidates[0]
    found = calibratability(baseline, baseline, {})
    assert found.t_tests == found.differences == {}


def test_a_temperature_calibrates_what_is_equally_overconfident_everywhere(both):
    found = calibratability(both.candidates[0], both.candidates[0], {})
    assert found.temperature.mean == pytest.approx(3.0, rel=0.15)
    assert found.ece["temperature"].mean < 0.5 * found.ece["uncalibrated"].mean


def test_a_fit_that_failed_is_reported_and_left_out_of_the_means(evaluated_tops, hands):
    top = hands.answers()
    evaluated = evaluated_tops(ce=[top, top], scaled={"ce": [top, None]})
    (candidate,) = evaluated.candidates
    found = calibratability(candidate, candidate, {})
    assert found.failures == {"temperature, seed 1": "it could not be fitted"}
    assert math.isnan(found.ece["temperature"].values[1])

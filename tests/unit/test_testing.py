"""Assertions for the tests of users."""

import re

import pytest
import torch

from calibrant import Predictions
from calibrant.errors import InputError
from calibrant.evidence import Estimate
from calibrant.gates import Gate
from calibrant.testing import assert_calibrated, overconfident

QUICK = {"resamples": 200}


def test_calibrated_predictions_pass_and_are_returned_evaluated():
    calibrated = overconfident(600, 4, sharpness=1.0)
    assert assert_calibrated(calibrated, **QUICK).n == 600
    assert_calibrated(calibrated, fail_if="ece>0.1", fail_unless=["auroc>0.5", "ece<0.2"], **QUICK)


def test_the_message_of_a_failure_carries_the_evidence():
    samples = overconfident(600, 4, sharpness=3.0)
    with pytest.raises(AssertionError, match=r"ece 0\.\d+, interval 0\.\d+ to 0\.\d+.*\n.*claim .* % and are right"):
        assert_calibrated(samples, **QUICK)
    with pytest.raises(AssertionError) as failed:
        assert_calibrated(probs=samples.probs, labels=samples.labels, fail_unless=["ece<0.05", "auroc>0.5"], **QUICK)
    assert "ece < 0.05: is not shown" in str(failed.value)
    assert "auroc" not in str(failed.value)


def test_a_baseline_is_what_differences_are_from():
    samples = overconfident(600, 4, sharpness=3.0)
    cooler = Predictions(samples.logits / 3, samples.labels)
    with pytest.raises(AssertionError, match="nll_difference > 0: holds"):
        assert_calibrated(samples, baseline=cooler, fail_if="nll_difference>0", **QUICK)
    assert_calibrated(cooler, baseline=samples, fail_unless="nll_difference<0", **QUICK)
    with pytest.raises(InputError, match="no baseline"):
        assert_calibrated(samples, fail_if="nll_difference>0", **QUICK)


def test_two_classes_are_tested_by_the_probability_of_the_second():
    p = torch.tensor([0.38, 0.62]).repeat(500)
    labels = (torch.arange(1000) // 2 % 100 < torch.where(p < 0.5, 48, 72)).long()  # 0.10 more often
    low, right = Predictions.from_binary_probs(p, labels), Predictions.from_binary_probs(p + 0.1, labels)
    for conditions in ({}, {"fail_if": "ece>0.05"}, {"fail_if": "ece_difference>0", "baseline": right}):
        with pytest.raises(AssertionError, match="probability of class 1 is 50"):
            assert_calibrated(low, **conditions, **QUICK)
    assert_calibrated(right, fail_unless=["ece<0.05", "risk_auroc>0.55"], **QUICK)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("accuracy>=0.9", True),
        ("accuracy>0.9", False),
        ("accuracy<=0.9", True),
        ("accuracy<0.9", False),
        ("accuracy>=0.5", True),
    ],
)
def test_a_condition_with_an_equals_sign_holds_where_both_sides_are_equal(condition, holds):
    gate = Gate.parse(condition, "fail_unless", of_point=True)
    assert gate.decide({"accuracy": Estimate(0.9, 0.8, 1.0)}).holds == holds
    assert ("=" in gate.condition) == ("=" in condition)


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        ("ece>5", "5 % is 0.05"), ("ece > 1", "1 % is 0.01"), ("accuracy>95", "95 % is 0.95"), ("risk_auroc>90", "0.9"),
        ("auroc<80", "0.8"), ("worst(region).ece>10", "0.1"), ("brier>2.5", "0..2"), ("aurc<0", "0..1"),
        ("ece_difference>2", "-1..1"), ("accuracy<-0.1", "0..1"), ("ece<=1", "0..1"), ("ece>=0", "0..1"),
        ("nll<0", "at least 0"), ("nll>=-1", "at least 0"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("option", ["fail_if", "fail_unless"])
def test_a_bound_that_no_value_is_beyond_is_refused(condition, hint, option):
    with pytest.raises(InputError, match=re.escape(hint)):
        Gate.parse(condition, option)


@pytest.mark.parametrize(
    "condition", ["nll>3", "skce>-0.1", "entropy>2", "brier>1.5", "accuracy>=1", "ece<=0", "nll_difference>-2"]
)
def test_a_bound_that_values_can_be_beyond_is_not(condition):
    Gate.parse(condition, "fail_if")

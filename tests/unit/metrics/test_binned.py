"""Calibration errors over equal-width bins, against hand-computed values and bin-by-bin loops."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import foldnorm
from strategies import top_labels

from calibrant.metrics import ECE, ECEL1Debiased, ECEL2Debiased, ece, ece_l1_debiased, ece_l2_debiased, mce, oe
from calibrant.metrics.states import BinnedMoments, Ranked
from calibrant.predictions import Predictions, TopLabel

# A bin with a gap of .4 over, one of .4 under, and one that is exact.
THREE_BINS = TopLabel([0.9, 0.9, 0.6, 0.6, 0.5, 0.5], [True, False, True, True, True, False])
many = settings(max_examples=60)


def bins_by_hand(rows, n_bins):
    """Count, mean confidence and accuracy of every bin with samples; a hair above an edge counts as on it."""
    confidence, correct = rows.top.confidence.numpy(), rows.top.correct.numpy()
    inner_edges = np.arange(1, n_bins) / n_bins + 2e-7
    bins = (confidence[:, None] > inner_edges).sum(axis=1)
    return [(np.sum(bins == b), confidence[bins == b].mean(), correct[bins == b].mean()) for b in np.unique(bins)]


def calibrated_bins(confidence, resamples, rng, n_bins=15):
    """Bins of many draws of correctness from these confidences."""
    right = torch.from_numpy(rng.random((resamples, len(confidence))) < confidence).double()
    rising = torch.from_numpy(confidence)
    return BinnedMoments(n_bins).of_ranked(Ranked(torch.logit(rising), rising, right, 1 - right))


@pytest.fixture(scope="module")
def uniform_bins():
    """Bins of calibrated models with confidences spread evenly over 0..1, by number of samples."""
    return {
        n: calibrated_bins(np.sort(np.random.default_rng(n).random(n)), resamples, np.random.default_rng(1))
        for n, resamples in [(200, 2000), (1000, 1000), (5000, 200)]
    }


class TestByHand:
    def test_ece_is_the_mean_gap(self):
        assert ece(THREE_BINS) == pytest.approx((2 * 0.4 + 2 * 0.4 + 0) / 6)

    def test_mce_is_the_largest_gap(self):
        rows = TopLabel([0.9, 0.9, 0.6, 0.6, 0.6], [True, False, True, True, False])
        assert mce(rows) == pytest.approx(0.4)

    def test_oe_weighs_the_overconfident_bins_by_their_confidence(self):
        assert oe(THREE_BINS) == pytest.approx(2 / 6 * 0.9 * 0.4)

    def test_oe_of_an_underconfident_model_is_zero(self):
        assert oe(TopLabel([0.6, 0.7, 0.8], [True, True, True])) == 0

    def test_l2_debiased_subtracts_the_noise_of_the_accuracies(self):
        rows = TopLabel([0.9] * 4 + [0.5] * 2, [True, False, False, False, True, True])
        first = 4 / 6 * (0.65**2 - 0.25 * 0.75 / 3)
        second = 2 / 6 * 0.5**2
        assert ece_l2_debiased(rows) == pytest.approx(math.sqrt(first + second))

    def test_l2_debiased_leaves_out_bins_of_a_single_sample(self):
        rows = TopLabel([0.9, 0.9, 0.3], [False, False, False])
        assert ece_l2_debiased(rows) == pytest.approx(math.sqrt(2 / 3 * 0.9**2))

    def test_l2_debiased_is_zero_where_noise_makes_it_negative(self):
        rows = TopLabel([0.5, 0.5], [True, False])
        assert float(ECEL2Debiased().squared(ECEL2Debiased().state(rows))) == pytest.approx(-0.25)
        assert ece_l2_debiased(rows) == 0

    def test_l1_debiased_equals_ece_where_accuracies_are_zero_or_one(self):
        rows = TopLabel([0.9, 0.9, 0.2, 0.2], [True, True, False, False])
        assert ece_l1_debiased(rows) == pytest.approx(ece(rows))


class TestOracles:
    @given(rows=top_labels())
    @many
    def test_one_bin_gives_the_gap_of_the_means(self, rows):
        gap = abs(rows.accuracy - float(rows.confidence.mean()))
        assert ece(rows, n_bins=1) == pytest.approx(gap, abs=1e-12)
        assert mce(rows, n_bins=1) == pytest.approx(gap, abs=1e-12)

    @given(rows=top_labels(), n_bins=st.integers(1, 40))
    @many
    def test_ece_is_at_least_the_gap_of_the_means(self, rows, n_bins):
        assert ece(rows, n_bins=n_bins) >= abs(rows.accuracy - float(rows.confidence.mean())) - 1e-12

    @given(rows=top_labels(), n_bins=st.integers(1, 40))
    @many
    def test_mce_is_at_least_ece(self, rows, n_bins):
        assert mce(rows, n_bins=n_bins) >= ece(rows, n_bins=n_bins) - 1e-12

    @given(rows=top_labels(), n_bins=st.integers(1, 40))
    @many
    def test_oe_is_at_most_ece(self, rows, n_bins):
        assert oe(rows, n_bins=n_bins) <= ece(rows, n_bins=n_bins) + 1e-12

    @given(rows=top_labels(truths=("all wrong",)))
    @many
    def test_ece_is_confidence_minus_accuracy_if_every_bin_is_overconfident(self, rows):
        assert ece(rows) == pytest.approx(float(rows.confidence.mean()) - rows.accuracy, abs=1e-12)

    @given(rows=top_labels(), n_bins=st.integers(1, 40))
    @many
    def test_ece_mce_and_oe_agree_with_a_loop_over_the_bins(self, rows, n_bins):
        bins = bins_by_hand(rows, n_bins)
        n = len(rows)
        assert sum(count for count, _, _ in bins) == n
        gaps = [abs(accuracy - confidence) for _, confidence, accuracy in bins]
        assert mce(rows, n_bins=n_bins) == pytest.approx(max(gaps), abs=1e-12)
        expected = sum(count / n * gap for (count, _, _), gap in zip(bins, gaps, strict=True))
        assert ece(rows, n_bins=n_bins) == pytest.approx(expected, abs=1e-12)
        over = sum(count / n * confidence * max(confidence - accuracy, 0) for count, confidence, accuracy in bins)
        assert oe(rows, n_bins=n_bins) == pytest.approx(over, abs=1e-12)

    @given(rows=top_labels(), n_bins=st.integers(1, 40))
    @many
    def test_l2_debiased_agrees_with_a_loop_over_the_bins(self, rows, n_bins):
        squared = sum(
            count / len(rows) * ((accuracy - confidence) ** 2 - accuracy * (1 - accuracy) / (count - 1))
            for count, confidence, accuracy in bins_by_hand(rows, n_bins)
            if count > 1
        )
        assert ece_l2_debiased(rows, n_bins=n_bins) == pytest.approx(math.sqrt(max(squared, 0)), abs=1e-7)

    @given(rows=top_labels(), n_bins=st.integers(1, 40))
    @many
    def test_l1_debiased_agrees_with_the_mean_of_the_folded_normal(self, rows, n_bins):
        inflated = plain = 0.0
        for count, confidence, accuracy in bins_by_hand(rows, n_bins):
            gap, noise = abs(accuracy - confidence), math.sqrt(accuracy * (1 - accuracy) / count)
            plain += count * gap
            inflated += count * (foldnorm.mean(gap / noise, scale=noise) if noise else gap)
        expected = max(2 * plain - inflated, 0) / len(rows)
        assert ece_l1_debiased(rows, n_bins=n_bins) == pytest.approx(expected, abs=1e-9)

    def test_the_probability_of_the_second_class_alone_is_not_the_confidence(self):
        # torchmetrics' binary ECE bins p(class 1); ours bins the confidence of the answer.
        rows = Predictions.from_probs([[0.8, 0.2], [0.3, 0.7]], [0, 0])
        assert ece(rows) == pytest.approx((0.2 + 0.7) / 2)

    def test_confidence_of_one_falls_in_the_last_bin(self):
        # torchmetrics puts it in a bin of its own: .525 for .475 on such data.
        rows = TopLabel([1.0, 0.95], [False, True])
        assert ece(rows, n_bins=10) == pytest.approx(0.475)


class TestBySimulation:
    @pytest.mark.parametrize(("n", "floor"), [(200, 0.084), (1000, 0.037), (5000, 0.018)])
    def test_a_calibrated_model_has_the_ece_that_the_docstring_says(self, uniform_bins, n, floor):
        assert float(ECE().value(uniform_bins[n]).mean()) == pytest.approx(floor, rel=0.07)

    @pytest.mark.parametrize("n", [200, 1000, 5000])
    def test_the_formula_for_the_bias_of_ece_holds(self, uniform_bins, n):
        state = uniform_bins[n]
        accuracy = (state.correct / state.count).mean(0)
        formula = 0.8 * float((state.count[0] * accuracy * (1 - accuracy)).sqrt().sum()) / n
        assert float(ECE().value(state).mean()) == pytest.approx(formula, rel=0.07)

    @pytest.mark.parametrize("n", [200, 1000, 5000])
    def test_the_debiased_square_averages_to_zero_on_calibrated_samples(self, uniform_bins, n):
        squared = ECEL2Debiased().squared(uniform_bins[n])
        # The bins are those of the binned model, so what is left of zero is noise.
        error = float(squared.std()) / math.sqrt(len(squared))
        assert abs(float(squared.mean())) < 4 * error

    def test_the_debiased_square_averages_to_the_true_square_of_a_miscalibrated_model(self):
        confidence = np.repeat([0.55, 0.75, 0.95], 100)
        truth = np.repeat([0.5, 0.6, 0.9], 100)
        right = torch.from_numpy(np.random.default_rng(0).random((4000, 300)) < truth).double()
        rising = torch.from_numpy(confidence)
        state = BinnedMoments().of_ranked(Ranked(torch.logit(rising), rising, right, 1 - right))
        squared = ECEL2Debiased().squared(state)
        error = float(squared.std()) / math.sqrt(len(squared))
        assert float(squared.mean()) == pytest.approx(((confidence - truth) ** 2).mean(), abs=4 * error)

    @pytest.mark.parametrize("n", [1000, 5000])
    def test_l1_debiasing_removes_two_fifths_of_the_bias_on_calibrated_samples(self, uniform_bins, n):
        # A gap that is all noise is estimated as 2 |N(0, s²)| less the mean of |N(0, 2 s²)|: 2 - √2 of it remains.
        plain, debiased = ECE().value(uniform_bins[n]).mean(), ECEL1Debiased().value(uniform_bins[n]).mean()
        assert float(debiased / plain) == pytest.approx(2 - math.sqrt(2), abs=0.03)

    def test_l1_debiasing_goes_a_little_too_far_where_the_gap_is_half_as_large_again_as_the_noise(self):
        confidence = np.sort(np.random.default_rng(3).uniform(0.5, 1, 1000))
        right = torch.from_numpy(np.random.default_rng(4).random((4000, 1000)) < confidence - 0.06).double()
        rising = torch.from_numpy(confidence)
        state = BinnedMoments().of_ranked(Ranked(torch.logit(rising), rising, right, 1 - right))
        plain, debiased = (float(metric().value(state).mean()) for metric in (ECE, ECEL1Debiased))
        assert 0.056 < debiased < 0.06 < plain < 0.064

    @pytest.mark.parametrize("gap", [0.05, 0.15])
    def test_the_analytic_interval_covers_the_truth_as_often_as_it_says(self, gap):
        confidence = np.sort(np.random.default_rng(3).uniform(0.5, 1, 2000))
        right = torch.from_numpy(np.random.default_rng(4).random((1000, 2000)) < confidence - gap).double()
        rising = torch.from_numpy(confidence)
        state = BinnedMoments().of_ranked(Ranked(torch.logit(rising), rising, right, 1 - right))
        low, high = ECEL2Debiased().interval(state, 1.96)
        assert ((low <= gap) & (gap <= high)).double().mean() == pytest.approx(0.95, abs=0.025)

    def test_the_interval_holds_the_value_and_starts_at_zero_on_calibrated_samples(self, uniform_bins):
        metric, state = ECEL2Debiased(), uniform_bins[1000]
        low, high = metric.interval(state, 1.96)
        value = metric.value(state)
        assert torch.all(low <= value + 1e-12)
        assert torch.all(value <= high + 1e-12)
        assert (low == 0).double().mean() > 0.95

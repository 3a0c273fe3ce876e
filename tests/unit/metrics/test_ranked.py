"""Equal-mass bins, the largest cumulative gap and the kernel error, against loops over samples and pairs."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import predictions, top_labels

from calibrant.errors import InputError
from calibrant.metrics import ACE, KS, MMCE, RankedCells, ace, ks, mmce
from calibrant.metrics.states import PackedSamples, Ranked
from calibrant.predictions import Predictions, TopLabel

many = settings(max_examples=60)


def with_ties_averaged(rows):
    """Confidences in rising order, each with the mean correctness of the samples that tie with it."""
    confidence, correct = rows.top.confidence.numpy(), rows.top.correct.numpy().astype(float)
    order = np.argsort(confidence, kind="stable")
    confidence, correct = confidence[order], correct[order]
    _, group = np.unique(confidence, return_inverse=True)
    return confidence, (np.bincount(group, correct) / np.bincount(group))[group]


def calibrated(confidence, resamples, seed):
    """Many draws of correctness from these confidences, as ranked answers side by side."""
    rising = torch.from_numpy(np.sort(confidence))
    right = torch.from_numpy(np.random.default_rng(seed).random((resamples, len(rising))) < rising.numpy()).double()
    return Ranked(torch.logit(rising), rising, right, 1 - right)


class TestACE:
    def test_tied_samples_are_exchangeable(self):
        # Peers say anything from 0.0 (edges drop the smallest) to .46 (ties split by sample order).
        correct = [True] * 5 + [False] * 5
        assert ace(TopLabel([0.6] * 10, correct), n_bins=5) == pytest.approx(0.1)
        assert ace(TopLabel([0.6] * 10, correct[::-1]), n_bins=5) == pytest.approx(0.1)

    def test_by_hand(self):
        rows = TopLabel([0.5, 0.6, 0.8, 0.9], [True, False, True, True])
        assert ace(rows, n_bins=2) == pytest.approx((abs(1.1 - 1) + abs(1.7 - 2)) / 4)

    @given(rows=top_labels(), n_bins=st.integers(1, 40))
    @many
    def test_it_agrees_with_bins_of_the_sorted_samples_that_differ_in_size_by_at_most_one(self, rows, n_bins):
        confidence, correct = with_ties_averaged(rows)
        edges = [len(rows) * b // n_bins for b in range(n_bins + 1)]
        sizes = np.diff(edges)
        assert sizes.max() - sizes.min() <= 1
        gaps = [abs((correct - confidence)[low:high].sum()) for low, high in itertools.pairwise(edges)]
        assert ace(rows, n_bins=n_bins) == pytest.approx(sum(gaps) / len(rows), abs=1e-12)

    @given(rows=top_labels())
    @many
    def test_one_bin_gives_the_gap_of_the_means(self, rows):
        assert ace(rows, n_bins=1) == pytest.approx(abs(rows.accuracy - float(rows.confidence.mean())), abs=1e-12)

    @given(rows=top_labels(), n_bins=st.integers(1, 40))
    @many
    def test_it_is_at_least_the_gap_of_the_means(self, rows, n_bins):
        assert ace(rows, n_bins=n_bins) >= abs(rows.accuracy - float(rows.confidence.mean())) - 1e-12

    def test_more_bins_than_samples_give_the_mean_distance_of_confidence_from_truth(self):
        rows = TopLabel([0.9, 0.7, 0.2], [True, False, True])
        assert ace(rows, n_bins=100) == pytest.approx((0.1 + 0.7 + 0.8) / 3)

    def test_it_needs_a_bin(self):
        with pytest.raises(InputError, match="n_bins must be at least 1; got 0"):
            ace(TopLabel([0.5], [True]), n_bins=0)


class TestKS:
    def test_by_hand(self):
        # Drift after each sample: -.5, -.1, -.9 (of three samples).
        rows = TopLabel([0.5, 0.6, 0.8], [False, True, False])
        assert ks(rows) == pytest.approx(0.9 / 3)

    @given(rows=top_labels())
    @many
    def test_it_agrees_with_a_running_sum_over_distinct_confidences(self, rows):
        confidence, correct = with_ties_averaged(rows)
        ends = np.append(np.diff(confidence) > 0, True)
        expected = np.abs(np.cumsum(correct - confidence)[ends]).max() / len(rows)
        assert ks(rows) == pytest.approx(expected, abs=1e-12)

    @given(rows=st.one_of(top_labels(), predictions()))
    @many
    def test_it_is_at_least_the_gap_of_the_means(self, rows):
        top = rows.top
        assert ks(rows) >= abs(top.accuracy - float(top.confidence.mean())) - 1e-6

    @given(rows=top_labels(truths=("all wrong",)))
    @many
    def test_it_is_the_gap_of_the_means_if_gaps_never_change_sign(self, rows):
        assert ks(rows) == pytest.approx(float(rows.confidence.mean()), abs=1e-12)

    def test_its_bias_on_calibrated_samples_is_that_of_the_maximum_of_a_random_walk(self):
        confidence = np.random.default_rng(0).uniform(0.5, 1, 2000)
        values = KS().value(calibrated(confidence, 2000, 1))
        scale = math.sqrt((confidence * (1 - confidence)).mean() / 2000)
        # The mean of max |W| of a Wiener process on 0..1 is √(π/2) = 1.25; a walk of 2000 steps has a little less.
        assert float(values.mean()) / scale == pytest.approx(1.25, abs=0.05)


class TestMMCE:
    def test_by_hand(self):
        gaps, kernel = [0.1, -0.6], math.exp(-0.3 / 0.4)
        expected = math.sqrt(gaps[0] ** 2 + gaps[1] ** 2 + 2 * gaps[0] * gaps[1] * kernel) / 2
        assert mmce(TopLabel([0.9, 0.6], [True, False])) == pytest.approx(expected)

    @given(rows=top_labels(), width=st.sampled_from([0.05, 0.4, 3.0]))
    @many
    def test_it_agrees_with_the_double_sum(self, rows, width):
        confidence = rows.confidence.numpy()
        gap = rows.correct.numpy() - confidence
        kernel = np.exp(-np.abs(confidence[:, None] - confidence) / width)
        expected = math.sqrt(max(gap @ kernel @ gap, 0)) / len(rows)
        assert MMCE(width=width)(rows) == pytest.approx(expected, abs=1e-7)

    @given(rows=top_labels())
    @many
    def test_it_tends_to_the_gap_of_the_means_for_a_wide_kernel(self, rows):
        gap = abs(rows.accuracy - float(rows.confidence.mean()))
        assert MMCE(width=1e6)(rows) == pytest.approx(gap, abs=1e-3)

    def test_its_root_mean_square_on_calibrated_samples_is_what_the_docstring_says(self):
        confidence = np.random.default_rng(0).uniform(0.5, 1, 500)
        values = MMCE().value(calibrated(confidence, 2000, 1))
        scale = math.sqrt((confidence * (1 - confidence)).mean() / 500)
        assert math.sqrt(float(values.square().mean())) == pytest.approx(scale, rel=0.03)

    @pytest.mark.parametrize("width", [1e-3, 1e-4])
    def test_a_narrow_kernel_tends_to_the_root_of_the_summed_squares(self, width):
        rows = TopLabel([0.9, 0.6, 0.3], [True, False, True])
        assert MMCE(width=width)(rows) == pytest.approx(math.sqrt(0.1**2 + 0.6**2 + 0.7**2) / 3)


class TestBoundedMemory:
    """The cells of log-odds join neighbours, so they are close to the exact ranks and not equal."""

    @pytest.mark.parametrize("metric", [ACE, KS, MMCE])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_cells_are_close_to_exact_ranks(self, metric, dtype):
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(3000, 5, generator=generator, dtype=dtype) * 4
        labels = torch.multinomial((logits / 2).softmax(1), 1, generator=generator)[:, 0]
        rows = Predictions.from_logits(logits, labels)
        assert metric(ranks=RankedCells())(rows) == pytest.approx(metric()(rows), abs=2e-4)

    @pytest.mark.parametrize("metric", [ACE, KS, MMCE])
    def test_coarsened_ranks_are_close_to_exact_ranks(self, metric):
        generator = torch.Generator().manual_seed(0)
        confidence = torch.rand(5000, generator=generator, dtype=torch.float64)
        rows = TopLabel(confidence, torch.rand(5000, generator=generator) < confidence**2)
        ranked = PackedSamples.gather(rows.log_odds, rows.correct).ranked
        coarse = ranked.merged(ranked.cells(500))
        assert coarse.confidence.shape == (500,)
        assert float(metric().value(coarse)) == pytest.approx(float(metric().value(ranked)), abs=2e-3)

"""Kernel-smoothed calibration errors, against sums over all samples and pairs without a grid of nodes."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from scipy.optimize import brentq
from strategies import top_labels

from calibrant.metrics import SmECE, ece, kde_ece, sece, sece_printed, smece
from calibrant.predictions import TopLabel

some = settings(max_examples=25)


def sample(n, seed, *, accuracy=lambda c: c, a=3.0, b=1.0):
    """Beta confidences, and correctness with a chance that is a function of them."""
    rng = np.random.default_rng(seed)
    confidence = rng.beta(a, b, n)
    return TopLabel(confidence, rng.random(n) < accuracy(confidence))


SAMPLES = {
    "calibrated": sample(120, 0),
    "overconfident": sample(120, 1, accuracy=lambda c: c**3),
    "underconfident": sample(120, 2, accuracy=np.sqrt),
    "two-sided": sample(150, 3, accuracy=lambda c: 1 - c),
    "small": sample(30, 4, accuracy=lambda c: c**2),
    "at the ends": TopLabel([0.0, 0.0, 1.0, 1.0, 0.5], [True, False, True, False, False]),
}
each_sample = pytest.mark.parametrize("rows", SAMPLES.values(), ids=SAMPLES.keys())


def gaussian(x, width):
    return np.exp(-((x / width) ** 2) / 2) / (width * math.sqrt(2 * math.pi))


def triweight(x, deviation):
    u = x / (3 * deviation)  # the triweight on -1..1 has standard deviation 1/3
    return np.where(np.abs(u) < 1, 35 / 32 * (1 - u**2) ** 3, 0) / (3 * deviation)


def mirrored(kernel, t, centre, width):
    """The kernel with all that leaves 0..1 reflected back, at every t (rows) around every centre (columns)."""
    return sum(kernel(t + shift - sign * centre, width) for shift in (-4, -2, 0, 2, 4) for sign in (1, -1))


def smooth_error(rows, width, nodes=1501):
    """∫|Σ_i (a_i − c_i) K(t, c_i)|/n dt by the trapezoid rule."""
    confidence, correct = rows.confidence.numpy(), rows.correct.numpy()
    t = np.linspace(0, 1, nodes)
    values = np.abs(mirrored(gaussian, t[:, None], confidence, width) @ (correct - confidence)) / len(rows)
    return np.trapezoid(values, t)


class TestSmECE:
    @each_sample
    def test_it_is_the_width_that_equals_its_own_error(self, rows):
        expected = brentq(lambda width: smooth_error(rows, width) - width, 2e-3, 1)
        assert smece(rows) == pytest.approx(expected, abs=1e-4)

    @pytest.mark.parametrize("rows", [TopLabel([1.0] * 5, [True] * 5), TopLabel([0.5] * 4, [True, True, False, False])])
    def test_samples_without_any_gap_have_none_beyond_the_grid(self, rows):
        assert smece(rows) <= 0.002

    @given(rows=top_labels())
    @some
    def test_it_is_at_least_the_gap_of_the_means(self, rows):
        # Smoothing keeps the integral of the gaps, and the integral of |·| is at least that.
        assert smece(rows) >= abs(rows.accuracy - float(rows.confidence.mean())) - 1e-6

    def test_it_changes_little_when_a_confidence_does(self):
        # Binned errors jump when a confidence crosses an edge; this one cannot.
        rng = np.random.default_rng(0)
        correct = rng.random(100) < 0.5
        before = TopLabel(np.full(100, 0.6 - 1e-4), correct)
        after = TopLabel(np.full(100, 0.6 + 1e-4), correct)
        assert smece(after) == pytest.approx(smece(before), abs=3e-4)

    @pytest.mark.parametrize("n", [200, 1000, 5000])
    def test_its_bias_on_calibrated_samples_falls_as_the_cube_root_of_n(self, n):
        confidence = np.random.default_rng(0).random(n)
        values = [smece(TopLabel(confidence, np.random.default_rng(s).random(n) < confidence)) for s in range(1, 31)]
        assert np.mean(values) * n ** (1 / 3) == pytest.approx(0.34, abs=0.07)


class TestKDEECE:
    @each_sample
    def test_it_agrees_with_the_integral_over_sums_of_kernels(self, rows):
        confidence, correct = rows.confidence.numpy(), rows.correct.numpy()
        width = max(1.06 * confidence.std() * len(rows) ** -0.2, 4 / 2048)
        t = np.linspace(0, 1, 4001)
        kernels = mirrored(triweight, t[:, None], confidence, width)
        density, right = kernels.sum(axis=1), kernels @ correct
        shares = np.minimum(np.divide(right, density, out=np.zeros_like(t), where=density > 0), 1)
        expected = np.trapezoid(np.abs(t - shares) * density, t) / np.trapezoid(density, t)
        assert kde_ece(rows) == pytest.approx(expected, abs=2e-4)

    def test_a_single_confidence_gives_about_its_gap(self):
        assert kde_ece(TopLabel([0.7] * 10, [True] * 5 + [False] * 5)) == pytest.approx(0.2, abs=1e-3)


class TestSECE:
    @staticmethod
    def double_sum(rows, width):
        confidence, correct = rows.confidence.numpy(), rows.correct.numpy()
        kernel = np.exp(-(((confidence[:, None] - confidence) / width) ** 2) / 2)
        return np.abs(kernel @ correct / kernel.sum(axis=1) - confidence).mean()

    @each_sample
    @pytest.mark.parametrize("width", [0.01, 0.05, 0.3])
    def test_it_agrees_with_the_double_sum(self, rows, width):
        assert sece(rows, width=width) == pytest.approx(
            self.double_sum(rows, width), abs=1e-3 if width < 0.02 else 1e-4
        )

    @given(rows=top_labels())
    @some
    def test_a_wide_kernel_gives_the_mean_distance_from_the_accuracy(self, rows):
        expected = float((rows.accuracy - rows.confidence).abs().mean())
        assert sece(rows, width=1e4) == pytest.approx(expected, abs=1e-3)

    def test_a_narrow_kernel_gives_the_mean_distance_from_the_truth_and_not_the_brier_score(self):
        rng = np.random.default_rng(0)
        confidence = rng.permutation(np.linspace(0.02, 0.98, 60))  # no two samples share a node
        correct = rng.random(60) < confidence
        distance = np.abs(correct - confidence)
        assert sece(TopLabel(confidence, correct), width=1e-6) == pytest.approx(distance.mean(), abs=1e-6)
        assert distance.mean() != pytest.approx((distance**2).mean(), rel=0.1)

    @pytest.mark.parametrize(("n", "draws", "floor", "plain"), [(128, 200, 0.087, 0.064), (512, 60, 0.047, 0.036)])
    def test_its_floor_on_calibrated_samples_lies_above_that_of_ece(self, n, draws, floor, plain):
        # METHODS §3.12, whose confidences are Beta(6, 1).
        rows = [sample(n, seed, a=6.0) for seed in range(draws)]
        assert np.mean([sece(r) for r in rows]) == pytest.approx(floor, abs=0.003)
        assert np.mean([ece(r) for r in rows]) == pytest.approx(plain, abs=0.003)

    def test_its_floor_at_ten_thousand_samples_is_still_a_hundredth(self):
        rows = [sample(10_000, seed, a=6.0) for seed in range(10)]
        assert np.mean([sece(r) for r in rows]) == pytest.approx(0.0105, abs=0.0025)

    def test_it_is_no_upper_bound_of_ece(self):
        # Where the gap has one sign both estimate the same, and either may be the larger.
        rows = [sample(10_000, seed, accuracy=lambda c: c**1.5, a=6.0) for seed in range(10)]
        differences = [sece(r) - ece(r) for r in rows]
        assert min(differences) < 0


class TestSECEPrinted:
    @each_sample
    def test_it_agrees_with_the_printed_equation(self, rows):
        confidence, correct = rows.confidence.numpy(), rows.correct.numpy()
        kernel = np.exp(-(((confidence[:, None] - confidence) / 0.01) ** 2) / 2)
        expected = np.abs(correct * kernel.sum(axis=1) - confidence).mean()
        assert sece_printed(rows) == pytest.approx(expected, rel=2e-3)

    @pytest.mark.parametrize(("n", "value"), [(128, 9.3), (10_000, 721)])
    def test_it_grows_with_the_number_of_samples(self, n, value):
        mean = np.mean([sece_printed(sample(n, seed, a=6.0)) for seed in range(max(1, 2000 // n))])
        assert mean == pytest.approx(value, rel=0.06)


def test_the_state_keeps_mass_and_mean_of_every_sample():
    rows = SAMPLES["overconfident"]
    state = SmECE().state(rows)
    nodes = torch.linspace(0, 1, state.total.shape[-1], dtype=torch.float64)
    assert float(state.total.sum()) == pytest.approx(len(rows))
    assert float((state.total * nodes).sum()) == pytest.approx(float(rows.confidence.sum()))
    assert float((state.right * nodes).sum()) == pytest.approx(float(rows.confidence[rows.correct].sum()))

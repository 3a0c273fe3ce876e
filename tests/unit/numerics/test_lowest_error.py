"""No temperature has a lower error: against brute force over thousands of them."""

import math

import pytest
import torch

from calibrant.datasets import load_resnet110
from calibrant.numerics.binning import errors_at_temperatures, lowest_error


def made(n=2000, k=6, *, sharper=3.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, k, generator=generator)
    labels = logits.softmax(1).multinomial(1, generator=generator)[:, 0]
    return sharper * logits, labels


def lowest_of(logits, labels, low, high, *, points=1000, n_bins=15):
    tried = torch.linspace(math.log(low), math.log(high), points, dtype=torch.float64).exp()
    return float(errors_at_temperatures(logits, labels, tried, n_bins=n_bins).min())


def check_against_brute_force(logits, labels, n_bins=15):
    """Over all temperatures, and closely about the one found."""
    found = lowest_error(logits, labels, n_bins=n_bins)
    own = float(errors_at_temperatures(logits, labels, torch.tensor([found.temperature]), n_bins=n_bins))
    assert found.error == pytest.approx(own, abs=1e-6)
    for low, high in ((1e-3, 1e4), (found.temperature / 1.1, found.temperature * 1.1)):
        assert found.error <= lowest_of(logits, labels, low, high, n_bins=n_bins) + 1e-4
    return found


@pytest.mark.parametrize(
    ("bad", "margin", "most"), [(250, 60.0, 0.065), (250, 100.0, 0.065), (25, 1000.0, 0.02), (500, 40.0, 0.12)]
)
def test_a_few_samples_that_are_confidently_wrong_do_not_hide_the_lowest(bad, margin, most):
    logits, labels = made(5000, 10)
    logits[:bad] = 0
    logits[range(bad), (labels[:bad] + 1) % 10] = margin
    found = lowest_error(logits, labels, n_bins=15)
    assert found.temperature == pytest.approx(3, rel=0.15)
    assert found.error < most
    assert found.error <= lowest_of(logits, labels, 2.4, 3.6) + 1e-4


@pytest.mark.parametrize("n_bins", [1, 15, 40])
@pytest.mark.parametrize("sharper", [0.05, 1.0, 30.0])
def test_no_temperature_of_thousands_has_a_lower_one(sharper, n_bins):
    for seed in range(2):
        check_against_brute_force(*made(1000, 5, sharper=sharper, seed=seed), n_bins)


def test_whole_weights_are_repetitions_and_their_scale_does_not_matter():
    logits, labels = made(1000, 5)
    times = torch.randint(0, 5, (1000,), generator=torch.Generator().manual_seed(1))
    repeated = lowest_error(logits.repeat_interleave(times, 0), labels.repeat_interleave(times), n_bins=15)
    for weights in (times.double(), 1e-3 * times.double()):
        found = lowest_error(logits, labels, n_bins=15, weights=weights)
        assert found == pytest.approx(repeated, rel=1e-4)
    assert found.error != pytest.approx(lowest_error(logits, labels, n_bins=15).error, rel=1e-2)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 30])
def test_few_samples_with_labels_by_chance(n):
    for seed in range(2):
        logits, _ = made(n, 4, seed=seed)
        check_against_brute_force(logits, torch.randint(4, (n,), generator=torch.Generator().manual_seed(seed)))


def test_real_samples():
    bundled = load_resnet110()
    for rows in (bundled.calibration, bundled.test):
        found = lowest_error(rows.logits, rows.labels, n_bins=15)
        near = found.temperature / 1.05, found.temperature * 1.05
        assert found.error <= lowest_of(rows.logits, rows.labels, *near, points=200) + 1e-4


@pytest.mark.parametrize("factor", [1e-12, 1e-3, 7.0, 1e9])
def test_the_scale_of_the_logits_does_not_matter(factor):
    logits, labels = made()
    found, scaled = (lowest_error(rows, labels, n_bins=15) for rows in (logits.double(), factor * logits.double()))
    assert scaled.error == pytest.approx(found.error, abs=2e-4)
    assert scaled.temperature / factor == pytest.approx(found.temperature, rel=2e-2)


def test_single_precision_holds_small_and_large_logits():
    logits, labels = made()
    for factor in (1e-20, 1e20):
        assert lowest_error(factor * logits, labels, n_bins=15).error < 0.03


def test_samples_of_very_different_scale():
    logits, labels = made()
    logits[:200] *= 1e6
    check_against_brute_force(logits, labels)


def test_samples_that_are_all_right_are_best_at_the_lowest_temperature_and_all_wrong_at_the_highest():
    logits, _ = made(200, 5)
    assert lowest_error(logits, logits.argmax(dim=1), n_bins=15).error == pytest.approx(0, abs=1e-6)
    assert lowest_error(logits, logits.argmin(dim=1), n_bins=15).error == pytest.approx(1 / 5, abs=1e-5)


def test_ties_for_the_top_class():
    generator = torch.Generator().manual_seed(3)
    logits = torch.randint(0, 3, (400, 4), generator=generator).float()
    labels = torch.where(torch.rand(400, generator=generator) < 0.5, logits.argmax(dim=1), 0)
    check_against_brute_force(logits, labels)


def test_logits_that_are_all_alike_keep_their_temperature():
    assert lowest_error(torch.ones(20, 4), torch.arange(20) % 4, n_bins=15).temperature == 1


def test_temperatures_given_are_tried_and_the_answer_is_the_same_each_time():
    logits, labels = made(300, 3)
    found = lowest_error(logits, labels, n_bins=15)
    assert lowest_error(logits, labels, n_bins=15) == found
    for also in (0.01, 2.9, 1e3):
        error = float(errors_at_temperatures(logits, labels, torch.tensor([also]), n_bins=15))
        # Side by side with others, a temperature's confidences may be rounded otherwise than alone.
        rounding = 4 * torch.finfo(logits.dtype).eps
        assert lowest_error(logits, labels, also=[also], n_bins=15).error <= min(error, found.error) + rounding

"""Known truth by simulation: do intervals of a shift hold it, and do its tests keep their level, and see changes?"""

from functools import partial
from statistics import mean

import numpy as np
import pytest
import torch
from experiments.intervals.shift import Gaussians, cases

SIMULATIONS = 100
SOURCE = Gaussians.made(5, 1.7, unequal=0.5, dimensions=3, seed=5)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def simulated(spread: float, noise: float = 1.0):
    draw_new = partial(SOURCE.draw, noise=noise)
    how = {"simulations": SIMULATIONS, "spread": spread, "draw_new": draw_new}
    return list(cases(SOURCE.draw, SOURCE.shares, (600, 300), **how))


@pytest.fixture(scope="module")
def same():
    return simulated(0.0)


@pytest.fixture(scope="module")
def shifted():
    return simulated(1.0)


def test_tests_reject_what_is_true_in_about_one_case_of_twenty(same, shifted):
    """Of 100 cases, more than 11 rejected would have a chance of 1 in 200."""
    assert sum(one.shift.is_changed for one in same) <= 11
    assert sum(any(of.is_changed for of in one.shift.classes) for one in same) <= 11
    assert sum(not one.shift.is_label_shift for one in same) <= 11
    assert sum(not one.shift.is_label_shift for one in shifted) <= 11


def test_tests_see_other_proportions_and_other_samples(shifted):
    assert sum(one.shift.is_changed for one in shifted) >= 95
    assert sum(not one.shift.is_label_shift for one in simulated(1.0, noise=1.5)) >= 75


def test_intervals_hold_the_true_proportions(same, shifted):
    """95 % are expected; the five of a case depend on each other, so that 500 count as some 400."""
    for made in (same, shifted):
        assert mean(one.held for one in made) >= 0.92
        errors = [[of.new.value for of in one.shift.classes] - one.shares for one in made]
        assert np.abs(np.mean(errors, axis=0)).max() <= 0.012


def test_intervals_hold_the_accuracy_that_labels_would_show(same, shifted):
    for made in (same, shifted):
        given = [(one.shift.expected["given"].accuracy, one.accuracy) for one in made]
        assert sum(estimated.low <= true <= estimated.high for estimated, true in given) >= 88
        assert abs(mean(estimated.value - true for estimated, true in given)) <= 0.01


def test_adjusted_predictions_are_as_good_as_expected(shifted):
    rng, gaps = np.random.default_rng(0), []
    for one in shifted[:40]:
        adjusted = one.shift.map.transform(SOURCE.draw(10_000, one.shares, rng))
        nll = float(torch.nn.functional.cross_entropy(adjusted.logits, adjusted.labels))
        expected = one.shift.expected["adjusted"]
        gaps.append((expected.accuracy.value - adjusted.top.accuracy, expected.nll.value - nll))
        gaps[-1] += (expected.accuracy.low <= adjusted.top.accuracy <= expected.accuracy.high,)
        gaps[-1] += (expected.nll.low <= nll <= expected.nll.high,)
    of_accuracy, of_nll, held, loss_held = np.mean(gaps, axis=0)
    assert abs(of_accuracy) <= 0.015
    assert abs(of_nll) <= 0.03
    assert min(held, loss_held) >= 0.85

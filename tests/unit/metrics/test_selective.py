"""Risk at every coverage, against running means over all orders of tied samples."""

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import top_labels

from calibrant.metrics import accuracy, augrc, aurc, auroc, e_aurc
from calibrant.predictions import TopLabel

many = settings(max_examples=60)


def selective_risks(wrong_from_the_top):
    return np.cumsum(wrong_from_the_top) / np.arange(1, len(wrong_from_the_top) + 1)


def from_the_top(rows, rng):
    """Whether each answer is wrong, the most confident first, ties in random order."""
    order = np.lexsort((rng.random(len(rows)), -rows.confidence.numpy()))
    return ~rows.correct.numpy()[order]


class TestAURC:
    def test_by_hand(self):
        rows = TopLabel([0.9, 0.8, 0.7, 0.6], [True, False, True, False])
        assert aurc(rows) == pytest.approx((0 + 1 / 2 + 1 / 3 + 2 / 4) / 4)

    @given(rows=top_labels(kinds=("spread",)))
    @many
    def test_it_is_the_mean_of_the_running_error_rate(self, rows):
        assert aurc(rows) == pytest.approx(selective_risks(from_the_top(rows, np.random.default_rng(0))).mean())

    @pytest.mark.parametrize(
        ("confidence", "correct"),
        [
            ([0.7] * 4, [True, False, False, True]),
            ([0.9, 0.7, 0.7, 0.7, 0.5], [False, True, True, False, True]),
            ([0.9, 0.9, 0.6, 0.6, 0.3, 0.3], [True, False, False, False, True, True]),
            ([1.0, 1.0, 1.0, 0.0, 0.0], [False, True, True, True, False]),
        ],
    )
    def test_it_is_the_expectation_over_every_order_of_tied_samples(self, confidence, correct):
        rows = TopLabel(confidence, correct)
        orders = [o for o in permutations(range(len(rows))) if np.all(np.diff(np.array(confidence)[list(o)]) <= 0)]
        means = [selective_risks(~np.array(correct)[list(order)]).mean() for order in orders]
        assert len(orders) > 1
        assert aurc(rows) == pytest.approx(np.mean(means), abs=1e-12)

    def test_it_is_the_expectation_over_random_orders_of_many_ties(self):
        rng = np.random.default_rng(0)
        rows = TopLabel(rng.integers(3, 11, 200) / 10, rng.random(200) < 0.7)
        means = [selective_risks(from_the_top(rows, rng)).mean() for _ in range(2000)]
        assert aurc(rows) == pytest.approx(np.mean(means), abs=4 * np.std(means) / math.sqrt(2000))

    def test_confidences_that_say_nothing_give_the_error_rate(self):
        assert aurc(TopLabel([0.7] * 10, [True] * 8 + [False] * 2)) == pytest.approx(0.2)

    @pytest.mark.parametrize(("correct", "risk"), [(True, 0.0), (False, 1.0)])
    def test_all_right_and_all_wrong_are_zero_and_one(self, correct, risk):
        rows = TopLabel([0.9, 0.8, 0.8], [correct] * 3)
        assert aurc(rows) == risk
        assert e_aurc(rows) == 0


class TestEAURC:
    @given(rows=top_labels())
    @many
    def test_it_is_aurc_less_that_of_the_perfect_ranking(self, rows):
        best = selective_risks(np.sort(~rows.correct.numpy())).mean()
        assert e_aurc(rows) == pytest.approx(aurc(rows) - best, abs=1e-12)
        assert e_aurc(rows) >= 0

    def test_a_perfect_ranking_has_none(self):
        assert e_aurc(TopLabel(np.linspace(0.1, 0.9, 50), np.arange(50) > 20)) == pytest.approx(0, abs=1e-12)

    def test_the_worst_ranking_has_more_than_any_other(self):
        right = np.arange(50) > 20
        worst = e_aurc(TopLabel(np.linspace(0.9, 0.1, 50), right))
        rng = np.random.default_rng(0)
        assert all(e_aurc(TopLabel(rng.random(50), right)) < worst for _ in range(20))


class TestAUGRC:
    def test_by_hand(self):
        # Accepted and wrong: 0, 0, 1/2 at coverages 0, 1/2, 1.
        assert augrc(TopLabel([0.9, 0.6], [True, False])) == pytest.approx(0.5 * 0.5 * 0.5)

    @given(rows=top_labels())
    @many
    def test_it_is_the_area_under_the_share_accepted_and_wrong(self, rows):
        confidence, wrong = rows.confidence.numpy(), ~rows.correct.numpy()
        thresholds = np.unique(confidence)[::-1]
        coverage = [0.0, *((confidence >= t).mean() for t in thresholds)]
        risk = [0.0, *((wrong & (confidence >= t)).mean() for t in thresholds)]
        assert augrc(rows) == pytest.approx(np.trapezoid(risk, coverage), abs=1e-12)

    @given(rows=top_labels(truths=("calibrated", "any")))
    @many
    def test_it_is_made_of_auroc_and_accuracy(self, rows):
        right = accuracy(rows)
        if 0 < right < 1:
            expected = (1 - auroc(rows)) * right * (1 - right) + (1 - right) ** 2 / 2
            assert augrc(rows) == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize(("correct", "area"), [(True, 0.0), (False, 0.5)])
    def test_all_right_and_all_wrong_are_zero_and_a_half(self, correct, area):
        assert augrc(TopLabel([0.9, 0.8, 0.8], [correct] * 3)) == pytest.approx(area)

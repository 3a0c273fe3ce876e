"""Telling right answers from wrong ones, against brute force over all pairs and all thresholds."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata
from strategies import predictions, top_labels

from calibrant.metrics import AUROC, RankedCells, aupr_error, aupr_success, auroc, fpr95
from calibrant.metrics.states import Cells
from calibrant.predictions import Predictions, TopLabel

ROWS = TopLabel([0.9, 0.8, 0.7, 0.6], [True, True, False, True])
many = settings(max_examples=60)


def split(rows):
    confidence, correct = rows.top.confidence.numpy(), rows.top.correct.numpy()
    return confidence[correct], confidence[~correct]


def average_precision(scores, positive):
    """Σ (recall gained) · precision over falling thresholds, tied scores entering together."""
    total = 0.0
    for threshold in np.unique(scores):
        taken = scores >= threshold
        total += (positive & (scores == threshold)).sum() / positive.sum() * positive[taken].mean()
    return total


class TestAUROC:
    def test_by_hand(self):
        assert auroc(ROWS) == pytest.approx(2 / 3)

    def test_tied_pairs_count_half(self):
        assert auroc(TopLabel([0.7, 0.7], [True, False])) == 0.5
        assert auroc(TopLabel([0.7, 0.7, 0.7, 0.9], [True, False, False, True])) == pytest.approx(
            (1 + 1 + 0.5 + 0.5) / 4
        )

    @given(rows=top_labels(min_rows=2))
    @many
    def test_it_agrees_with_a_count_over_all_pairs(self, rows):
        right, wrong = split(rows)
        if not (right.size and wrong.size):
            assert math.isnan(auroc(rows))
            return
        difference = right[:, None] - wrong
        assert auroc(rows) == pytest.approx(((difference > 0) + (difference == 0) / 2).mean(), abs=1e-12)

    @given(rows=top_labels(min_rows=2, truths=("calibrated", "any")))
    @many
    def test_it_agrees_with_mid_ranks_less_hand_and_tills_correction(self, rows):
        right, wrong = split(rows)
        if right.size and wrong.size:
            ranks = rankdata(rows.confidence.numpy())[rows.correct.numpy()]
            expected = (ranks.sum() - right.size * (right.size + 1) / 2) / (right.size * wrong.size)
            assert auroc(rows) == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize(("mean", "printed"), [(0.5, 0.69), (0.6, 1.10), (0.7, 1.66), (0.8, 2.59), (0.9, 5.2)])
    def test_equation_4_as_printed_exceeds_one_once_most_answers_are_right(self, mean, printed):
        # METHODS §9.1: it sums the ranks of the right answers and subtracts the correction of the wrong ones.
        rng = np.random.default_rng(0)
        confidence = rng.beta(8 * mean, 8 * (1 - mean), 50_000)
        correct = rng.random(50_000) < confidence
        right, wrong = correct.sum(), (~correct).sum()
        value = (rankdata(confidence)[correct].sum() - wrong * (wrong + 1) / 2) / (right * wrong)
        assert value == pytest.approx(printed, rel=0.02, abs=0.04)
        assert auroc(TopLabel(confidence, correct)) < 0.85

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("temperature", [0.01, 0.37, 2.0, 50.0])
    def test_two_classes_keep_it_at_any_temperature(self, dtype, temperature):
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(2000, 2, generator=generator, dtype=dtype) * 5
        labels = torch.randint(0, 2, (2000,), generator=generator)
        warm = Predictions.from_logits(logits / temperature, labels)
        assert auroc(warm) == pytest.approx(auroc(Predictions.from_logits(logits, labels)), abs=1e-6)

    def test_three_classes_need_not_keep_it_at_any_temperature(self):
        # The first sample leads one class by much, the second two classes by less each: a temperature swaps them.
        logits, labels = torch.tensor([[3.0, 2.0, -9.0], [3.0, 1.6, 1.6]]), [0, 1]
        assert auroc(Predictions.from_logits(logits, labels)) == 1
        assert auroc(Predictions.from_logits(logits * 4, labels)) == 0

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    @pytest.mark.parametrize("k", [2, 3, 10, 50])
    def test_confidences_that_round_to_one_are_distinguished(self, dtype, k):
        # Gaps of 30, 40, …, 490: every float32 confidence is exactly 1 (the last ones in float64 too).
        gaps = torch.arange(30, 500, 10, dtype=dtype)
        logits = torch.zeros(len(gaps), k, dtype=dtype)
        logits[:, 1] = gaps
        labels = torch.where(gaps > 250, 1, 0)
        rows = Predictions.from_logits(logits, labels)
        if dtype != torch.float64:
            assert torch.all(rows.confidence == 1)
        assert auroc(rows) == 1
        assert auroc(Predictions.from_logits(logits, 1 - labels)) == 0

    @pytest.mark.parametrize("correct", [[True, True], [False, False]])
    def test_it_is_nan_without_right_or_without_wrong_answers(self, correct):
        assert math.isnan(auroc(TopLabel([0.9, 0.7], correct)))


class TestAUPR:
    def test_by_hand(self):
        assert aupr_success(ROWS) == pytest.approx((1 + 1 + 3 / 4) / 3)
        assert aupr_error(ROWS) == pytest.approx(1 / 2)

    @given(rows=top_labels())
    @many
    def test_both_agree_with_a_loop_over_the_thresholds(self, rows):
        confidence, correct = rows.confidence.numpy(), rows.correct.numpy()
        if correct.any():
            assert aupr_success(rows) == pytest.approx(average_precision(confidence, correct), abs=1e-12)
        if not correct.all():
            assert aupr_error(rows) == pytest.approx(average_precision(-confidence, ~correct), abs=1e-12)

    @given(rows=top_labels(kinds=("constant",)))
    def test_confidences_that_say_nothing_give_the_share_of_what_is_sought(self, rows):
        if rows.accuracy > 0:
            assert aupr_success(rows) == pytest.approx(rows.accuracy)
        if rows.accuracy < 1:
            assert aupr_error(rows) == pytest.approx(1 - rows.accuracy)

    def test_nothing_to_find_is_nan(self):
        assert math.isnan(aupr_success(TopLabel([0.9, 0.7], [False, False])))
        assert math.isnan(aupr_error(TopLabel([0.9, 0.7], [True, True])))
        assert aupr_success(TopLabel([0.9, 0.7], [True, True])) == 1
        assert aupr_error(TopLabel([0.9, 0.7], [False, False])) == 1


class TestFPR95:
    def test_by_hand(self):
        # All three right answers are accepted only from .6 up, and with them the one wrong answer.
        assert fpr95(ROWS) == 1
        assert fpr95(TopLabel([0.9, 0.8, 0.7, 0.6], [True, True, True, False])) == 0

    def test_one_right_answer_in_twenty_may_be_missed(self):
        confidence = [0.1, 0.2, *np.linspace(0.5, 0.9, 19)]
        assert fpr95(TopLabel(confidence, [True, False, *[True] * 19])) == 0
        assert fpr95(TopLabel(confidence[:-1], [True, False, *[True] * 18])) == 1

    @given(rows=top_labels(truths=("calibrated", "any")))
    @many
    def test_it_agrees_with_a_search_over_all_thresholds(self, rows):
        right, wrong = split(rows)
        if not (right.size and wrong.size):
            assert math.isnan(fpr95(rows))
            return
        good = [t for t in np.unique(rows.confidence.numpy()) if 20 * (right >= t).sum() >= 19 * right.size]
        assert fpr95(rows) == pytest.approx((wrong >= max(good)).mean(), abs=1e-12)


class TestBoundedMemory:
    @given(rows=st.one_of(predictions(min_rows=10), top_labels(min_rows=10)), cells=st.sampled_from([16, 256, 8192]))
    @many
    def test_the_area_is_off_by_no_more_than_the_cells_say(self, rows, cells):
        metric = AUROC(ranks=RankedCells(cells))
        state = metric.state(rows)
        assert isinstance(state, Cells)
        exact = auroc(rows)
        if not math.isnan(exact):
            assert abs(float(metric.value(state)) - exact) <= float(state.auroc_error) + 1e-6

    def test_the_stated_error_is_small_for_the_usual_number_of_cells(self):
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(20_000, 10, generator=generator) * 4
        labels = torch.multinomial((logits / 2).softmax(1), 1, generator=generator)[:, 0]
        rows = Predictions.from_logits(logits, labels)
        metric = AUROC(ranks=RankedCells())
        state = metric.state(rows)
        assert float(state.auroc_error) < 1e-3
        assert abs(float(metric.value(state)) - auroc(rows)) <= float(state.auroc_error)

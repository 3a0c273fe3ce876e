"""Log-loss and Brier scores, against sums over every class in float64."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from strategies import predictions, top_labels

from calibrant.errors import CalibrantWarning
from calibrant.metrics import brier, nll, top_brier
from calibrant.numerics.softmax import Wanted
from calibrant.predictions import LABEL_FLOOR, Predictions, TopLabel

many = settings(max_examples=60)


def probabilities(rows):
    logits = rows.logits.double().numpy()
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


class TestNLL:
    def test_by_hand(self):
        rows = Predictions.from_probs([[0.5, 0.5], [0.2, 0.8]], [0, 1])
        assert nll(rows) == pytest.approx((math.log(2) - math.log(0.8)) / 2)

    @given(rows=predictions())
    @many
    def test_it_agrees_with_log_softmax(self, rows):
        expected = torch.nn.functional.cross_entropy(rows.logits.double(), rows.labels)
        assert nll(rows) == pytest.approx(float(expected), rel=1e-5, abs=1e-6)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_a_confident_mistake_costs_its_gap(self, dtype):
        # scikit-learn clips float32 probabilities at 1.2e-7, a loss of 16.
        rows = Predictions.from_logits(torch.tensor([[1e4, 0.0, 0.0]], dtype=dtype), [1])
        assert nll(rows) == 1e4

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_a_confident_hit_costs_what_is_left(self, dtype):
        rows = Predictions.from_logits(torch.tensor([[30.0, 0.0]], dtype=dtype), [0])
        assert nll(rows) == pytest.approx(math.exp(-30), rel=1e-5, abs=0)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    @pytest.mark.parametrize("tiny", [0.0, 1e-40])
    def test_a_label_of_probability_zero_costs_the_same_in_every_type(self, dtype, tiny):
        probs = torch.tensor([[1.0, tiny], [1.0, tiny]], dtype=torch.float64).to(dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrantWarning)
            rows = Predictions.from_probs(probs, [0, 1])
        assert nll(rows) == pytest.approx(-math.log(LABEL_FLOOR) / 2, rel=1e-6)
        assert brier(rows) == 1.0

    def test_a_label_of_probability_zero_warns(self):
        with pytest.warns(CalibrantWarning, match="1 of 2 true classes were given probability 0"):
            Predictions.from_probs([[1.0, 0.0], [1.0, 0.0]], [0, 1])

    def test_logits_have_no_floor(self):
        rows = Predictions.from_logits([[0.0, -1000.0]], [1])
        assert nll(rows) == 1000.0

    def test_the_true_probabilities_have_the_lowest_expected_score(self):
        truth = np.array([0.6, 0.3, 0.1])
        rows = np.repeat(np.arange(3), (truth * 10).astype(int))

        def score(metric, probs):
            return metric(Predictions.from_probs(np.tile(probs, (10, 1)), rows))

        for metric in (nll, brier):
            for other in ([0.7, 0.2, 0.1], [0.5, 0.4, 0.1], [0.6, 0.2, 0.2], [1 / 3, 1 / 3, 1 / 3]):
                assert score(metric, truth) < score(metric, np.array(other))


class TestBrier:
    def test_by_hand_it_is_summed_over_the_classes(self):
        rows = Predictions.from_probs([[0.7, 0.2, 0.1]], [0])
        assert brier(rows) == pytest.approx(0.3**2 + 0.2**2 + 0.1**2)

    @given(rows=predictions())
    @many
    def test_it_agrees_with_the_squared_distance_to_the_one_hot_label(self, rows):
        one_hot = np.eye(rows.n_classes)[rows.labels.numpy()]
        expected = ((probabilities(rows) - one_hot) ** 2).sum(axis=1).mean()
        assert brier(rows) == pytest.approx(expected, abs=1e-6)

    @given(rows=predictions())
    @many
    def test_it_lies_between_zero_and_two(self, rows):
        assert 0 <= brier(rows) <= 2

    def test_being_sure_and_wrong_costs_two(self):
        assert brier(Predictions.from_logits([[1e4, -1e4]], [1])) == 2

    @pytest.mark.parametrize("k", [2, 3, 10, 50])
    def test_no_sample_goes_below_zero_by_rounding(self, k):
        generator = torch.Generator().manual_seed(k)
        logits = torch.randn(5000, k, generator=generator) * 3
        logits[:, 0] += torch.linspace(0, 40, 5000)
        rows = Predictions.from_logits(logits, logits.argmax(1))
        assert torch.all(rows.softmax_rows(Wanted(squares=True)).brier() >= 0)


class TestTopBrier:
    def test_by_hand(self):
        assert top_brier(TopLabel([0.9, 0.6], [True, False])) == pytest.approx((0.01 + 0.36) / 2)

    @given(rows=top_labels())
    @many
    def test_it_is_the_mean_squared_gap(self, rows):
        expected = float((rows.confidence - rows.correct.double()).square().mean())
        assert top_brier(rows) == pytest.approx(expected, abs=1e-12)

    @given(rows=predictions())
    @many
    def test_two_classes_have_half_the_brier_score(self, rows):
        if rows.n_classes == 2:
            assert top_brier(rows) == pytest.approx(brier(rows) / 2, abs=1e-6)

"""Calibration class by class, against loops over classes and bins."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import SMOOTH_KINDS, predictions

from calibrant.errors import InputError
from calibrant.metrics import SCE, TLECE, ece, sce, tl_ece
from calibrant.predictions import Predictions

many = settings(max_examples=60)


def summed_gap(probability, hit, n_bins):
    """Σ over bins of |Σ (hit − probability)|; a hair above an edge counts as on it."""
    bins = (probability[:, None] > np.arange(1, n_bins) / n_bins + 2e-7).sum(axis=1)
    return np.abs(np.bincount(bins, hit - probability, n_bins)).sum()


class TestSCE:
    def test_by_hand(self):
        # Samples and hits, class 0: 2 and 1 in the bin of .9, 1 and 0 at .2; class 1: 2 and 1 at .1, 1 and 1 at .8.
        rows = Predictions.from_probs([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8]], [0, 1, 1])
        assert sce(rows) == pytest.approx(((0.8 + 0.2) + (0.8 + 0.2)) / 3 / 2)

    @given(rows=predictions(), n_bins=st.integers(2, 30))
    @many
    def test_it_agrees_with_a_loop_over_the_classes(self, rows, n_bins):
        probs, labels = rows.logits.double().softmax(1).numpy(), rows.labels.numpy()
        gaps = [summed_gap(probs[:, c], labels == c, n_bins) for c in range(rows.n_classes)]
        assert sce(rows, n_bins=n_bins) == pytest.approx(np.mean(gaps) / len(rows), abs=1e-6)

    @given(rows=predictions())
    @many
    def test_one_bin_gives_the_mean_gap_between_the_classes_shares_and_probabilities(self, rows):
        probs = rows.logits.double().softmax(1).mean(0)
        shares = torch.bincount(rows.labels, minlength=rows.n_classes) / len(rows)
        assert sce(rows, n_bins=1) == pytest.approx(float((probs - shares).abs().mean()), abs=1e-6)

    @pytest.mark.parametrize("k", [40, 100])
    @pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
    def test_it_agrees_with_a_loop_over_many_classes(self, k, dtype):
        generator = torch.Generator().manual_seed(k)
        logits = (torch.randn(500, k, generator=generator) * 3).to(dtype)
        rows = Predictions.from_logits(logits, torch.randint(0, k, (500,), generator=generator))
        probs, labels = logits.double().softmax(1).numpy(), rows.labels.numpy()
        gaps = [summed_gap(probs[:, c], labels == c, 15) for c in range(k)]
        assert sce(rows) == pytest.approx(np.mean(gaps) / len(rows), abs=1e-7)

    def test_the_number_of_classes_comes_from_the_logits(self):
        # Peers take it from the labels: two classes here, of three.
        rows = Predictions.from_probs([[0.6, 0.3, 0.1], [0.3, 0.6, 0.1]], [0, 1])
        assert sce(rows) == pytest.approx((0.7 + 0.7 + 0.2) / 2 / 3)
        state = SCE().state(rows)
        assert state.count.shape == (3, 15)
        assert torch.all(state.count.sum(1) == 2)

    @given(rows=predictions())
    @many
    def test_the_error_of_every_class_averages_to_the_whole(self, rows):
        metric = SCE()
        by_class = metric.by_class(metric.state(rows))
        assert by_class.shape == (rows.n_classes,)
        assert float(by_class.mean()) == pytest.approx(metric(rows))

    @given(rows=predictions())
    @many
    def test_the_classes_of_a_two_class_model_have_the_same_error(self, rows):
        if rows.n_classes == 2:
            metric = SCE(n_bins=2)
            first, second = metric.by_class(metric.state(rows)).tolist()
            probs = rows.probs[:, 0]
            if torch.all((probs - 0.5).abs() > 1e-6):  # a half lies in the lower bin of both, so is not mirrored
                assert first == pytest.approx(second, abs=1e-6)


class TestTLECE:
    def test_it_sees_what_ece_averages_away(self):
        # Overconfident on the first class, as underconfident on the second.
        logits = np.log([[0.8, 0.2]] * 10 + [[0.2, 0.8]] * 10)
        labels = [0] * 6 + [1] * 4 + [1] * 10
        rows = Predictions.from_logits(logits, labels)
        assert ece(rows) == pytest.approx(0)
        assert tl_ece(rows) == pytest.approx(0.2)

    @given(rows=predictions(), n_bins=st.integers(1, 30))
    @many
    def test_it_agrees_with_a_loop_over_the_predicted_classes(self, rows, n_bins):
        confidence, correct, predicted = (t.numpy() for t in (rows.confidence, rows.correct, rows.predicted))
        gaps = [summed_gap(confidence[predicted == c], correct[predicted == c], n_bins) for c in np.unique(predicted)]
        assert tl_ece(rows, n_bins=n_bins) == pytest.approx(sum(gaps) / len(rows), abs=1e-9)

    @given(rows=predictions(kinds=SMOOTH_KINDS))
    @many
    def test_it_is_at_least_ece(self, rows):
        assert tl_ece(rows) >= ece(rows) - 1e-9


@pytest.mark.parametrize("metric", [SCE, TLECE])
def test_a_bin_is_needed(metric):
    rows = Predictions.from_logits([[1.0, 2.0]], [0])
    with pytest.raises(InputError, match="n_bins must be at least 1; got 0"):
        metric(0)(rows)

"""Isotonic regression of the top label, of every class, and of all classes as one: against scikit-learn."""

import math

import numpy as np
import pytest
import torch
from sklearn.isotonic import IsotonicRegression as Reference

from calibrant.calibrators import IsotonicOneVsRest, IsotonicPooled, IsotonicRegression
from calibrant.errors import CalibrantWarning
from calibrant.maps import PooledMap, TwoClassMap
from calibrant.predictions import Predictions
from calibrant.testing import overconfident


def floored(probs, n, k=2):
    return np.clip(probs, 1 / ((n + 2) * (k - 1)), 1 - 1 / (n + 2))


class TestTopLabel:
    @pytest.mark.parametrize("k", [2, 10])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_it_is_scikit_learns_at_the_calibration_samples(self, dtype, k):
        rows = overconfident(700, k, dtype=dtype)
        confidence, correct = rows.confidence.numpy(), rows.correct.numpy()
        expected = floored(Reference().fit(confidence, correct).predict(confidence), 700).clip(1 / k)
        after = IsotonicRegression().fit(rows).transform(rows).confidence.numpy()
        assert np.allclose(after, expected, atol=2e-4)

    def test_between_calibration_samples_it_is_the_nearer_one_and_beyond_them_the_last(self):
        rows = Predictions.from_binary_logits([1.0, 2.0, 4.0, 5.0], [0, 0, 1, 1])
        fitted = IsotonicRegression().fit(rows)
        asked = Predictions.from_binary_logits([0.1, 2.9, 3.1, 50.0], [1, 1, 1, 1])
        assert fitted.transform(asked).confidence.tolist() == pytest.approx([0.5, 0.5, 5 / 6, 5 / 6], abs=1e-4)

    def test_confidences_given_as_probabilities_tie_whatever_the_other_classes_are(self):
        generator = torch.Generator().manual_seed(0)
        top = torch.tensor([0.5, 0.7, 0.75, 0.9, 0.99])[torch.arange(1000) % 5]
        share = torch.rand(1000, 3, generator=generator)
        others = (1 - top[:, None]) * share / share.sum(1, keepdim=True)
        probs = torch.cat([top[:, None], others], dim=1)
        labels = (torch.rand(1000, generator=generator) > top).long()
        fitted = IsotonicRegression().fit(Predictions.from_probs(probs, labels))
        assert fitted.curve.values.shape[1] <= 5

    def test_a_surer_prediction_never_ends_up_less_sure(self):
        fitted, new = IsotonicRegression().fit(overconfident(300, 5)), overconfident(3000, 5, seed=1)
        after = fitted.transform(new).confidence[new.top.log_odds.argsort()]
        assert after.diff().min() > -1e-12

    def test_all_right_and_all_wrong_stop_at_the_floor(self):
        rows = overconfident(98, 4)
        right = IsotonicRegression().fit(Predictions.from_logits(rows.logits, rows.predicted))
        assert right.transform(rows).confidence.tolist() == pytest.approx([0.99] * 98)
        wrong = IsotonicRegression().fit(Predictions.from_logits(rows.logits, (rows.predicted + 1) % 4))
        assert wrong.transform(rows).confidence.tolist() == pytest.approx([0.25] * 98, abs=1e-3)


class TestOneVsRest:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_it_is_scikit_learns_for_every_class_divided_by_their_sum(self, dtype):
        rows = overconfident(900, 6, dtype=dtype)
        probs = rows.logits.double().softmax(1).numpy()
        raw = np.stack(
            [Reference().fit(probs[:, j], rows.labels.numpy() == j).predict(probs[:, j]) for j in range(6)], axis=1
        )
        raw = floored(raw, 900, 6)
        after = IsotonicOneVsRest().fit(rows).transform(rows).probs.numpy()
        assert np.allclose(after, raw / raw.sum(1, keepdims=True), atol=1e-5)

    def test_two_classes_are_one_regression(self):
        rows = overconfident(500, 2)
        fitted = IsotonicOneVsRest().fit(rows)
        assert isinstance(fitted, TwoClassMap)
        expected = floored(Reference().fit(rows.probs[:, 1], rows.labels).predict(rows.probs[:, 1]), 500)
        assert np.allclose(fitted.transform(rows).probs[:, 1].numpy(), expected)

    def test_a_class_without_samples_is_reported(self):
        rows = overconfident(300, 5)
        with pytest.warns(CalibrantWarning, match="class 1, 3"):
            fitted = IsotonicOneVsRest().fit(rows[(rows.labels != 3) & (rows.labels != 1)])
        assert torch.isfinite(fitted(rows.logits)).all()

    def test_new_samples_never_have_an_infinite_log_loss(self):
        fitted = IsotonicOneVsRest().fit(overconfident(400, 10, sharpness=6.0))
        nll = fitted.transform(overconfident(4000, 10, seed=1, sharpness=6.0)).softmax_rows().nll()
        assert float(nll.max()) < math.log(402 * 9) + math.log(10)


class TestPooled:
    @pytest.mark.parametrize("k", [2, 6])
    def test_it_is_scikit_learns_of_all_pairs_divided_by_their_sum(self, k):
        rows = overconfident(900, k)
        probs, hit = rows.probs.numpy(), np.eye(k)[rows.labels]
        raw = floored(Reference().fit(probs.ravel(), hit.ravel()).predict(probs.ravel()), 900, k).reshape(900, k)
        after = IsotonicPooled().fit(rows).transform(rows).probs.numpy()
        # The predicted class is put ahead of its equals by a ten-thousandth.
        assert np.allclose(after, raw / raw.sum(1, keepdims=True), atol=1e-4)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_the_predicted_class_stays_ahead_of_those_on_its_step(self, dtype):
        fitted = IsotonicPooled().fit(overconfident(30, 5))
        close = torch.tensor([[0.0, 1e-6, 0.0, -1e-6, 0.0], [1.0, 1.0, 1.0, 1.0, 0.9], [-3.0, -3.0, 0.0, 0.0, 0.0]])
        logits = torch.cat([close, overconfident(2000, 5, seed=3).logits.float()]).to(dtype)
        assert torch.equal(fitted(logits).argmax(1), logits.argmax(1))

    def test_the_other_classes_keep_their_order_or_become_equal(self):
        fitted, new = IsotonicPooled().fit(overconfident(400, 6)), overconfident(1000, 6, seed=1)
        order = new.logits.argsort(dim=1)
        assert (fitted(new.logits).gather(1, order).diff(dim=1) >= 0).all()

    def test_it_is_one_curve_for_all_classes(self):
        fitted = IsotonicPooled().fit(overconfident(400, 7))
        assert isinstance(fitted, PooledMap)
        assert fitted.curve.values.shape[0] == 1

    def test_few_samples_of_many_classes_beat_one_curve_a_class(self):
        cal, test = overconfident(600, 40), overconfident(3000, 40, seed=1)
        pooled = IsotonicPooled().fit(cal).transform(test).softmax_rows().nll().mean()
        separate = IsotonicOneVsRest().fit(cal).transform(test).softmax_rows().nll().mean()
        assert pooled < separate

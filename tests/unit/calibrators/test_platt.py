"""Platt scaling: against scikit-learn's sigmoid calibration and its logistic regression."""

import numpy as np
import pytest
import torch
from sklearn.calibration import _SigmoidCalibration
from sklearn.linear_model import LogisticRegression

from calibrant.calibrators import PlattScaling
from calibrant.errors import CalibrantWarning, FitError, InputError
from calibrant.metrics import nll
from calibrant.predictions import Predictions


def network(n, k, *, seed=0, shift=1.0, dtype=torch.float64):
    """Overconfident predictions that favour the last class too little."""
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    truth = logits.clone()
    truth[:, -1] += shift
    labels = torch.multinomial(truth.softmax(1), 1, generator=generator)[:, 0]
    return Predictions.from_logits((2 * logits).to(dtype), labels)


def log_odds(rows):
    """Of every class against the rest."""
    probs = rows.probs.double()
    return (probs.log() - (-probs).log1p()).numpy()


class TestTwoClasses:
    def test_smoothed_targets_are_scikit_learns_sigmoid_calibration(self):
        rows = network(400, 2)
        scores = (rows.logits[:, 1] - rows.logits[:, 0]).numpy()
        expected = _SigmoidCalibration().fit(scores, rows.labels.numpy())
        b, a = PlattScaling().fit(rows).curve.coefficients[0].tolist()
        assert [a, b] == pytest.approx([-expected.a_, -expected.b_], rel=1e-3)

    def test_plain_targets_are_logistic_regression(self):
        rows = network(400, 2)
        scores = (rows.logits[:, 1] - rows.logits[:, 0]).numpy()[:, None]
        expected = LogisticRegression(C=np.inf, tol=1e-12).fit(scores, rows.labels.numpy())
        b, a = PlattScaling(targets="plain").fit(rows).curve.coefficients[0].tolist()
        assert [a, b] == pytest.approx([expected.coef_[0, 0], expected.intercept_[0]], rel=1e-6)

    def test_a_known_slope_and_shift_are_found(self):
        b, a = PlattScaling().fit(network(100_000, 2)).curve.coefficients[0].tolist()
        assert a == pytest.approx(0.5, abs=0.02)
        assert b == pytest.approx(1.0, abs=0.03)

    def test_the_certificate_says_that_the_slope_is_zero(self):
        certificate = PlattScaling().fit(network(400, 2)).summary.certificate
        assert certificate.gradient < 1e-8
        assert certificate.steps > 1

    @pytest.mark.filterwarnings("ignore:.*worse than no calibration")
    def test_separable_classes_have_a_finite_fit_only_with_smoothed_targets(self):
        rows = Predictions.from_binary_logits([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0], [0, 0, 0, 1, 1, 1])
        assert torch.isfinite(PlattScaling().fit(rows)(rows.logits)).all()
        with pytest.raises(FitError, match=r"overlap.*separable.*smoothed"):
            PlattScaling(targets="plain").fit(rows)

    @pytest.mark.filterwarnings("ignore:.*no calibration samples of class")
    def test_samples_of_one_class_give_the_rule_of_succession(self):
        rows = Predictions.from_binary_logits(torch.randn(8, generator=torch.Generator().manual_seed(0)), [1] * 8)
        assert PlattScaling().fit(rows).transform(rows).probs[:, 1].tolist() == pytest.approx([0.9] * 8)
        with pytest.raises(FitError, match="samples of both classes; got 8 of class 1 among 8"):
            PlattScaling(targets="plain").fit(rows)

    def test_probabilities_of_exactly_zero_and_one_are_fitted(self):
        probs = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat(20, 1)
        labels = torch.tensor([0, 1] * 19 + [1, 0])
        with pytest.warns(CalibrantWarning, match="probability 0"):
            rows = Predictions.from_probs(probs, labels)
        after = PlattScaling(targets="plain").fit(rows).transform(rows)
        assert after.confidence.tolist() == pytest.approx([0.95] * 40, abs=1e-6)


class TestGivenProbabilities:
    def made(self, slope_of):
        """Samples of two classes whose log-odds are a linear function of something."""
        rng = np.random.default_rng(0)
        probs = rng.beta(0.3, 0.3, 3000).clip(1e-6, 1 - 1e-6)
        labels = rng.random(3000) < 1 / (1 + np.exp(-slope_of(probs)))
        return Predictions.from_probs(np.stack([1 - probs, probs], axis=1), labels.astype(int))

    def test_whose_log_odds_count_are_left_alone(self):
        rows = self.made(lambda probs: 0.6 * np.log(probs / (1 - probs)))
        assert PlattScaling().fit(rows).uniform_share is None

    def test_that_count_themselves_are_drawn_in(self):
        rows = self.made(lambda probs: 4 * probs - 2)
        fitted = PlattScaling().fit(rows)
        assert float(fitted.uniform_share) >= 0.3
        assert any("mixed with the uniform" in note for note in fitted.summary.notes)
        as_logits = Predictions(rows.logits, rows.labels)
        assert nll(fitted.transform(rows)) < nll(PlattScaling().fit(as_logits).transform(as_logits)) - 0.005


class TestManyClasses:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_each_class_is_scikit_learns_and_the_results_are_divided_by_their_sum(self, dtype):
        rows = network(600, 4, dtype=dtype)
        scores = log_odds(rows)
        raw = np.stack(
            [_SigmoidCalibration().fit(scores[:, j], rows.labels.numpy() == j).predict(scores[:, j]) for j in range(4)],
            axis=1,
        )
        after = PlattScaling().fit(rows).transform(rows).probs.numpy()
        assert np.allclose(after, raw / raw.sum(1, keepdims=True), atol=1e-3)

    @pytest.mark.filterwarnings("ignore:.*no calibration samples of class")
    def test_plain_targets_fall_back_to_smoothed_ones_for_a_class_without_samples(self):
        rows = network(300, 5)
        rows = rows[rows.labels != 2]
        with pytest.warns(CalibrantWarning, match="class 2 cannot be fitted separately"):
            fitted = PlattScaling(targets="plain").fit(rows)
        b, a = fitted.curve.coefficients[2].tolist()
        assert a == pytest.approx(0, abs=1e-6)
        assert b == pytest.approx(np.log(1 / (len(rows) + 1)))
        others = PlattScaling(targets="plain").fit(network(300, 5)).curve.coefficients
        assert torch.isfinite(others).all()

    @pytest.mark.filterwarnings("ignore:.*worse than no calibration")
    @pytest.mark.filterwarnings("ignore:.*no calibration samples of class")
    def test_a_thousand_classes_are_fitted(self):
        generator = torch.Generator().manual_seed(0)
        logits = 3 * torch.randn(500, 1000, generator=generator)
        rows = Predictions.from_logits(logits, logits.argmax(1))
        after = PlattScaling().fit(rows).transform(rows)
        assert torch.isfinite(after.logits).all()
        assert torch.allclose(after.probs.sum(1), torch.ones(500))


def test_other_targets_are_refused():
    with pytest.raises(InputError, match="targets must be one of smoothed, plain; got 'hard'"):
        PlattScaling(targets="hard")

"""Beta calibration: against betacal, and against logistic regression where that one is not constrained."""

import math
import warnings

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from calibrant.calibrators import BetaCalibration, PlattScaling
from calibrant.errors import CalibrantWarning, FitError, InputError
from calibrant.predictions import Predictions


def bent(n, *, a=0.6, b=1.4, c=0.3, seed=0):
    """Two-class predictions whose true probabilities are a beta map of the given ones."""
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(n, generator=generator, dtype=torch.float64)
    p = scores.sigmoid()
    truth = (a * p.log() - b * (-p).log1p() + c).sigmoid()
    return Predictions.from_binary_logits(scores, (torch.rand(n, generator=generator) < truth).long())


def betacal(parameters, rows):
    """The other implementation's fitted probabilities of class 1."""
    made = pytest.importorskip("betacal").BetaCalibration(parameters)
    probs = rows.probs[:, 1].numpy()
    with warnings.catch_warnings():  # it switches all warnings off
        return made.fit(probs[:, None], rows.labels.numpy()).predict(probs[:, None])


def coefficients(fitted):
    return [float(getattr(fitted.curve, name)) for name in "abc"]


@pytest.mark.parametrize("parameters", ["abm", "ab", "am"])
class TestAgainstBetacal:
    def test_the_probabilities_agree(self, parameters):
        rows = bent(1500, c=0.0)  # so that no slope is negative, which betacal allows in "ab" and "am"
        ours = BetaCalibration(parameters).fit(rows).transform(rows).probs[:, 1].numpy()
        assert np.allclose(ours, betacal(parameters, rows), atol=1e-3)

    def test_it_tells_how_well_it_converged(self, parameters):
        assert BetaCalibration(parameters).fit(bent(500)).summary.certificate.gradient < 1e-8


class TestParameters:
    def test_known_ones_are_found(self):
        assert coefficients(BetaCalibration().fit(bent(200_000))) == pytest.approx([0.6, 1.4, 0.3], abs=0.05)

    def test_all_three_are_logistic_regression_on_both_logarithms(self):
        rows = bent(800)
        p = rows.probs[:, 1].numpy()
        features = np.stack([np.log(p), -np.log1p(-p)], axis=1)
        made = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000).fit(features, rows.labels.numpy())
        expected = [*made.coef_[0], made.intercept_[0]]
        assert coefficients(BetaCalibration().fit(rows)) == pytest.approx(expected, rel=1e-4)

    def test_without_m_one_half_stays_one_half(self):
        fitted = BetaCalibration("ab").fit(bent(800))
        assert fitted(torch.zeros(2, dtype=torch.float64)).exp().tolist() == pytest.approx([0.5, 0.5])

    def test_with_equal_slopes_it_is_platt_scaling_with_plain_targets(self):
        rows = bent(800)
        ours, platt = BetaCalibration("am").fit(rows), PlattScaling(targets="plain").fit(rows)
        assert torch.allclose(ours(rows.logits), platt(rows.logits), atol=1e-6)

    @pytest.mark.parametrize(("a", "b", "which"), [(-0.5, 1.5, 0), (1.5, -0.5, 1)])
    def test_a_slope_that_would_be_negative_is_left_out_as_betacal_does(self, a, b, which):
        rows = bent(3000, a=a, b=b, c=0.0)
        fitted = BetaCalibration().fit(rows)
        assert coefficients(fitted)[which] == 0
        assert coefficients(fitted)[1 - which] > 0
        ours = fitted.transform(rows).probs[:, 1].numpy()
        assert np.allclose(ours, betacal("abm", rows), atol=2e-3)

    @pytest.mark.parametrize("parameters", ["abm", "ab", "am"])
    def test_mostly_wrong_predictions_do_not_turn_the_order_round(self, parameters):
        rows = bent(2000, a=-1.0, b=-1.0, c=0.0)
        a, b, c = coefficients(BetaCalibration(parameters).fit(rows))
        assert [a, b] == [0, 0]
        share = float(rows.labels.double().mean())
        assert c == pytest.approx(0 if parameters == "ab" else math.log(share / (1 - share)), abs=1e-6)


class TestNoOptimum:
    def test_classes_separated_the_wrong_way_round_give_their_shares(self):
        rows = Predictions.from_binary_logits([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0, 4.0, 5.0], [1, 1, 0, 0, 0, 0, 0, 0])
        assert BetaCalibration().fit(rows).transform(rows).probs[:, 1].tolist() == pytest.approx([0.25] * 8)

    def test_two_separable_classes_are_refused(self):
        rows = Predictions.from_binary_logits([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0], [0, 0, 0, 1, 1, 1])
        with pytest.raises(FitError, match="beta calibration needs classes whose log-odds overlap"):
            BetaCalibration().fit(rows)

    def test_of_more_classes_the_separable_one_gets_smoothed_targets(self):
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(400, 3, generator=generator, dtype=torch.float64)
        logits[:100, 2] += 50
        labels = torch.cat([torch.full((100,), 2), torch.randint(0, 2, (300,), generator=generator)])
        rows = Predictions.from_logits(logits, labels)
        with pytest.warns(CalibrantWarning, match="class 2 cannot be fitted separately"):
            fitted = BetaCalibration().fit(rows)
        assert torch.isfinite(fitted(rows.logits)).all()
        assert "class 2" in fitted.summary.notes[0]

    def test_other_parameters_are_refused(self):
        with pytest.raises(InputError, match="parameters must be one of abm, ab, am"):
            BetaCalibration("abc")


def test_many_classes_are_each_fitted_against_the_rest():
    generator = torch.Generator().manual_seed(1)
    logits = 1.5 * torch.randn(900, 4, generator=generator, dtype=torch.float64)
    rows = Predictions.from_logits(2 * logits, torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0])
    fitted = BetaCalibration().fit(rows)
    for j in range(4):
        one = Predictions.from_probs(torch.stack([1 - rows.probs[:, j], rows.probs[:, j]], dim=1), rows.labels == j)
        alone = BetaCalibration().fit(one)
        together = [float(getattr(fitted.curve, name)[j]) for name in "abc"]
        assert together == pytest.approx(coefficients(alone), rel=1e-4, abs=1e-6)

"""Quadratic scaling: against logistic regression on the log-odds and their squares."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from calibrant.calibrators import QuadraticScaling
from calibrant.errors import CalibrantWarning, FitError
from calibrant.predictions import Predictions


def bell_shaped(n, *, widths=(1.0, 2.0), seed=0, dtype=torch.float64):
    """Two classes whose scores are normal around -1 and 1 with the given widths: a parabola is then exact."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (n,), generator=generator)
    noise = torch.randn(n, generator=generator, dtype=torch.float64)
    scores = torch.where(labels == 1, 1 + widths[1] * noise, -1 + widths[0] * noise)
    return Predictions.from_binary_logits(scores.to(dtype), labels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_logistic_regression_on_the_log_odds_and_their_squares(dtype):
    rows = bell_shaped(600, dtype=dtype)
    scores = (rows.logits[:, 1] - rows.logits[:, 0]).double().numpy()
    made = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000)
    made.fit(np.stack([scores, scores**2], axis=1), rows.labels.numpy())
    expected = [made.intercept_[0], *made.coef_[0]]
    assert QuadraticScaling().fit(rows).curve.coefficients[0].tolist() == pytest.approx(expected, rel=1e-4)


def test_bell_shaped_scores_of_different_widths_give_the_parabola_of_their_densities():
    fitted = QuadraticScaling().fit(bell_shaped(200_000))
    # ln N(s; 1, 2²) - ln N(s; -1, 1²) = -ln 2 - (s - 1)²/8 + (s + 1)²/2
    assert fitted.curve.coefficients[0].tolist() == pytest.approx([-np.log(2) + 3 / 8, 5 / 4, 3 / 8], abs=0.05)


def test_it_tells_how_well_it_converged():
    assert QuadraticScaling().fit(bell_shaped(300)).summary.certificate.gradient < 1e-8


def test_two_separable_classes_are_refused():
    rows = Predictions.from_binary_logits([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0], [0, 0, 0, 1, 1, 1])
    with pytest.raises(FitError, match="quadratic scaling needs classes whose log-odds overlap"):
        QuadraticScaling().fit(rows)


def test_classes_that_a_parabola_tells_apart_are_refused_too():
    rows = Predictions.from_binary_logits([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0], [1, 1, 0, 0, 1, 1])
    with pytest.raises(FitError, match="separable"):
        QuadraticScaling().fit(rows)


def test_of_more_classes_each_is_fitted_against_the_rest_and_one_without_samples_is_reported():
    generator = torch.Generator().manual_seed(1)
    logits = 1.5 * torch.randn(900, 4, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits[:, :3].softmax(1), 1, generator=generator)[:, 0]
    rows = Predictions.from_logits(2 * logits, labels)
    with pytest.warns(CalibrantWarning, match="class 3 cannot be fitted separately"):
        fitted = QuadraticScaling().fit(rows)
    after = fitted.transform(rows)
    assert torch.isfinite(after.logits).all()
    assert after.probs[:, 3].max() < 0.02
    for j in range(3):
        one = Predictions.from_probs(torch.stack([1 - rows.probs[:, j], rows.probs[:, j]], dim=1), labels == j)
        alone = QuadraticScaling().fit(one).curve.coefficients[0]
        assert torch.allclose(fitted.curve.coefficients[j], alone, rtol=1e-4, atol=1e-6)


def test_equal_log_odds_give_the_share_of_each_class():
    rows = Predictions.from_binary_logits(torch.full((10,), 1.5), [1] * 7 + [0] * 3)
    assert QuadraticScaling().fit(rows).transform(rows).probs[:, 1].tolist() == pytest.approx([0.7] * 10)

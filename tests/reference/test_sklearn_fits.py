"""Our fits beside scikit-learn's, live, with the settings under which both agree, and where scikit-learn is wrong.

Its linear models are asked for no penalty (``C=inf``) and a tolerance far below the comparison's: what is compared is
the optimum, not where an optimiser stops.
"""

import numpy as np
import pytest
import torch
from sklearn.calibration import _SigmoidCalibration, _TemperatureScaling
from sklearn.isotonic import IsotonicRegression as Isotonic
from sklearn.linear_model import LogisticRegression

from calibrant.calibrators import (
    IsotonicOneVsRest,
    IsotonicPooled,
    IsotonicRegression,
    MatrixScaling,
    PlattScaling,
    QuadraticScaling,
    TemperatureScaling,
)
from calibrant.errors import CalibrantWarning
from calibrant.predictions import Predictions


def sample(n, k, seed, temperature=1.7):
    """Logits too large for their labels by the temperature, float64."""
    generator = np.random.default_rng([n, k, seed])
    logits = 3 * generator.standard_normal((n, k))
    labels = (logits / temperature + generator.gumbel(size=(n, k))).argmax(axis=1)
    return Predictions.from_logits(logits, labels)


def temperature_of_sklearn(predictions):
    """What CalibratedClassifierCV(method="temperature") fits to decision values of three and more classes."""
    return 1 / float(_TemperatureScaling().fit(predictions.logits.numpy(), predictions.labels.numpy()).beta_)


def logistic(features, hits, asked):
    """Probabilities of a logistic regression without penalty."""
    model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-12, max_iter=1_000)
    return model.fit(features, hits).predict_proba(asked)


def log_odds(predictions):
    """Of every class against the rest, (n, k)."""
    log_probs = predictions.log_probs.numpy()
    return log_probs - np.log1p(-np.exp(log_probs))


def one_vs_rest(predictions, features):
    """A logistic regression of each class on features of its log-odds, divided by their sum."""
    columns = [
        logistic(features(column), predictions.labels.numpy() == j, features(column))[:, 1]
        for j, column in enumerate(log_odds(predictions).T)
    ]
    return np.stack(columns, axis=1) / np.sum(columns, axis=0)[:, None]


def line(column):
    return column[:, None]


def parabola(column):
    return np.stack([column, column**2], axis=1)


@pytest.mark.parametrize(("n", "k"), [(300, 3), (2_000, 10), (4_000, 100)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_temperature_is_that_of_calibrated_classifier_cv(n, k, dtype):
    rows = sample(n, k, 0)
    # Its float32 fit stops at a relative 8e-6, so it is given float64 logits in both cases.
    ours = TemperatureScaling().fit(Predictions.from_logits(rows.logits.to(dtype), rows.labels))
    assert float(ours.temperature) == pytest.approx(temperature_of_sklearn(rows), rel=1e-5)


def test_temperature_of_many_classes_and_few_samples_is_known_to_a_hundred_thousandth():
    rows = sample(3_000, 1_000, 2, temperature=3)
    assert float(TemperatureScaling().fit(rows).temperature) == pytest.approx(temperature_of_sklearn(rows), rel=1e-5)


def test_logits_that_look_like_probabilities_are_still_logits():
    # Small logits, as of a network trained with a large temperature: every sample in 0..1 and summing to 1.
    generator = np.random.default_rng(3)
    logits = generator.dirichlet(np.ones(4), size=2_000)
    labels = (8 * logits + generator.gumbel(size=logits.shape)).argmax(axis=1)
    with pytest.warns(CalibrantWarning, match="lie in 0..1 and sum to one"):
        rows = Predictions.from_logits(logits, labels)
    assert float(TemperatureScaling().fit(rows).temperature) == pytest.approx(1 / 8, rel=0.1)
    # The peer guesses that they are probabilities and takes their logarithm.
    assert temperature_of_sklearn(rows) > 2 / 8


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_platt_with_smoothed_targets_is_calibrated_classifier_cv_sigmoid_of_log_odds(seed):
    rows = sample(500, 2, seed)
    s = log_odds(rows)[:, 1]
    # What CalibratedClassifierCV(method="sigmoid") fits to the decision values of two classes.
    theirs = _SigmoidCalibration().fit(s, rows.labels.numpy()).predict(s)
    ours = PlattScaling("smoothed").fit(rows).transform(rows).probs[:, 1].numpy()
    assert ours == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize(("method", "features"), [(PlattScaling("plain"), line), (QuadraticScaling(), parabola)])
@pytest.mark.parametrize("k", [2, 4])
def test_platt_and_quadratic_scaling_are_logistic_regressions_of_log_odds(method, features, k):
    rows = sample(3_000, k, 3)
    ours = method.fit(rows).transform(rows).probs.numpy()
    assert ours == pytest.approx(one_vs_rest(rows, features), abs=1e-7)


@pytest.mark.parametrize("k", [2, 3, 10])
def test_matrix_scaling_is_multinomial_logistic_regression_of_logits(k):
    rows, asked = sample(3_000, k, 7), sample(200, k, 8)
    model = LogisticRegression(C=np.inf, solver="lbfgs", tol=1e-10, max_iter=10_000)
    theirs = model.fit(rows.logits.numpy(), rows.labels.numpy()).predict_proba(asked.logits.numpy())
    ours = MatrixScaling().fit(rows).transform(asked).probs.numpy()
    assert ours == pytest.approx(theirs, abs=1e-6)


# Isotonic regression draws straight lines between its steps in scikit-learn, and has its edges midway in ours: both are
# compared where they are the same function, at the calibration scores. Ours never claims more than the samples allow.


def floored(probs, rows, k=2):
    """Kept above 0 and below 1 by the rule of succession, as ours are."""
    return np.clip(probs, 1 / ((rows + 2) * (k - 1)), 1 - 1 / (rows + 2))


@pytest.mark.parametrize("k", [2, 5])
def test_isotonic_is_isotonic_regression_of_correctness_on_confidence(k):
    rows = sample(1_000, k, 4)
    confidence = rows.confidence.numpy()
    theirs = floored(Isotonic().fit(confidence, rows.correct.numpy()).predict(confidence), 1_000)
    fair_odds = np.exp(1e-4) / (k - 1)  # a confidence below 1/k is lifted to it, so that the prediction stays
    theirs = np.maximum(theirs, fair_odds / (1 + fair_odds))
    ours = IsotonicRegression().fit(rows).transform(rows).confidence.numpy()
    assert ours == pytest.approx(theirs, abs=1e-12)


def test_isotonic_one_vs_rest_is_calibrated_classifier_cv_isotonic_of_probabilities():
    rows = sample(2_000, 6, 5)
    columns = [Isotonic().fit(p, rows.labels.numpy() == j).predict(p) for j, p in enumerate(rows.probs.numpy().T)]
    theirs = floored(np.stack(columns, axis=1), 2_000, 6)
    ours = IsotonicOneVsRest().fit(rows).transform(rows).probs.numpy()
    assert ours == pytest.approx(theirs / theirs.sum(axis=1, keepdims=True), abs=1e-12)


@pytest.mark.parametrize("k", [2, 6])
def test_pooled_isotonic_is_one_isotonic_regression_of_all_pairs(k):
    rows = sample(1_000, k, 6)
    probs, hits = rows.probs.numpy(), np.eye(k)[rows.labels.numpy()]
    theirs = floored(Isotonic().fit(probs.ravel(), hits.ravel()).predict(probs.ravel()).reshape(probs.shape), 1_000, k)
    ours = IsotonicPooled().fit(rows).transform(rows).probs.numpy()
    # Ours puts the predicted class ahead of those tied with it, by 1e-4 in its logit.
    assert ours == pytest.approx(theirs / theirs.sum(axis=1, keepdims=True), abs=3e-5)

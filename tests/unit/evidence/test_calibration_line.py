"""Calibration slope and calibration in the large."""

import math

import numpy as np
import pytest
import torch
from scipy.special import expit, ndtri
from scipy.stats import t

from calibrant import Predictions, TopLabel, evaluate
from calibrant.evidence import calibration_line, logistic
from calibrant.evidence.logistic import half_widths_of
from calibrant.report import evaluation_page


def drawn(n, seed, intercept=0.3, slope=0.7):
    """Log-odds and outcomes on a known line."""
    generator = torch.Generator().manual_seed(seed)
    log_odds = torch.randn(n, generator=generator, dtype=torch.float64) * 1.5 - 2
    return log_odds, torch.rand(n, generator=generator) < (intercept + slope * log_odds).sigmoid()


def line_of(log_odds, outcome, weights=None):
    return calibration_line(Predictions.from_binary_logits(log_odds, outcome.long(), weights=weights))


def test_the_likelihood_equations_hold():
    log_odds, outcome = drawn(3000, 0)
    line = line_of(log_odds, outcome)
    residual = outcome.double() - (line.intercept.value + line.slope.value * log_odds).sigmoid()
    assert abs(float(residual.sum())) < 1e-6
    assert abs(float((residual * log_odds).sum())) < 1e-6
    assert abs(float((outcome.double() - (line.in_the_large.value + log_odds).sigmoid()).sum())) < 1e-6


def test_a_confidence_in_the_positive_class_has_the_same_line():
    log_odds, outcome = drawn(500, 1)
    of_class, of_top = line_of(log_odds, outcome), calibration_line(TopLabel(log_odds.sigmoid(), outcome))
    assert of_top.slope.value == pytest.approx(of_class.slope.value, rel=1e-6)
    assert of_top.in_the_large.low == pytest.approx(of_class.in_the_large.low, rel=1e-6)


def test_intervals_cover_the_truth():
    lines = [line_of(*drawn(600, seed)) for seed in range(400)]
    slope = sum(line.slope.low <= 0.7 <= line.slope.high for line in lines) / len(lines)
    intercept = sum(line.intercept.low <= 0.3 <= line.intercept.high for line in lines) / len(lines)
    spread = 3 * math.sqrt(0.95 * 0.05 / len(lines))
    assert 0.95 - spread - 0.01 < min(slope, intercept) <= max(slope, intercept) < 0.95 + spread


def test_intervals_of_few_clusters_cover_the_truth():
    found = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        codes = np.repeat(np.arange(20), 5)
        log_odds = 1.5 + 1.2 * (math.sqrt(0.9) * rng.normal(size=20)[codes] + math.sqrt(0.1) * rng.normal(size=100))
        latent = math.sqrt(0.6) * rng.normal(size=20)[codes] + math.sqrt(0.4) * rng.normal(size=100)
        line = calibration_line(TopLabel(expit(log_odds), latent < ndtri(expit(log_odds)), clusters=codes))
        if line is not None:
            found.append((line.slope.low <= 1 <= line.slope.high, line.in_the_large.low <= 0 <= line.in_the_large.high))
    assert np.mean(found, axis=0).min() > 0.9  # 0.95 are to; without Student's t and the jackknife, 0.8 did


def test_intervals_of_a_rare_outcome_cover_the_truth(monkeypatch):
    def coverage():
        found = []
        for seed in range(300):
            generator = torch.Generator().manual_seed(seed)
            log_odds = torch.randn(2000, generator=generator, dtype=torch.float64) - 6  # about eight of the outcome
            line = line_of(log_odds, torch.rand(2000, generator=generator) < log_odds.sigmoid())
            found.append(line is not None and line.slope.low <= 1 <= line.slope.high)
        return np.mean(found)

    assert coverage() > 0.92
    monkeypatch.setattr(logistic, "t_quantile", lambda _: 1.961)  # as if all samples counted alike
    assert coverage() < 0.91


def test_degrees_of_freedom_are_those_of_the_fourth_powers():
    changes = torch.randn(50, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = torch.tensor([[1.0, 0.0], [0.5, -2.0], [1.0, 1.0]], dtype=torch.float64)
    effects = changes @ rows.T
    variance, fourth = effects.square().sum(0), effects.pow(4).sum(0)
    degrees = 2 * variance.square() / (fourth - variance.square() / 50)
    expected = torch.tensor(t.ppf(0.975, degrees.clamp(max=48).numpy())) * (variance * 49 / 50).sqrt()
    torch.testing.assert_close(half_widths_of(changes, rows, 50, 48), expected)
    together = torch.cat([3 * changes[:10], changes[30:]])  # three equal ones of each of the first ten
    apart = torch.cat([changes[:10].repeat(3, 1), changes[30:]])
    shares = torch.tensor([1 / 3] * 10 + [1.0] * 20, dtype=torch.float64)
    torch.testing.assert_close(half_widths_of(together, rows, 50, 48, shares), half_widths_of(apart, rows, 50, 48))


def test_fewer_than_ten_clusters_show_no_noise():
    log_odds, outcome = drawn(300, 6)
    top = TopLabel(log_odds.sigmoid(), outcome, clusters=torch.arange(300) % 9)
    evaluation = evaluate(top, resamples=100)
    assert math.isnan(evaluation.line.slope.low)
    assert "(1 if calibrated)" in str(evaluation_page(evaluation))


def test_a_sample_of_weight_two_counts_as_two():
    log_odds, outcome = drawn(400, 2)
    weights = torch.ones(400, dtype=torch.float64)
    weights[:100] = 2
    twice = torch.cat([torch.arange(400), torch.arange(100)])
    weighted, repeated = line_of(log_odds, outcome, weights), line_of(log_odds[twice], outcome[twice])
    assert weighted.slope.value == pytest.approx(repeated.slope.value, rel=1e-8)
    assert line_of(log_odds, outcome, 5 * weights).slope.low == pytest.approx(weighted.slope.low, rel=1e-8)


def test_every_sample_four_times_in_a_cluster_is_one_sample():
    log_odds, outcome = drawn(300, 5)
    single = Predictions.from_binary_logits(log_odds, outcome.long())
    copies = Predictions.from_binary_logits(log_odds.repeat(4), outcome.long().repeat(4))
    line, clustered = (calibration_line(one) for one in (single, copies.with_clusters(torch.arange(300).repeat(4))))
    for name in ("slope", "intercept", "in_the_large"):
        mine, theirs = getattr(line, name), getattr(clustered, name)
        assert (theirs.low, theirs.high) == pytest.approx((mine.low, mine.high), rel=1e-6)


@pytest.mark.parametrize(
    ("log_odds", "outcome"),
    [
        ([-2.0, -1.0, 1.0, 2.0], [0, 0, 1, 1]),  # separable
        ([-2.0, -1.0, 1.0, 2.0], [1, 1, 1, 1]),
        ([1.0, 1.0, 1.0, 1.0], [0, 1, 1, 1]),
    ],
)
def test_there_may_be_no_line(log_odds, outcome):
    assert line_of(torch.tensor(log_odds), torch.tensor(outcome)) is None


def test_the_report_says_why_there_is_none():
    log_odds, outcome = drawn(300, 3)
    probs = log_odds.sigmoid()
    words = str(evaluation_page(evaluate(Predictions.from_binary_probs(probs, outcome.long()), resamples=100)))
    assert "calibration slope 0." in words
    probs[outcome.logical_not().nonzero()[0]] = 0.0
    words = str(evaluation_page(evaluate(Predictions.from_binary_probs(probs, outcome.long()), resamples=100)))
    assert "no calibration slope: 1 of the probabilities" in words

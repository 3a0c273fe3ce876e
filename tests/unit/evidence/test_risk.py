"""The risk of the positive class and the decisions taken by it, beside independent computations."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from calibrant import Predictions, TopLabel, compare, evaluate
from calibrant.calibrators import BetaCalibration, PlattScaling
from calibrant.errors import InputError
from calibrant.evidence import calibration_line, decision_curve, estimate, evaluate_risk
from calibrant.evidence.intervals import wilson_interval
from calibrant.evidence.logistic import Outcomes
from calibrant.evidence.risk import curve_of
from calibrant.predictions import as_risk
from calibrant.report import comparison_page


def drawn(n=4000, *, seed=0, rate=-2.0, intercept=0.4, slope=0.7):
    """Risks, too low and too extreme, and outcomes."""
    rng = np.random.default_rng(seed)
    log_odds = rate + 1.5 * rng.normal(size=n)
    return expit(log_odds), rng.random(n) < expit(intercept + slope * log_odds)


def predictions(p, y, **more):
    return Predictions.from_binary_probs(p, y.astype(int), **more)


def test_means_ece_and_auroc_are_those_of_the_probability_of_the_positive_class():
    p, y = drawn()
    risk = evaluate_risk(predictions(p, y), resamples=200)
    assert risk.predicted.value == pytest.approx(p.mean())
    assert risk.observed.value == pytest.approx(y.mean())
    assert risk.difference.value == pytest.approx(p.mean() - y.mean())
    assert risk.ratio.value == pytest.approx(y.mean() / p.mean())
    assert risk.auroc.value == pytest.approx(roc_auc_score(y, p))
    edges = np.ceil(p * 15) - 1  # bins (lo, hi]
    gaps = [abs((y[edges == b] - p[edges == b]).sum()) for b in range(15)]
    assert risk.ece.value == pytest.approx(sum(gaps) / len(p))


def test_the_decomposed_scores_are_those_of_the_probability_of_the_positive_class():
    p, y = drawn()
    fitted = IsotonicRegression().fit_transform(p, y)
    for samples in (predictions(p, y), Predictions.from_binary_logits(logit(p), y.astype(int))):
        parts = evaluate(samples, resamples=100).corp
        brier, nll = parts["risk_brier"], parts["risk_nll"]
        assert brier.score == pytest.approx(brier_score_loss(y, p), abs=1e-6)
        assert brier.uncertainty == pytest.approx(y.mean() * (1 - y.mean()))
        assert brier.miscalibration == pytest.approx(brier.score - brier_score_loss(y, fitted), abs=1e-6)
        assert nll.score == pytest.approx(log_loss(y, p), abs=1e-6)
        assert nll.miscalibration == pytest.approx(nll.score - log_loss(y, fitted), abs=1e-6)


def test_slope_and_intercept_are_those_of_logistic_recalibration_by_scikit_learn():
    p, y = drawn()
    line = calibration_line(predictions(p, y))
    fitted = LogisticRegression(C=np.inf, tol=1e-10).fit(logit(p)[:, None], y)
    assert line.slope.value == pytest.approx(fitted.coef_[0, 0], abs=1e-4)
    assert line.intercept.value == pytest.approx(fitted.intercept_[0], abs=1e-4)


def test_the_curve_and_its_band_are_those_of_logistic_regression_on_a_spline():
    p, y = drawn(1500)
    curve = evaluate_risk(predictions(p, y), resamples=100).curve
    x = logit(p)
    knots = np.sort(x)[[math.ceil(q * 1500) - 1 for q in (0.05, 0.35, 0.65, 0.95)]]

    def basis(at):
        """Truncated powers whose third derivative vanishes beyond the outer knots, from the definition."""
        cubes = np.maximum(at[:, None] - knots, 0) ** 3
        scaled = (cubes - cubes[:, -1:]) / (knots - knots[-1] + (knots == knots[-1]))
        return np.column_stack([np.ones_like(at), at, (scaled[:, :2] - scaled[:, 2:3]) / 100])

    columns = basis(x)
    model = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000, fit_intercept=False, solver="newton-cholesky")
    beta = model.fit(columns, y).coef_[0]
    at = basis(logit(np.array(curve.risk)))
    assert np.abs(expit(at @ beta) - np.array(curve.observed)).max() < 1e-4
    fitted = expit(columns @ beta)
    bread = np.linalg.inv(columns.T @ (columns * (fitted * (1 - fitted))[:, None]))
    scores = columns * (y - fitted)[:, None]
    covariance = bread @ scores.T @ scores @ bread  # the sandwich, which the jackknife widens a little
    half = 1.96 * np.sqrt(np.einsum("ij,jk,ik->i", at, covariance, at))
    ours = (logit(np.array(curve.high)) - logit(np.array(curve.low))) / 2
    assert (ours > 0.999 * half).all()
    assert (ours / half)[20:80].max() < 1.05


def test_probabilities_of_0_and_1_are_beside_the_curve():
    p, y = drawn(1000)
    ends, right = np.repeat([0.0, 1.0], 20), np.arange(40) % 4 > 0
    curve = evaluate_risk(TopLabel(p, y), resamples=100).curve
    both = evaluate_risk(TopLabel(np.concatenate([ends, p]), np.concatenate([right, y])), resamples=100)
    assert both.curve == curve
    assert both.tenths[-1].high == 1
    assert evaluate_risk(TopLabel(ends, right), resamples=100).curve is None


def test_the_curve_holds_the_truth():
    misses = []
    for seed in range(100):
        p, y = drawn(800, seed=seed)
        curve = curve_of(Outcomes.of(as_risk(predictions(p, y))))
        truth = np.interp(0.1, np.array(curve.risk), np.arange(len(curve.risk)))
        low, high = (np.interp(truth, np.arange(len(curve.risk)), np.array(of)) for of in (curve.low, curve.high))
        misses.append(not low <= expit(0.4 + 0.7 * logit(0.1)) <= high)
    assert np.mean(misses) < 0.12


@pytest.fixture
def means_alone(monkeypatch):
    """Leave out what differences and ratios do not ask for, which takes most of the time of a risk."""

    def of_means(samples, metrics, **options):
        means = [metric for metric in metrics if metric.name in {"confidence", "accuracy"}]
        return dict.fromkeys(metric.name for metric in metrics) | estimate(samples, means, **options)

    monkeypatch.setattr("calibrant.evidence.risk.estimate", of_means)
    monkeypatch.setattr("calibrant.evidence.risk.curve_of", lambda _outcomes: None)


@pytest.mark.usefixtures("means_alone")
def test_differences_and_ratios_hold_the_truth_also_in_clusters():
    rng = np.random.default_rng(0)
    missed, of_alone = np.zeros(2), []
    for draw in range(150):
        effect = rng.normal(size=60)  # common to a cluster, beside what the model knows
        codes = np.repeat(np.arange(60), 10)
        known = -1 + rng.normal(size=600)
        p = expit(known)
        y = rng.random(600) < expit(known + effect[codes])
        risk = evaluate_risk(TopLabel(p, y).with_clusters(torch.from_numpy(codes)), resamples=20)
        truth = _TRUTH - _MEAN
        missed += [
            not risk.difference.low <= -truth <= risk.difference.high,
            not risk.ratio.low <= _TRUTH / _MEAN <= risk.ratio.high,
        ]
        if draw < 60:
            alone = evaluate_risk(TopLabel(p, y), resamples=20)
            of_alone.append(not alone.difference.low <= -truth <= alone.difference.high)
    assert missed.max() / 150 < 0.09
    assert np.mean(of_alone) > 0.1  # what the clusters are for


_NODES = np.linspace(-6, 6, 2001)
_DENSITY = np.exp(-(_NODES**2) / 2) / np.exp(-(_NODES**2) / 2).sum()
_MEAN = float(expit(-1 + _NODES) @ _DENSITY)
_TRUTH = float(expit(-1 + math.sqrt(2) * _NODES) @ _DENSITY)


def test_tenths_have_the_samples_of_equal_risk_together():
    p = np.round(drawn()[0], 2)
    y = drawn()[1]
    tenths = evaluate_risk(predictions(p, y), resamples=100).tenths
    assert sum(one.share for one in tenths) == pytest.approx(1)
    assert all(first.high < second.low for first, second in itertools.pairwise(tenths))
    highest = tenths[-1]
    chosen = p >= highest.low - 1e-9
    assert highest.observed.value == pytest.approx(y[chosen].mean())
    assert highest.predicted == pytest.approx(p[chosen].mean())
    assert highest.observed.low < y[chosen].mean() < highest.observed.high


def brute_force(p, y, w, t):
    """Net benefit, from the formula, a sample at a time."""
    benefit = total = 0.0
    for risk, positive, weight in zip(p, y, w, strict=True):
        total += weight
        if risk >= t:
            benefit += weight if positive else -weight * t / (1 - t)
    return benefit / total


@pytest.mark.parametrize("weighted", [False, True])
def test_net_benefit_is_that_of_the_formula(weighted):
    p, y = drawn(500)
    w = np.arange(500) % 3 + 1.0 if weighted else np.ones(500)
    samples = predictions(p, y, weights=w if weighted else None)
    for one in decision_curve(samples, [0.3, 0.05, 0.9], resamples=100):
        assert one.net_benefit.value == pytest.approx(brute_force(p, y, w, one.threshold))
        assert one.treat_all.value == pytest.approx(brute_force(np.ones(500), y, w, one.threshold))
        assert one.to_treat_all.value == pytest.approx(one.net_benefit.value - one.treat_all.value)
        acted = p >= one.threshold
        assert one.treated.value == pytest.approx((w * acted).sum() / w.sum())
        assert one.sensitivity.value == pytest.approx((w * acted * y).sum() / (w * y).sum())
        assert one.precision.value == pytest.approx((w * acted * y).sum() / (w * acted).sum())


def test_intervals_of_net_benefit_hold_the_truth_and_widen_with_clusters():
    truth = decision_curve(predictions(*drawn(400_000, seed=99)), [0.2], resamples=100)[0]
    covered = []
    for seed in range(200):
        one = decision_curve(predictions(*drawn(600, seed=seed)), [0.2], resamples=400)[0]
        covered.append([
            one.net_benefit.low <= truth.net_benefit.value <= one.net_benefit.high,
            one.to_treat_all.low <= truth.to_treat_all.value <= one.to_treat_all.high,
            one.sensitivity.low <= truth.sensitivity.value <= one.sensitivity.high,
        ])  # fmt: skip
    assert np.mean(covered, axis=0).min() > 0.9
    p, y = (np.repeat(column, 10) for column in drawn(200))
    alone = decision_curve(predictions(p, y), [0.2], resamples=400)[0]
    clustered = decision_curve(predictions(p, y).with_clusters(torch.arange(2000) // 10), [0.2], resamples=400)[0]
    for name in ("net_benefit", "sensitivity", "precision"):
        wide, narrow = getattr(clustered, name), getattr(alone, name)
        assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


def few_high(rng):
    """2 % of samples are above 95 %, and 94 % of them positive: acting on them loses a little."""
    p = np.where(rng.random(1000) < 0.02, 0.96, 0.3)
    return (p, rng.random(1000) < np.where(p > 0.9, 0.94, 0.3)), 0.95, "net_benefit", 0.02 * (0.94 - 0.06 * 19)


def few_low(rng):
    """5 % of samples are below 2 %, and 2.5 % of them positive: to leave these out loses a little."""
    p = np.where(rng.random(1000) < 0.05, 0.01, 0.3)
    drawn = (p, rng.random(1000) < np.where(p < 0.02, 0.025, 0.3))
    return drawn, 0.02, "to_treat_all", 0.05 * (0.975 / 49 - 0.025)


@pytest.mark.parametrize("case", [few_high, few_low])
def test_net_benefits_that_few_samples_decide_are_not_called_useful(case):
    covered, useful, rng = [], [], np.random.default_rng(0)
    for _ in range(100):
        drawn_samples, threshold, name, truth = case(rng)
        one = decision_curve(predictions(*drawn_samples), [threshold], resamples=200)[0]
        estimated = getattr(one, name)
        covered.append(estimated.low <= truth <= estimated.high)
        useful.append(one.is_useful)
    assert np.mean(covered) > 0.93  # resamples alone cover .7
    assert np.mean(useful) < 0.03  # and .3


def test_gains_over_other_risks_are_as_wide_as_the_samples_that_only_one_treats():
    rng = np.random.default_rng(0)
    p, y = drawn(500)
    other = np.where(rng.random(500) < 0.2, rng.random(500), p)
    one = decision_curve(predictions(p, y), [0.3, 0.1], baseline=predictions(other, y), resamples=200)
    for found, threshold in zip(one, (0.3, 0.1), strict=True):
        ours, theirs, odds = p >= threshold, other >= threshold, threshold / (1 - threshold)
        alone = [(ours & ~theirs & y), (ours & ~theirs & ~y), (theirs & ~ours & y), (theirs & ~ours & ~y)]
        a, b, c, d = (mask.mean() for mask in alone)
        assert found.to_baseline.value == pytest.approx(a - odds * b - (c - odds * d))
        half = 0.0
        for share, factor in ((a, 1), (b, -odds), (c, -1), (d, odds)):
            low, high = wilson_interval(share * 500, 500)
            half += (factor * ((share - low) if factor > 0 else (high - share))) ** 2
        assert found.to_baseline.value - found.to_baseline.low >= math.sqrt(half) - 1e-12


@pytest.mark.usefixtures("means_alone")
def test_the_difference_of_a_rare_class_holds_the_truth():
    misses, rng = [], np.random.default_rng(0)
    for _ in range(120):
        p = 0.01 * rng.uniform(0.5, 1.5, 300)
        found = evaluate_risk(predictions(p, rng.random(300) < p), resamples=20).difference
        misses.append(not found.low <= 0 <= found.high)
    assert np.mean(misses) < 0.09  # .14 by the linearised interval, which is of no width where none occurs


def test_a_curve_reaches_log_odds_whose_probability_rounds_to_one():
    generator = torch.Generator().manual_seed(0)
    log_odds = 15 * torch.randn(3000, generator=generator, dtype=torch.float64)
    outcome = torch.rand(3000, generator=generator) < log_odds.sigmoid()
    curve = evaluate_risk(Predictions.from_binary_logits(log_odds, outcome.long()), resamples=20).curve
    assert np.isfinite([curve.risk, curve.observed, curve.low, curve.high]).all()


def test_the_share_acted_on_counts_clusters_of_equal_risk_though_their_outcomes_are_independent():
    rng = np.random.default_rng(4)
    p = expit(rng.normal(-1.5, 1.0, size=80)).repeat(6)  # six visits of each patient, at one risk
    samples = predictions(p, rng.random(480) < p).with_clusters(torch.arange(480) // 6)
    one = decision_curve(samples, [0.2], resamples=400)[0]
    low, high = wilson_interval(one.treated.value * 80, 80)
    assert one.treated.low == pytest.approx(low, abs=0.02)
    assert one.treated.high == pytest.approx(high, abs=0.02)


def test_small_thresholds_are_told_from_smaller_risks_in_every_type():
    p = torch.logspace(-9, -5, 1000, dtype=torch.float64)
    for dtype in (torch.float32, torch.float64):
        samples = Predictions.from_binary_probs(p.to(dtype), torch.zeros(1000).long())
        shares = [one.treated.value for one in decision_curve(samples, [1e-7, 1e-6], resamples=20)]
        assert shares == pytest.approx([0.5, 0.25], abs=0.002)


def test_a_risk_that_equals_the_threshold_is_acted_on_in_every_type():
    p, y = np.full(20, 0.1), np.arange(20) % 10 == 0
    for dtype in (torch.float32, torch.float64):
        samples = Predictions.from_binary_probs(torch.tensor(p, dtype=dtype), torch.tensor(y).long())
        assert decision_curve(samples, [0.1], resamples=100)[0].treated.value == 1


def test_a_calibrated_model_is_compared_with_the_uncalibrated_one_on_the_same_samples():
    calibration, test = (predictions(*drawn(seed=seed, intercept=1.5)) for seed in (1, 2))
    fitted = PlattScaling().fit(calibration)
    one = decision_curve(fitted.transform(test), [0.3], baseline=test, resamples=200)[0]
    plain = decision_curve(test, [0.3], resamples=200)[0]
    assert one.to_baseline.value == pytest.approx(one.net_benefit.value - plain.net_benefit.value)
    assert 0 < one.to_baseline.low < one.to_baseline.value < one.to_baseline.high
    compared = compare(calibration, test, [PlattScaling()], thresholds=[0.3], resamples=100)
    assert {len(method.decisions) for method in compared.fitted} == {1}
    with pytest.raises(InputError, match="same samples"):
        decision_curve(test, [0.3], baseline=test[:100], resamples=100)


def test_methods_are_compared_by_the_ece_of_the_probability_of_the_positive_class():
    rng = np.random.default_rng(0)
    p = rng.choice([0.38, 0.62], 4000)  # predicted classes are right as often as claimed
    samples = predictions(p, rng.random(4000) < p + 0.1)
    compared = compare(samples[:2000], samples[2000:], [PlattScaling()], resamples=200)
    before, after = compared.uncalibrated, compared.find("platt")
    assert before.metrics["ece"].value == pytest.approx(evaluate_risk(samples[2000:], resamples=200).ece.value)
    assert before.metrics["ece"].value > 0.07
    assert after.metrics["ece"].value < 0.04
    change = after.differences["uncalibrated"]["ece"]
    assert change.value == pytest.approx(after.metrics["ece"].value - before.metrics["ece"].value)
    assert change.side == "better"
    assert [*before.metrics] == ["nll", "brier", "ece", "ace", "sce", "auroc", "aurc", "accuracy"]


def test_a_comparison_that_leaves_a_method_open_shows_its_decisions():
    def drawn_near(seed):
        generator = torch.Generator().manual_seed(seed)
        log_odds = torch.randn(400, generator=generator, dtype=torch.float64) * 1.5 - 1
        outcome = torch.rand(400, generator=generator) < (0.85 * log_odds - 0.15).sigmoid()
        return Predictions.from_binary_logits(log_odds, outcome.long())

    methods = [PlattScaling(), BetaCalibration()]
    compared = compare(drawn_near(4), drawn_near(54), methods, thresholds=[0.3], resamples=200)
    assert (compared.recommended.name, compared.undecided.name) == ("uncalibrated", "beta")
    section = next(one for one in comparison_page(compared).brief if one.title == "Decisions")
    assert {row[1].text for row in section.tables[0].rows} == {"uncalibrated", "temperature", "beta"}


def test_more_than_two_classes_have_no_decisions():
    samples = Predictions.from_logits(torch.randn(50, 3), torch.arange(50) % 3)
    with pytest.raises(InputError, match="two classes"):
        evaluate(samples, thresholds=[0.1], resamples=100)
    assert evaluate(samples, resamples=100).risk is None


def test_outcomes_of_one_kind_have_a_risk_but_no_curve():
    risk = evaluate_risk(predictions(np.linspace(0.01, 0.2, 50), np.zeros(50, dtype=bool)), resamples=100)
    assert risk.curve is None
    assert math.isnan(risk.ratio.low)
    assert risk.observed.low == 0 < risk.observed.high
    one = decision_curve(predictions(np.linspace(0.01, 0.2, 50), np.zeros(50, dtype=bool)), [0.5], resamples=100)[0]
    assert one.net_benefit.value == 0
    assert math.isnan(one.sensitivity.value)
    assert math.isnan(one.precision.value)

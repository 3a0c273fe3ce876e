"""Intervals from influences: known formulas, bounds where the data show no spread, and what they must not depend on."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from calibrant import TopLabel
from calibrant.evidence import estimate
from calibrant.evidence.intervals import influence_interval, t_quantile, wilson_interval
from calibrant.metrics import AUGRC, AURC, AUROC, EAURC, FPR95, AUPRError, AUPRSuccess
from calibrant.metrics.states import RankedSamples

METRICS = [AUROC(), AUPRError(), AUPRSuccess(), FPR95(), AURC(), EAURC(), AUGRC()]


def answers(n=300, seed=0, step=0.0):
    rng = np.random.default_rng(seed)
    correct = rng.random(n) >= 0.15
    log_odds = rng.normal(size=n) + 1.5 * correct
    log_odds = np.round(log_odds / step) * step if step else log_odds
    return TopLabel(torch.from_numpy(log_odds).sigmoid(), torch.from_numpy(correct))


def ranked(top):
    return RankedSamples()(top).ranked


def half_width(interval):
    """Of an interval on the log-odds scale."""
    return (stats.logistic.ppf(interval[1]) - stats.logistic.ppf(interval[0])) / 2


@pytest.mark.parametrize("step", [0.0, 0.5])
def test_the_variance_of_auroc_is_that_of_delong(step):
    top = answers(step=step)
    right, wrong = (top.log_odds[top.correct == kind].numpy() for kind in (True, False))
    wins = (right[:, None] > wrong) + 0.5 * (right[:, None] == wrong)
    value, variance = wins.mean(), wins.mean(1).var(ddof=1) / len(right) + wins.mean(0).var(ddof=1) / len(wrong)
    spread = half_width(influence_interval(AUROC(), ranked(top))) * value * (1 - value)
    fewest, most = (stats.t.ppf(0.975, degrees) * math.sqrt(variance) for degrees in (1e9, len(wrong) / 4))
    assert fewest < spread < most


@pytest.mark.parametrize("metric", [m for m in METRICS if m.name != "fpr95"], ids=lambda metric: metric.name)
def test_the_spread_is_that_of_leaving_every_answer_out_once(metric):
    top = answers(n=400, seed=3)
    kept = [torch.arange(400) != i for i in range(400)]
    left = np.array([metric(TopLabel(top.confidence[k], top.correct[k])) for k in kept])
    jackknife, value = math.sqrt(399 / 400 * ((left - left.mean()) ** 2).sum()), metric(top)
    spread = half_width(influence_interval(metric, ranked(top))) * value * (1 - value)
    assert 1.9 < spread / jackknife < 2.5  # a quantile of Student's t for some fifty errors


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
@pytest.mark.parametrize("step", [0.0, 0.5])
def test_the_interval_holds_its_value_and_stays_within_0_and_1(metric, step):
    for seed in range(5):
        top = answers(n=60, seed=seed, step=step)
        low, high = influence_interval(metric, ranked(top))
        assert 0 <= low <= metric(top) <= high <= 1
        assert low < high


def test_a_perfect_ranking_of_few_errors_is_not_called_certain():
    top = TopLabel([0.9, 0.95] * 20 + [0.3, 0.4, 0.2], [True] * 40 + [False] * 3)
    assert influence_interval(AUROC(), ranked(top)) == wilson_interval(3, 3)
    assert influence_interval(FPR95(), ranked(top)) == wilson_interval(0, 3)
    low, high = influence_interval(EAURC(), ranked(top))
    assert low == 0 < high < 0.1


@pytest.mark.parametrize("n_right", [10, 40, 80])
def test_the_rate_at_the_threshold_of_few_right_answers_is_covered(n_right):
    """The lowest of few right answers lies above their true 5 % quantile: of ten, half of the intervals ended below."""
    rng, held, repeats = np.random.default_rng(n_right), 0, 300
    shift = math.sqrt(2) * stats.norm.ppf(0.85)
    truth, correct = stats.norm.sf(stats.norm.ppf(0.05) + shift), torch.arange(n_right + 150) < n_right
    for _ in range(repeats):
        log_odds = torch.from_numpy(rng.normal(size=len(correct))) + shift * correct
        low, high = influence_interval(FPR95(), ranked(TopLabel(log_odds.sigmoid(), correct)))
        held += low <= truth <= high
    assert held / repeats > 0.95 - 3 * math.sqrt(0.05 * 0.95 / repeats)


def test_without_errors_the_risk_is_bounded_and_the_ranking_is_not_known():
    top = TopLabel(torch.linspace(0.5, 0.99, 50), torch.ones(50, dtype=torch.bool))
    assert influence_interval(AURC(), ranked(top)) == wilson_interval(0, 50)
    assert all(math.isnan(bound) for bound in influence_interval(AUROC(), ranked(top)))


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_one_error_still_gives_an_interval(metric):
    top = TopLabel(torch.linspace(0.5, 0.99, 50), torch.arange(50) != 7)
    low, high = influence_interval(metric, ranked(top))
    assert 0 <= low <= metric(top) <= high <= 1
    assert low < high


def test_many_answers_are_joined_without_a_trace():
    top = answers(n=40_000)
    low, high = influence_interval(AUROC(), ranked(top))
    value = AUROC()(top)
    right, wrong = (top.log_odds[top.correct == kind].numpy() for kind in (True, False))
    places = np.searchsorted(np.sort(right), wrong) / len(right), np.searchsorted(np.sort(wrong), right) / len(wrong)
    delong = math.sqrt(places[0].var() / len(wrong) + places[1].var() / len(right))
    assert (high - low) / 2 == pytest.approx(1.96 * delong, rel=0.01)
    assert (high + low) / 2 == pytest.approx(value, abs=0.1 * delong)


def test_inference_mode_does_not_stand_in_the_way():
    top = answers()
    expected = [influence_interval(metric, ranked(top)) for metric in METRICS]
    with torch.inference_mode():
        again = [influence_interval(metric, ranked(answers())) for metric in METRICS]
    assert again == expected


def test_the_seed_does_not_matter():
    first, second = (estimate(answers(), METRICS, seed=seed) for seed in (0, 1))
    assert first == second


@pytest.mark.parametrize("degrees", [4, 5, 7, 12, 40, 1e6])
def test_the_quantile_is_that_of_student_s_t(degrees):
    assert t_quantile(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), rel=5e-4)

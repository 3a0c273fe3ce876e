"""Known truth by simulation: intervals from states cover it as often as those in memory, and are as wide."""

import functools

import numpy as np
import pytest
import torch
from tests.statistics.test_evidence import draw

from calibrant import Predictions, TopLabel
from calibrant.evidence import estimate
from calibrant.metrics import AURC, AUROC, ECE, NLL, SCE, Accuracy, Brier
from calibrant.scale.evaluation import estimate_state
from calibrant.scale.state import Design, EvaluationState, sample_keys
from calibrant.scale.trend import _change

REPEATS, SAMPLES = 40, 500
METRICS = {metric.name: metric for metric in (ECE(), SCE(), AUROC(), AURC(), NLL(), Brier(), Accuracy())}


@functools.cache
def simulate():
    rng = np.random.default_rng(7)
    streamed, in_memory = [], []
    for repeat in range(REPEATS):
        samples = draw(SAMPLES, 2.0, rng)
        state = EvaluationState(Design.of(samples, seed=repeat))
        for start in range(0, SAMPLES, 200):  # batches do not matter
            batch = samples[start : start + 200]
            state.add(batch, sample_keys(repeat, "shard", start, len(batch)))
        chosen = [metric for metric in state.metrics if metric.name in METRICS]
        streamed.append(estimate_state(state, samples, chosen, resamples=200))
        in_memory.append(estimate(samples, METRICS.values(), resamples=200, seed=repeat))
    population = draw(300_000, 2.0, rng)
    return streamed, in_memory, {name: metric(population) for name, metric in METRICS.items()}


@pytest.mark.parametrize("metric", METRICS)
def test_streamed_intervals_cover_the_truth_as_often(metric):
    streamed, in_memory, truth = simulate()
    covered = np.mean([one[metric].low <= truth[metric] <= one[metric].high for one in streamed])
    before = np.mean([one[metric].low <= truth[metric] <= one[metric].high for one in in_memory])
    assert covered >= 0.84
    assert abs(covered - before) < 0.13  # of 40
    widths = [np.mean([one[metric].high - one[metric].low for one in part]) for part in (streamed, in_memory)]
    assert widths[0] == pytest.approx(widths[1], rel=0.1)


def test_streamed_p_values_are_not_small_where_the_model_is_calibrated():
    rng, p = np.random.default_rng(11), []
    for repeat in range(30):
        samples = draw(SAMPLES, 1.0, rng)
        state = EvaluationState(Design.of(samples, seed=repeat))
        state.add(samples, sample_keys(repeat, "shard", 0, SAMPLES))
        chosen = [metric for metric in state.metrics if metric.name == "ece"]
        p.append(estimate_state(state, samples, chosen, resamples=100)["ece"].p)
    assert 0.3 < np.mean(p) < 0.7  # three standard errors of a uniform mean
    assert np.mean(np.array(p) < 0.05) < 0.2


def test_a_period_of_few_samples_shows_a_change_of_the_log_loss_no_more_often_than_it_may():
    """Log-losses are skewed, and those of five samples can lie close together: .001 of the looks may show a change."""
    rng, repeats = np.random.default_rng(5), 60

    def draw_state(n: int, name: str) -> EvaluationState:
        logits = 4 * rng.normal(size=(n, 10))
        labels = (logits / 1.3 + rng.gumbel(size=(n, 10))).argmax(1)
        samples = Predictions(torch.from_numpy(logits), torch.from_numpy(labels))
        state = EvaluationState(Design.of(samples, n_bins=15, seed=0))
        state.add(samples, sample_keys(0, name, 0, n))
        return state

    before = draw_state(1000, "before")
    looks = [_change(NLL(), before, draw_state(5, str(i)), 0.001, seed=i) for i in range(repeats)]
    assert sum(look.is_shown for look in looks) <= 1


@pytest.mark.parametrize("metric", [Accuracy(), ECE()])
def test_heavy_samples_that_are_wrong_more_often_show_no_more_changes(metric):
    """The effective number of samples alone understated the variance: one look in seven had p < .05."""
    rng = np.random.default_rng(3)

    def draw_state(name: str) -> EvaluationState:
        weights = np.where(rng.random(1000) < 0.05, 10.0, 1.0)
        correct = rng.random(1000) < np.where(weights > 1, 0.6, 0.98)
        samples = TopLabel(rng.choice([0.8, 0.85, 0.9], 1000), correct, weights=weights)
        state = EvaluationState(Design.of(samples, n_bins=15, seed=0))
        state.add(samples, sample_keys(0, name, 0, 1000))
        return state

    p = [_change(metric, draw_state("before"), draw_state("now"), 0.05, seed=look).p for look in range(100)]
    assert np.mean(np.array(p) < 0.05) <= 0.05 + 2 * (0.05 * 0.95 / 100) ** 0.5

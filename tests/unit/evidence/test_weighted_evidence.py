"""Evidence from weighted samples: only ratios matter, equal weights change nothing, uneven ones widen intervals."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from calibrant.errors import InputError
from calibrant.evaluation import evaluate, worst_bins
from calibrant.evidence import corp, difference, estimate
from calibrant.evidence.intervals import draw_right
from calibrant.metrics import AUROC, ECE, NLL, Accuracy, TopBrier
from calibrant.predictions import Predictions, TopLabel
from calibrant.testing import overconfident

SAMPLES = overconfident(400, 4)
WEIGHTS = np.random.default_rng(0).lognormal(0, 1, 400)


def numbers(record):
    """All numbers of a record of records, by their path."""
    if dataclasses.is_dataclass(record):
        record = vars(record)
    if isinstance(record, tuple) and hasattr(record, "_asdict"):
        record = record._asdict()
    if isinstance(record, dict | list | tuple):
        items = record.items() if isinstance(record, dict) else enumerate(record)
        return {f"{name}.{path}": value for name, part in items for path, value in numbers(part).items()}
    return {"": record} if isinstance(record, int | float) else {}


@pytest.fixture(scope="module")
def weighted():
    return evaluate(SAMPLES.with_weights(WEIGHTS), resamples=100)


def test_scaling_all_weights_changes_nothing_in_a_report(weighted):
    for scale in (1e-6, 3.7):
        scaled = evaluate(SAMPLES.with_weights(scale * WEIGHTS), resamples=100)
        assert numbers(scaled) == pytest.approx(numbers(weighted), rel=1e-7, abs=1e-9, nan_ok=True)
        assert scaled.advice == weighted.advice


def test_equal_weights_give_the_report_of_none_to_the_last_digit():
    assert repr(evaluate(SAMPLES.with_weights(np.full(400, 0.3)), resamples=100)) == repr(
        evaluate(SAMPLES, resamples=100)
    )


def test_samples_of_weight_zero_give_the_report_without_them():
    kept = torch.arange(400) % 3 > 0
    weights = torch.from_numpy(WEIGHTS)
    with_zeros, without = (
        evaluate(samples, resamples=100)
        for samples in (SAMPLES.with_weights(weights * kept), SAMPLES.with_weights(weights)[kept])
    )
    assert repr(with_zeros) == repr(without)


def test_the_order_of_weighted_samples_does_not_matter():
    rows = SAMPLES[torch.arange(100).repeat(4)].with_weights(WEIGHTS)  # the same samples with several weights
    order = torch.randperm(400, generator=torch.Generator().manual_seed(0))
    first, second = (evaluate(samples, resamples=100) for samples in (rows, rows[order]))
    assert numbers(first) == pytest.approx(numbers(second), rel=1e-9, abs=1e-12, nan_ok=True)


def test_intervals_and_floors_follow_the_effective_number_of_samples(weighted):
    plain = evaluate(SAMPLES, resamples=100)
    assert (plain.n, plain.effective_n) == (400, None)
    assert weighted.n == 400
    assert weighted.effective_n == pytest.approx(WEIGHTS.sum() ** 2 / (WEIGHTS**2).sum())
    wider = math.sqrt(400 / weighted.effective_n)
    for name in ("accuracy", "nll", "brier", "auroc", "aurc"):
        ratio = (weighted.metrics[name].high - weighted.metrics[name].low) / (
            plain.metrics[name].high - plain.metrics[name].low
        )
        assert 0.7 * wider < ratio < 1.5 * wider, name
    for name in ("ece", "ks", "mmce"):
        assert weighted.metrics[name].floor / plain.metrics[name].floor == pytest.approx(wider, rel=0.15)


def test_weighted_values_are_those_of_the_metrics():
    samples = SAMPLES.with_weights(WEIGHTS)
    for metric in (Accuracy(), NLL(), ECE(), AUROC()):
        assert estimate(samples, [metric], resamples=20)[metric.name].value == pytest.approx(metric(samples), rel=1e-6)


def test_a_paired_difference_of_weighted_samples():
    softer = Predictions.from_logits(SAMPLES.logits / 2, SAMPLES.labels)
    first, second, scaled = (
        difference(*(part.with_weights(weights) for part in (SAMPLES, softer)), [NLL(), ECE()], resamples=100)
        for weights in (None, WEIGHTS, 5 * WEIGHTS)
    )
    assert numbers(scaled) == pytest.approx(numbers(second), rel=1e-9)
    assert second["nll"].side == "better"
    assert second["nll"].value == pytest.approx(
        NLL()(softer.with_weights(WEIGHTS)) - NLL()(SAMPLES.with_weights(WEIGHTS))
    )
    assert second["nll"].high - second["nll"].low > 1.1 * (first["nll"].high - first["nll"].low)


def test_a_pair_must_have_the_same_weights():
    for other in (None, WEIGHTS + 1):
        with pytest.raises(InputError, match="must have the same weights"):
            difference(SAMPLES.with_weights(WEIGHTS), SAMPLES.with_weights(other), [NLL()])


def test_the_isotonic_split_of_weighted_samples_is_exact_and_equals_repetition():
    rng = np.random.default_rng(1)
    confidence, weights = rng.random(300).round(2), rng.integers(0, 4, 300)
    correct = rng.random(300) < confidence**2
    weighted = corp(TopLabel(confidence, correct, weights=weights), redraws=100)
    rows = np.repeat(np.arange(300), weights)
    repeated = corp(TopLabel(confidence[rows], correct[rows]), redraws=100)
    assert weighted.accuracy.tolist() == pytest.approx(repeated.accuracy.tolist(), rel=1e-12)
    for split, other in ((weighted.brier, repeated.brier), (weighted.nll, repeated.nll)):
        assert split[:4] == pytest.approx(other[:4], rel=1e-9)
        assert split.score == pytest.approx(split.miscalibration - split.discrimination + split.uncertainty)
        assert split.floor > other.floor  # fewer samples than their repetitions seem to be
    top_brier = TopBrier()(TopLabel(confidence, correct, weights=weights))
    assert weighted.brier.score == pytest.approx(top_brier, rel=1e-9)


def test_no_redrawn_outcome_of_weighted_samples_is_lost():
    # Sums of weights that rounding led above the total had a log-loss of NaN, which counted as no miscalibration.
    rng = np.random.default_rng(0)
    total = rng.uniform(0.01, 7, 2000)
    drawn = draw_right(total, total**2 / rng.uniform(1, 9, 2000), np.ones(2000), rng, 20)
    assert (drawn <= total).all()


def calibrated_with_heavy_ones_below(rng, n=500):
    """Calibrated by weight at every confidence: heavy samples are right less often than that, light ones more often."""
    confidence, is_heavy = rng.choice([0.7, 0.75, 0.8, 0.85], n), rng.random(n) < 0.05
    chance = np.where(is_heavy, confidence - 0.285, confidence + 0.15)  # 10/29 and 19/29 of the weight
    return TopLabel(confidence, rng.random(n) < chance, weights=np.where(is_heavy, 10.0, 1.0))


@pytest.mark.parametrize("kind", ["curve", "bins"])
def test_heavy_samples_that_are_wrong_more_often_do_not_make_calibrated_ones_look_miscalibrated(kind):
    """The effective number of samples alone understates the variance: one in five had a small p-value."""
    rng, shown = np.random.default_rng(4), 0
    for _ in range(100):
        samples = calibrated_with_heavy_ones_below(rng)
        shown += corp(samples, redraws=60).brier.p <= 0.05 if kind == "curve" else bool(worst_bins(samples))
    assert shown <= 5 + 2 * (100 * 0.05 * 0.95) ** 0.5

"""The cross-fitted split of proper scores: identities, known temperatures, and exact leave-a-fold-out fits."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from scipy.optimize import minimize_scalar
from strategies import predictions

from calibrant.errors import CalibrantWarning, InputError
from calibrant.metrics import brier, calibration_refinement, nll
from calibrant.metrics.proper import _beta_by_fold
from calibrant.predictions import Predictions


def sample(n, k, seed, temperature=1.0, dtype=torch.float64):
    """Labels drawn from softmax(logits); the logits that are given are sharper by the temperature."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, k, generator=generator, dtype=torch.float64) * 2
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    return Predictions.from_logits((logits * temperature).to(dtype), labels)


def folds_of(n, folds=5):
    return torch.randperm(n, generator=torch.Generator().manual_seed(0)) % folds


def test_the_log_loss_that_is_split_is_the_one_that_is_reported_for_labels_of_probability_0():
    probs = torch.tensor([[1.0, 0.0], [0.9, 0.1]], dtype=torch.float64).repeat(20, 1)
    with pytest.warns(CalibrantWarning, match="true classes were given probability 0"):
        rows = Predictions.from_probs(probs, [1, 0, 0, 0] * 10)
    split = calibration_refinement(rows)
    assert split["nll"].total == pytest.approx(nll(rows), rel=1e-12)
    assert split["brier"].total == pytest.approx(brier(rows), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_calibration_and_refinement_add_up_to_the_score(temperature, dtype):
    rows = sample(500, 4, 0, temperature, dtype)
    parts = calibration_refinement(rows)
    assert set(parts) == {"nll", "brier"}
    for name, metric in (("nll", nll), ("brier", brier)):
        split = parts[name]
        assert split.total == pytest.approx(metric(rows), rel=1e-6)
        assert split.calibration + split.refinement == pytest.approx(split.total)
        assert split.calibration_low < split.calibration < split.calibration_high


@pytest.mark.parametrize("temperature", [0.25, 0.6, 1.0, 2.5, 8.0])
@pytest.mark.parametrize("k", [2, 5, 40])
def test_every_fold_recovers_the_temperature_of_the_data(temperature, k):
    rows = sample(6000, k, 1, temperature)
    beta, _ = _beta_by_fold(rows, folds_of(6000), 5)
    assert torch.allclose(1 / beta, torch.full_like(beta, temperature), rtol=0.06)


@pytest.mark.parametrize("temperature", [0.4, 1.0, 4.0])
def test_every_fold_has_the_temperature_that_is_best_for_the_other_samples(temperature):
    rows, fold = sample(400, 3, 2, temperature), folds_of(400)
    for number, beta in enumerate(_beta_by_fold(rows, fold, 5)[0].tolist()):
        others = rows[fold != number]

        def loss(beta, others=others):
            return float(torch.nn.functional.cross_entropy(others.logits * beta, others.labels))

        best = minimize_scalar(loss, bounds=(1e-2, 1e2), method="bounded", options={"xatol": 1e-8})
        # One Newton step from the temperature of all samples: close, and what it misses is second order in the loss.
        assert beta == pytest.approx(best.x, rel=5e-3)
        assert loss(beta) <= best.fun + 5e-6


def test_a_calibrated_model_gains_nothing():
    for seed in range(5):
        for split in calibration_refinement(sample(4000, 5, seed)).values():
            assert abs(split.calibration) < 1e-3
            assert split.calibration_low < 1e-4


def test_a_sharpened_model_gains_what_it_lost():
    honest, sharp = sample(4000, 5, 3), sample(4000, 5, 3, 3.0)
    for name, metric in (("nll", nll), ("brier", brier)):
        split = calibration_refinement(sharp)[name]
        assert split.refinement == pytest.approx(metric(honest), abs=1e-3)
        assert split.calibration == pytest.approx(metric(sharp) - metric(honest), abs=1e-3)
        assert split.calibration_low > 0


def test_the_split_does_not_flatter_itself():
    # Fitted on the evaluated samples, a temperature could only lower the log-loss; cross-fitted it may raise it.
    splits = [calibration_refinement(sample(60, 3, seed))["nll"].calibration for seed in range(60)]
    assert min(splits) < 0
    assert np.mean(splits) < 0.005


def test_the_deal_is_repeatable_and_hardly_matters():
    rows = sample(3000, 4, 4, 2.0)
    first, again, other = (calibration_refinement(rows, seed=seed)["nll"] for seed in (0, 0, 1))
    assert first == again
    assert other.calibration == pytest.approx(first.calibration, abs=1e-3)


def test_the_interval_of_the_calibration_part_covers_its_mean():
    parts = [calibration_refinement(sample(1000, 3, seed, 1.5))["nll"] for seed in range(100)]
    mean = np.mean([part.calibration for part in parts])
    assert np.mean([part.calibration_low <= mean <= part.calibration_high for part in parts]) >= 0.88


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("scale", [0.1, 1.0, 1e4])
def test_samples_that_are_all_right_or_all_wrong_have_a_split(wrong, scale):
    # No temperature is best for them: the coldest (or hottest) one allowed is taken.
    rows = sample(50, 3, 0)
    answers = Predictions.from_logits(rows.logits * scale, (rows.predicted + wrong) % 3)
    for split in calibration_refinement(answers).values():
        assert np.all(np.isfinite(split))
        assert split.calibration > -1e-9


@given(rows=predictions(min_rows=10))
@settings(max_examples=40)
def test_it_is_finite_for_any_samples(rows):
    for split in calibration_refinement(rows).values():
        assert np.all(np.isfinite(split))
        assert split.calibration + split.refinement == pytest.approx(split.total, rel=1e-6, abs=1e-9)


def test_two_folds_and_two_samples_a_fold_are_needed():
    with pytest.raises(InputError, match="folds must be at least 2; got 1"):
        calibration_refinement(sample(20, 3, 0), folds=1)
    with pytest.raises(InputError, match="samples for the cross-fitted split must be at least 10; got 9"):
        calibration_refinement(sample(9, 3, 0))

import numpy as np
import pytest
import torch
from made_samples import overconfident
from scipy.interpolate import CubicSpline

from calibrant.calibrators import SplineCalibration
from calibrant.errors import FitError, InputError
from calibrant.predictions import Predictions


def rows(n=1000, k=3, **how):
    return overconfident(n, k, **how)


def by_definition(cal, n_knots):
    """Confidences in rising order and what they become, from the natural cubic splines of scipy; without ties."""
    order = np.argsort(cal.confidence.numpy())
    confidence, right = cal.confidence.numpy()[order], cal.correct.numpy()[order].astype(float)
    n = len(order)
    rank = np.arange(n + 1) / n
    basis = CubicSpline(np.linspace(0, 1, n_knots), np.eye(n_knots), bc_type="natural")(rank)
    weights = np.linalg.lstsq(basis[1:], np.cumsum(right - confidence) / n, rcond=None)[0]
    return confidence, (confidence + np.diff(basis @ weights) * n).clip(1 / (n + 2), 1 - 1 / (n + 2))


@pytest.mark.parametrize(("n", "n_knots"), [(10, 4), (1000, 6), (1500, 11)])
def test_it_adds_the_slope_of_a_natural_cubic_spline_through_the_summed_errors(n, n_knots):
    cal = rows(n)
    result = SplineCalibration(n_knots=n_knots).fit(cal).transform(cal).confidence.numpy()
    confidence, expected = by_definition(cal, n_knots)
    result = result[np.argsort(cal.confidence.numpy())]
    plain = expected > 0.5  # below, the other classes may have to make way
    off = np.abs(result - expected)[plain]
    assert np.quantile(off, 0.99) < 1e-9
    assert off.max() < 1e-3  # scores closer than 1e-6 count as ties
    assert np.abs(expected - confidence).max() > 0.05


def test_many_samples_lose_nothing_to_the_fewer_points_that_are_kept():
    cal = rows(30_000)
    fitted = SplineCalibration().fit(cal)
    assert fitted.curve.knots.shape[1] <= 2048
    result = fitted.transform(cal).confidence.numpy()[np.argsort(cal.confidence.numpy())]
    _, expected = by_definition(cal, 6)
    plain = expected > 0.5
    assert np.allclose(result[plain], expected[plain], atol=3e-4)


def test_between_two_scores_the_nearer_one_weighs_more():
    log_odds = torch.tensor([0.5, 1.0, 2.0, 4.0], dtype=torch.float64).repeat(100)
    right = torch.rand(400, generator=torch.Generator().manual_seed(0)) < torch.sigmoid(log_odds / 2)
    fitted = SplineCalibration(n_knots=4).fit(two_classes(log_odds, right))
    at = fitted.transform(two_classes(torch.tensor([2.0, 2.2, 3.8, 4.0], dtype=torch.float64))).top.log_odds
    share = (at - at[0]) / (at[3] - at[0])
    assert torch.allclose(share, torch.tensor([0.0, 0.1, 0.9, 1.0], dtype=torch.float64))


def two_classes(log_odds, right=None):
    labels = torch.zeros(len(log_odds), dtype=torch.int64) if right is None else (~right).long()
    return Predictions.from_logits(torch.stack([log_odds, torch.zeros_like(log_odds)], 1), labels)


def test_a_calibrated_model_hardly_changes():
    cal = rows(50_000, sharpness=1.0)
    result = SplineCalibration().fit(cal).transform(cal)
    assert float((result.confidence - cal.confidence).abs().mean()) < 0.01


def test_overconfidence_is_taken_away():
    generator = torch.Generator().manual_seed(0)
    log_odds = 4 * torch.rand(50_000, generator=generator, dtype=torch.float64)
    right = torch.rand(50_000, generator=generator) < torch.sigmoid(log_odds / 2)
    cal = two_classes(log_odds, right)
    result = SplineCalibration().fit(cal).transform(cal)
    assert float((result.confidence - torch.sigmoid(log_odds / 2)).abs().mean()) < 0.01


def test_one_confidence_becomes_its_accuracy():
    cal = Predictions.from_logits(torch.tensor([[3.0, 0.0]]).repeat(40, 1), torch.tensor([0, 0, 0, 1]).repeat(10))
    result = SplineCalibration().fit(cal).transform(cal)
    assert result.confidence.numpy() == pytest.approx(0.75, abs=1e-3)


def test_fewer_samples_than_knots_are_an_error():
    with pytest.raises(FitError, match=r"6 knots must have at least as many samples; got 5"):
        SplineCalibration().fit(rows(5))


def test_a_single_knot_is_refused():
    with pytest.raises(InputError, match="n_knots"):
        SplineCalibration(n_knots=1)

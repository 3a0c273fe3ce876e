"""CORP: the isotonic curve against scikit-learn, the split as an identity, band and p-values under calibration."""

import math

import numpy as np
import pytest
import torch

from calibrant.evidence import corp
from calibrant.metrics import top_brier
from calibrant.predictions import LABEL_FLOOR, Predictions, TopLabel


def simulated(n, *, power=1.0, seed=0, decimals=None):
    """Confidences in 0.2..1 that are right with the confidence to a power, rounded to make ties."""
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.2, 1, n)
    if decimals is not None:
        confidence = confidence.round(decimals)
    return TopLabel(confidence, rng.random(n) < confidence**power)


@pytest.mark.parametrize("decimals", [None, 2])
def test_the_curve_is_isotonic_regression(decimals):
    isotonic = pytest.importorskip("sklearn.isotonic")
    top = simulated(3000, power=2, decimals=decimals)
    curve = corp(top, redraws=20)
    expected = isotonic.IsotonicRegression().fit_transform(top.confidence.numpy(), top.correct.double().numpy())
    corners = (part.numpy() for part in curve.points)
    assert np.interp(top.confidence.numpy(), *corners) == pytest.approx(expected, abs=1e-12)
    assert int(curve.count.sum()) == 3000


@pytest.mark.parametrize("decimals", [None, 1])
@pytest.mark.parametrize("power", [0.3, 1.0, 3.0])
def test_the_parts_add_up_to_the_score_and_are_those_of_the_definition(power, decimals):
    top = simulated(800, power=power, decimals=decimals)
    curve = corp(top, redraws=20)
    p, y = top.confidence.numpy(), top.correct.double().numpy()
    fitted = np.interp(p, *(part.numpy() for part in curve.points))

    def log_loss(q):
        with np.errstate(divide="ignore"):
            return -np.where(y == 1, np.log(q), np.log1p(-q)).clip(min=math.log(LABEL_FLOOR)).mean()

    for split, score in ((curve.brier, lambda q: ((q - y) ** 2).mean()), (curve.nll, log_loss)):
        assert split.score == pytest.approx(score(p))
        assert split.miscalibration == pytest.approx(score(p) - score(fitted))
        assert split.discrimination == pytest.approx(score(np.full(800, y.mean())) - score(fitted))
        assert split.miscalibration - split.discrimination + split.uncertainty == pytest.approx(split.score, rel=1e-12)
        assert min(split.miscalibration, split.discrimination) >= 0
    assert curve.brier.score == pytest.approx(top_brier(top))


def test_a_calibrated_model_is_at_its_floor_and_an_overconfident_one_is_not():
    calibrated, wrong = (corp(simulated(5000, power=power)) for power in (1.0, 1.5))
    for split in (calibrated.brier, calibrated.nll):
        assert split.miscalibration < 2 * split.floor
        assert split.p > 0.05
    for split in (wrong.brier, wrong.nll):
        assert split.miscalibration > 4 * split.floor
        assert split.p < 0.01


def test_p_values_of_calibrated_models_are_even_and_their_curves_keep_to_the_band():
    p_values, outside = [], []
    for seed in range(200):
        curve = corp(simulated(300, seed=seed), redraws=100, seed=seed)
        p_values.append((curve.brier.p, curve.nll.p))
        # The band is between the samples where the curve is a line, so it is compared at samples inside blocks.
        place = torch.searchsorted(curve.high, curve.confidence).clamp(max=len(curve.high) - 1)
        here = curve.accuracy[place]
        outside.append((((here < curve.band_low - 1e-9) | (here > curve.band_high + 1e-9)).double().mean()).item())
    for column in zip(*p_values, strict=True):
        shares = [np.mean(np.array(column) <= level) for level in (0.1, 0.5, 0.9)]
        assert shares == pytest.approx([0.1, 0.5, 0.9], abs=0.09)  # 2.5 standard errors
    assert 0.02 < np.mean(outside) < 0.07


def test_floors_and_p_values_hold_where_samples_are_joined_in_cells():
    curve = corp(simulated(60_000), redraws=50)
    assert curve.brier.p > 0.02
    assert curve.brier.miscalibration == pytest.approx(curve.brier.floor, rel=0.5)
    assert int(curve.count.sum()) == 60_000


def test_the_order_of_the_samples_does_not_matter():
    top = simulated(500, decimals=2)
    again = corp(top[torch.randperm(500, generator=torch.Generator().manual_seed(1))])
    first = corp(top)
    assert again.brier == first.brier
    assert again.nll == first.nll
    assert torch.equal(again.band_low, first.band_low)


def test_logits_are_read_as_their_top_label():
    logits = torch.randn(400, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2
    predictions = Predictions(logits, torch.arange(400) % 5)
    ours, top = corp(predictions), corp(TopLabel(predictions.top.confidence, predictions.top.correct))
    assert ours.brier == pytest.approx(top.brier)
    assert ours.nll == pytest.approx(top.nll)
    assert corp(logits=logits, labels=torch.arange(400) % 5).brier == ours.brier


@pytest.mark.parametrize(
    ("confidence", "correct"),
    [([0.7], [True]), ([0.7], [False]), ([1.0] * 5, [True, True, False, True, True]), ([0.9] * 40, [True] * 40),
     ([0.0, 1.0], [True, False]), ([0.5, 0.6, 0.7], [False] * 3)],
)  # fmt: skip
def test_few_or_certain_samples_have_finite_parts(confidence, correct):
    curve = corp(TopLabel(confidence, correct))
    for split in (curve.brier, curve.nll):
        assert all(math.isfinite(number) for number in split)
        assert split.miscalibration - split.discrimination + split.uncertainty == pytest.approx(split.score, abs=1e-12)
    assert ((curve.accuracy >= 0) & (curve.accuracy <= 1)).all()
    assert (curve.band_low <= curve.band_high).all()

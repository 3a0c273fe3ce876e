import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from calibrant.calibrators import EnsembleTemperatureScaling, TemperatureScaling
from calibrant.errors import CalibrantWarning, FitError, InputError
from calibrant.metrics import brier, nll
from calibrant.predictions import Predictions

CRITERIA = ("nll", "brier")
each_criterion = pytest.mark.parametrize("criterion", CRITERIA)


def rows_of(n=3000, k=5, *, uniform=0.0, temperature=2.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2.5 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    probs = (1 - uniform) * logits.softmax(1) + uniform / k
    return Predictions.from_logits(temperature * logits, torch.multinomial(probs, 1, generator=generator)[:, 0])


def parts_of(rows, temperature):
    return torch.stack([(rows.logits / temperature).softmax(1), rows.probs, torch.full_like(rows.probs, 0.2)])


def test_samples_that_a_temperature_made_are_mostly_left_to_it():
    fitted = EnsembleTemperatureScaling().fit(rows_of(50_000))
    assert float(fitted.weights[0]) > 0.97
    assert float(fitted.maps[0].temperature) == pytest.approx(2.0, rel=0.03)


def test_all_on_the_temperature_is_temperature_scaling():
    rows = rows_of()
    fitted, scaled = EnsembleTemperatureScaling().fit(rows), TemperatureScaling().fit(rows).transform(rows).probs
    fitted.weights.copy_(torch.tensor([1.0, 0.0, 0.0]))
    assert torch.allclose(fitted.transform(rows).probs, scaled, atol=1e-12)


def test_a_share_of_chance_is_found():
    fitted = EnsembleTemperatureScaling().fit(rows_of(50_000, uniform=0.2, temperature=1.0))
    assert float(fitted.weights[2]) == pytest.approx(0.2, abs=0.04)


@each_criterion
def test_shares_are_shares(criterion):
    weights = EnsembleTemperatureScaling(criterion=criterion).fit(rows_of(uniform=0.1)).weights
    assert weights.min() >= 0
    assert float(weights.sum()) == pytest.approx(1.0, abs=1e-12)


@each_criterion
def test_no_other_shares_are_better(criterion):
    rows = rows_of(uniform=0.1)
    fitted = EnsembleTemperatureScaling(criterion=criterion).fit(rows)
    parts = parts_of(rows, fitted.maps[0].temperature).numpy()
    label = np.take_along_axis(parts, rows.labels.numpy()[None, :, None], axis=2)[:, :, 0]

    def score(shares):
        if criterion == "nll":
            return -np.log(np.maximum(shares @ label, 1e-300)).mean()
        mixed = np.tensordot(shares, parts, axes=1)
        return 1 + (mixed**2).sum(1).mean() - 2 * (shares @ label).mean()

    theirs = minimize(
        score,
        np.full(3, 1 / 3),
        method="SLSQP",
        bounds=[(0, 1)] * 3,
        constraints={"type": "eq", "fun": lambda shares: shares.sum() - 1},
        options={"ftol": 1e-14},
    )
    assert fitted.summary.certificate.objective <= theirs.fun + 1e-9
    assert fitted.summary.certificate.objective == pytest.approx(score(fitted.weights.numpy()), abs=1e-9)
    assert fitted.summary.certificate.gradient <= 1e-9


@each_criterion
@pytest.mark.parametrize("tiny", [-69.0, -103.0, -744.0, -1e5, -1e30])
@pytest.mark.parametrize("seed", range(4))
def test_shares_are_best_where_a_third_of_all_probabilities_is_tiny(criterion, tiny, seed):
    """Against expectation maximisation, written here, and exponentiated gradients for the Brier score."""
    generator = torch.Generator().manual_seed(seed)
    rows = rows_of(600, 4, temperature=(1.0, 0.3, 3.0, 1.02)[seed], seed=seed)
    ruled_out = torch.rand(600, 4, generator=generator) < 0.33
    rows = Predictions.from_logits(rows.logits.masked_fill(ruled_out, tiny), rows.labels)
    fitted = EnsembleTemperatureScaling(criterion=criterion).fit(rows)
    logs = torch.stack([part(rows.logits).log_softmax(1) for part in fitted.maps])
    of_label = logs.gather(2, rows.labels.expand(3, -1)[:, :, None])[:, :, 0]
    shares = torch.full((3,), 1 / 3, dtype=torch.float64)
    if criterion == "nll":
        relative = (of_label - of_label.amax(0)).exp()  # which cannot underflow together
        for _ in range(2000):
            shares = shares * (relative / (shares @ relative)).mean(1)
        best = -float((of_label + shares.log()[:, None]).logsumexp(0).mean())
        assert (fitted.weights > 0).any()
        # The gap of the shares that were returned.
        gap = (of_label - (of_label + fitted.weights.log()[:, None]).logsumexp(0)).exp().mean(1).max() - 1
        assert float(gap) <= 1e-9
    else:
        probs, products = logs.exp(), torch.einsum("anj,bnj->ab", logs.exp(), logs.exp()) / 600
        linear = of_label.exp().mean(1)
        for _ in range(2000):
            shares = shares * (-2 * (products @ shares - linear)).exp()
            shares = shares / shares.sum()
        mixed = (shares[:, None, None] * probs).sum(0)
        best = float(1 + mixed.square().sum(1).mean() - 2 * mixed.gather(1, rows.labels[:, None]).mean())
    assert fitted.summary.certificate.objective <= best + 1e-9


def test_a_brier_score_that_always_falls_is_reported_at_the_edge_of_the_search():
    rows = rows_of(200, 3)
    with pytest.warns(CalibrantWarning, match="always falls"):
        fitted = EnsembleTemperatureScaling(criterion="brier").fit(
            Predictions.from_logits(rows.logits, (rows.predicted + 1) % 3)
        )
    assert float(fitted.weights[2]) == pytest.approx(1.0)


def test_the_temperature_of_the_brier_score_is_found_far_from_that_of_the_log_loss():
    rows = rows_of(temperature=1.0)
    logits = rows.logits.clone()
    logits[0, (rows.labels[0] + 1) % 5] = 8e3  # one sample, sure and wrong, which the log-loss cannot bear
    corrupted = Predictions.from_logits(logits, rows.labels)
    with pytest.warns(CalibrantWarning, match="Brier score"):
        assert float(TemperatureScaling().fit(corrupted).temperature) > 30
    fitted = EnsembleTemperatureScaling(criterion="brier").fit(corrupted)
    assert float(fitted.maps[0].temperature) == pytest.approx(1.0, abs=0.1)
    assert fitted.summary.certificate.gradient <= 1e-9


def test_on_its_own_samples_it_is_never_worse_than_its_parts():
    rows = rows_of(uniform=0.1)
    assert nll(EnsembleTemperatureScaling().fit(rows).transform(rows)) <= nll(
        TemperatureScaling().fit(rows).transform(rows)
    )
    assert brier(EnsembleTemperatureScaling(criterion="brier").fit(rows).transform(rows)) <= brier(rows)


def test_the_temperature_of_the_brier_score_is_best_by_it():
    rows = rows_of()
    temperature = float(EnsembleTemperatureScaling(criterion="brier").fit(rows).maps[0].temperature)
    best = brier(Predictions.from_logits(rows.logits / temperature, rows.labels))
    for other in (0.99 * temperature, 1.01 * temperature):
        assert best < brier(Predictions.from_logits(rows.logits / other, rows.labels))


def test_no_probability_falls_below_the_uniform_share():
    rows = rows_of(uniform=0.2)
    fitted = EnsembleTemperatureScaling().fit(rows)
    extreme = Predictions.from_logits(torch.tensor([[2000.0, 0.0, 0.0, 0.0, -2000.0]]), [4])
    assert nll(fitted.transform(extreme)) == pytest.approx(-math.log(float(fitted.weights[2]) / 5), rel=1e-4)


def test_predictions_that_are_all_right_have_no_temperature():
    rows = rows_of()
    with pytest.raises(FitError, match="some wrong predictions"):
        EnsembleTemperatureScaling().fit(Predictions.from_logits(rows.logits, rows.predicted))


def test_unknown_criteria_are_refused():
    with pytest.raises(InputError, match="nll"):
        EnsembleTemperatureScaling(criterion="nlll")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_predictions_stay_where_every_one_was_wrong_and_only_the_uniform_part_is_left(dtype):
    rows = rows_of()
    fitted = EnsembleTemperatureScaling().fit(Predictions.from_logits(rows.logits, (rows.predicted + 1) % 5))
    assert fitted.weights[2] == pytest.approx(1)
    logits = rows.logits.to(dtype)
    result = fitted(logits)
    assert torch.equal(result.argmax(1), logits.argmax(1))
    assert torch.allclose(result.exp().sum(1), torch.ones(len(logits), dtype=dtype), atol=1e-6)
    assert torch.allclose(result.exp(), torch.full_like(result, 0.2), atol=1e-5)

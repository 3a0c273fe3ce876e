import pytest
import torch
from scipy.optimize import minimize
from torch.nn.functional import cross_entropy

from calibrant.calibrators import StructuredVectorScaling, TemperatureScaling, VectorScaling
from calibrant.errors import CalibrantWarning, InputError
from calibrant.metrics import nll
from calibrant.predictions import Predictions


def rows_of(n=2000, k=5, *, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    slope = torch.linspace(1.5, 2.5, k, dtype=torch.float64)
    return Predictions.from_logits(slope * logits + 0.2 * torch.arange(k), labels)


def test_it_minimises_the_penalised_log_loss_of_the_paper():
    rows = rows_of(300)
    n, k = rows.logits.shape
    fitted = StructuredVectorScaling(diagonal_strength=2.0, bias_strength=0.5).fit(rows)
    scale, affine = fitted.maps
    inputs = (rows.logits / scale.temperature).log_softmax(1)

    def objective(flat):
        theta = torch.from_numpy(flat.copy()).requires_grad_()
        weight, bias = theta.view(2, k)
        penalty = 2.0 * k / n * (weight - 1).square().sum() + 0.5 * k / n * bias.square().sum()
        loss = cross_entropy(inputs * weight + bias, rows.labels) + penalty
        loss.backward()
        return loss.item(), theta.grad.numpy()

    start = torch.stack([torch.ones(k), torch.zeros(k)]).double().flatten().numpy()
    theirs = minimize(objective, start, jac=True, method="BFGS", options={"gtol": 1e-9})
    ours = torch.stack([affine.weight, affine.bias])
    assert torch.allclose(ours, torch.from_numpy(theirs.x).view(2, k), atol=1e-6)
    assert fitted.summary.certificate.objective == pytest.approx(theirs.fun, abs=1e-10)


def test_the_temperature_is_that_of_temperature_scaling():
    rows = rows_of()
    fitted = StructuredVectorScaling().fit(rows)
    assert fitted.maps[0].temperature == TemperatureScaling().fit(rows).temperature


def test_a_strong_pull_leaves_the_temperature():
    rows = rows_of()
    strong = StructuredVectorScaling(diagonal_strength=1e9, bias_strength=1e9).fit(rows).transform(rows).probs
    assert torch.allclose(strong, TemperatureScaling().fit(rows).transform(rows).probs, atol=1e-6)


def test_without_much_of_a_penalty_it_is_vector_scaling_of_the_log_probabilities():
    rows = rows_of()
    weak = StructuredVectorScaling(diagonal_strength=1e-9, bias_strength=1e-9).fit(rows).transform(rows).probs
    log_probs = TemperatureScaling().fit(rows).transform(rows).log_probs
    same = Predictions.from_logits(log_probs, rows.labels)
    assert torch.allclose(weak, VectorScaling().fit(same).transform(same).probs, atol=1e-5)


def test_on_new_samples_it_beats_a_temperature():
    rows, new = rows_of(4000), rows_of(20_000, seed=1)
    better, good = (nll(each.fit(rows).transform(new)) for each in (StructuredVectorScaling(), TemperatureScaling()))
    assert better < good - 0.005


def test_a_number_added_to_all_logits_of_a_sample_changes_nothing():
    rows = rows_of()
    moved = Predictions.from_logits(rows.logits + torch.linspace(-5, 5, len(rows))[:, None], rows.labels)
    one, other = (StructuredVectorScaling().fit(each).transform(each).probs for each in (rows, moved))
    assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*no calibration samples of class")
def test_classes_without_samples_are_no_trouble():
    rows = rows_of()
    assert StructuredVectorScaling().fit(rows[rows.labels != 3]).summary.certificate.gradient <= 1e-8


@pytest.mark.filterwarnings("ignore:.*no calibration samples of class")
def test_ten_samples_are_enough_to_fit():
    rows = rows_of(500)
    wrong = rows.predicted != rows.labels
    some = torch.cat([wrong.nonzero()[:5, 0], (~wrong).nonzero()[:5, 0]])
    assert StructuredVectorScaling().fit(rows[some]).summary.certificate.gradient <= 1e-8


def test_predictions_that_are_all_right_are_fitted_with_half_an_unseen_mistake():
    rows = rows_of()
    with pytest.warns(CalibrantWarning, match="half a pseudo-error"):
        fitted = StructuredVectorScaling().fit(Predictions.from_logits(rows.logits, rows.predicted))
    assert fitted.summary.certificate.gradient <= 1e-8
    assert float(fitted.transform(rows).confidence.mean()) < 1 - 1e-4


@pytest.mark.parametrize("strength", [0.0, -1.0, float("inf"), float("nan")])
def test_strengths_must_be_positive(strength):
    with pytest.raises(InputError, match="bias_strength must be above 0"):
        StructuredVectorScaling(bias_strength=strength)


def test_a_class_without_samples_is_reported():
    rows = rows_of(500)
    with pytest.warns(CalibrantWarning, match="no calibration samples of class 2.*such as temperature or ets"):
        StructuredVectorScaling().fit(rows[rows.labels != 2])

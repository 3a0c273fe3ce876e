import pytest
import torch
from torch.nn.functional import cross_entropy

from calibrant.calibrators import StructuredMatrixScaling, StructuredVectorScaling, TemperatureScaling
from calibrant.errors import InputError
from calibrant.metrics import nll
from calibrant.predictions import Predictions


def rows_of(n=2000, k=5, *, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    mixing = 2 * torch.eye(k) + 0.6 * torch.eye(k).roll(1, 0)
    return Predictions.from_logits(logits @ mixing.double(), labels)


def test_the_gradient_of_the_papers_objective_vanishes():
    rows = rows_of(300)
    n, k = rows.logits.shape
    fitted = StructuredMatrixScaling(diagonal_strength=2.0, off_diagonal_strength=0.3, bias_strength=0.5).fit(rows)
    scale, affine = fitted.maps
    weight, bias = affine.weight.clone().requires_grad_(), affine.bias.clone().requires_grad_()
    inputs = (rows.logits / scale.temperature).log_softmax(1)
    diagonal, squares = weight.diagonal(), weight.square().sum() - weight.diagonal().square().sum()
    penalty = 2.0 * k / n * (diagonal - 1).square().sum() + 0.3 * k * (k - 1) / n * squares
    objective = cross_entropy(inputs @ weight.T + bias, rows.labels) + penalty + 0.5 * k / n * bias.square().sum()
    objective.backward()
    assert weight.grad.abs().max() < 1e-7
    assert bias.grad.abs().max() < 1e-7
    assert fitted.summary.certificate.objective == pytest.approx(objective.item(), abs=1e-10)


def test_a_strong_pull_on_the_off_diagonal_leaves_structured_vector_scaling():
    rows = rows_of()
    strong = StructuredMatrixScaling(off_diagonal_strength=1e9).fit(rows).transform(rows).probs
    assert torch.allclose(strong, StructuredVectorScaling().fit(rows).transform(rows).probs, atol=1e-6)


def test_a_strong_pull_on_everything_leaves_the_temperature():
    rows = rows_of()
    strong = StructuredMatrixScaling(1e9, 1e9, 1e9).fit(rows).transform(rows).probs
    assert torch.allclose(strong, TemperatureScaling().fit(rows).transform(rows).probs, atol=1e-6)


def test_classes_taken_for_one_another_are_separated_on_new_samples():
    rows, new = rows_of(4000), rows_of(20_000, seed=1)
    matrix, vector = (
        nll(each().fit(rows).transform(new)) for each in (StructuredMatrixScaling, StructuredVectorScaling)
    )
    assert matrix < vector - 0.02


@pytest.mark.filterwarnings("ignore:.*no calibration samples of class")
def test_more_parameters_than_samples_are_no_trouble():
    rows = rows_of(100, 30)
    assert StructuredMatrixScaling().fit(rows).summary.certificate.gradient <= 1e-8


def test_strengths_must_be_positive():
    with pytest.raises(InputError, match="off_diagonal_strength must be above 0"):
        StructuredMatrixScaling(off_diagonal_strength=0.0)

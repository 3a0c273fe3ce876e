import pytest
import torch

from calibrant.calibrators import MatrixScaling, VectorScaling
from calibrant.errors import CalibrantWarning, FitError
from calibrant.metrics import nll
from calibrant.predictions import Predictions


def rows_of(n=4000, k=4, *, mixing=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    mixing = 2 * torch.eye(k, dtype=torch.float64) if mixing is None else mixing
    return Predictions.from_logits(logits @ mixing.T, labels)


def test_a_mixture_of_classes_is_undone():
    mixing = torch.eye(4, dtype=torch.float64) + 0.5 * torch.eye(4, dtype=torch.float64).roll(1, 0)
    rows = rows_of(100_000, mixing=mixing)
    probs = MatrixScaling().fit(rows).transform(rows).probs
    honest = torch.linalg.solve(mixing, rows.logits.T).T.softmax(1)
    assert (probs - honest).abs().mean() < 0.005


def test_on_its_own_samples_it_is_at_least_as_good_as_vector_scaling():
    rows = rows_of()
    assert nll(MatrixScaling().fit(rows).transform(rows)) < nll(VectorScaling().fit(rows).transform(rows))


def test_samples_that_a_temperature_made_get_nearly_that_temperature():
    weight = MatrixScaling().fit(rows_of(200_000)).weight
    assert torch.allclose(weight, 0.5 * torch.eye(4, dtype=torch.float64), atol=0.02)


def test_a_number_added_to_all_logits_of_the_samples_changes_nothing_when_it_is_the_same():
    rows = rows_of()
    shifted = Predictions.from_logits(rows.logits + 50, rows.labels)
    one, other = (MatrixScaling().fit(each).transform(each).probs for each in (rows, shifted))
    assert torch.allclose(one, other, atol=1e-6)


def test_the_optimum_is_certified():
    assert MatrixScaling().fit(rows_of()).summary.certificate.gradient <= 1e-8


def test_a_class_without_samples_is_named():
    rows = rows_of()
    with pytest.raises(FitError, match=r"of class 3\."):
        MatrixScaling().fit(rows[rows.labels != 3])


def test_fewer_samples_than_parameters_are_reported():
    rows = rows_of(100, 12)
    with pytest.warns(CalibrantWarning, match="156 parameters to 100 samples"):
        MatrixScaling().fit(Predictions.from_logits(rows.logits, torch.arange(100) % 12))


def test_as_many_separable_classes_as_samples_have_no_optimum():
    rows = rows_of(25, 12)
    with (
        pytest.warns(CalibrantWarning, match="156 parameters to 25 samples"),
        pytest.raises(FitError, match="separable"),
    ):
        MatrixScaling().fit(Predictions.from_logits(rows.logits, torch.arange(25) % 12))

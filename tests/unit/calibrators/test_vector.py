import pytest
import torch

from calibrant.calibrators import TemperatureScaling, VectorScaling
from calibrant.errors import CalibrantWarning, FitError
from calibrant.metrics import nll
from calibrant.predictions import Predictions


def rows_of(n=4000, k=4, *, slope=None, shift=0.0, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    slope = 2 * torch.ones(k) if slope is None else torch.tensor(slope)
    return Predictions.from_logits((slope * logits + shift * torch.arange(k)).to(dtype), labels)


def test_the_slopes_and_shifts_that_were_put_in_are_undone():
    rows = rows_of(200_000, slope=[1.0, 2.0, 3.0, 4.0], shift=0.5)
    fitted = VectorScaling().fit(rows)
    assert fitted.weight.tolist() == pytest.approx([1.0, 1 / 2, 1 / 3, 1 / 4], rel=0.03)
    expected = torch.tensor([0, -0.5 / 2, -1 / 3, -1.5 / 4])
    assert fitted.bias.tolist() == pytest.approx((expected - expected.mean()).tolist(), abs=0.03)


def test_on_its_own_samples_it_is_at_least_as_good_as_a_temperature():
    rows = rows_of(shift=0.3)
    assert nll(VectorScaling().fit(rows).transform(rows)) < nll(TemperatureScaling().fit(rows).transform(rows))


def test_samples_that_a_temperature_made_get_nearly_that_temperature():
    fitted = VectorScaling().fit(rows_of(100_000))
    assert fitted.weight.tolist() == pytest.approx([0.5] * 4, rel=0.03)
    assert fitted.bias.abs().max() < 0.03


def test_the_optimum_is_certified():
    certificate = VectorScaling().fit(rows_of()).summary.certificate
    assert certificate.gradient <= 1e-8
    assert certificate.steps < 20


def test_single_precision_logits_give_the_same_map():
    one, other = (VectorScaling().fit(rows_of(dtype=dtype)) for dtype in (torch.float64, torch.float32))
    assert torch.allclose(one.weight, other.weight, atol=1e-6)
    assert torch.allclose(one.bias, other.bias, atol=1e-6)


def test_a_class_without_samples_is_named():
    rows = rows_of()
    with pytest.raises(FitError, match=r"Vector scaling must see samples of every class.* of class 1, 3\."):
        VectorScaling().fit(rows[(rows.labels == 0) | (rows.labels == 2)])


def test_a_separable_class_has_no_optimum():
    rows = rows_of()
    logits = rows.logits.clone()
    logits[:, 1] = torch.where(rows.labels == 1, 6.0, -6.0)
    with pytest.raises(FitError, match=r"separable.*those of class 1 first.*svs"):
        VectorScaling().fit(Predictions.from_logits(logits, rows.labels))


def test_fewer_samples_than_parameters_are_reported():
    rows = Predictions.from_logits([[3.0, 1.0, 0.0]] * 5, [0, 0, 0, 1, 2])
    with pytest.warns(CalibrantWarning, match="6 parameters to 5 samples"):
        VectorScaling().fit(rows)

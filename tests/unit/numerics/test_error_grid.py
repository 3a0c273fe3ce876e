import pytest
import torch

from calibrant.metrics import ECE
from calibrant.numerics.binning import errors_at_temperatures
from calibrant.predictions import Predictions


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("n_bins", [1, 15])
def test_errors_are_those_of_the_metric_at_each_temperature(dtype, n_bins):
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(700, 6, generator=generator, dtype=torch.float64)).to(dtype)
    labels = torch.randint(0, 6, (700,), generator=generator)
    temperatures = torch.tensor([0.1, 0.7, 1.0, 2.5, 9.0])
    expected = [ECE(n_bins)(Predictions.from_logits(logits / t, labels)) for t in temperatures.tolist()]
    found = errors_at_temperatures(logits, labels, temperatures, n_bins=n_bins)
    assert found.tolist() == pytest.approx(expected, abs=1e-6)


def test_blocks_of_samples_add_up():
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(3000, 200, generator=generator)
    labels = torch.randint(0, 200, (3000,), generator=generator)
    found = errors_at_temperatures(logits, labels, torch.tensor([1.0]), n_bins=15)
    assert float(found[0]) == pytest.approx(ECE()(Predictions.from_logits(logits, labels)), abs=1e-6)

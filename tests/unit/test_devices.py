"""The same numbers on an accelerator, where there is one (seen on an H200 with torch 2.11: within 2e-7)."""

import warnings

import pytest
import torch

from calibrant import Predictions, catalogue, difference
from calibrant.errors import CalibrantWarning
from calibrant.evidence import estimate

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")


@needs_cuda
@pytest.mark.parametrize("k", [2, 10, 100])
def test_every_number_is_the_same_on_an_accelerator(k):
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(3000, k, generator=generator)
    labels = (logits / 1.5).softmax(1).multinomial(1, generator=generator).squeeze()
    here, there = Predictions(logits, labels), Predictions(logits.cuda(), labels.cuda())
    metrics = list(catalogue.metrics.values())
    first, second = (estimate(rows, metrics, resamples=100) for rows in (here, there))
    for name in first:
        assert second[name].value == pytest.approx(first[name].value, rel=1e-5, abs=1e-8)
        assert second[name].high == pytest.approx(first[name].high, rel=1e-5, abs=1e-8)
    assert difference(there, Predictions(there.logits / 2, there.labels), metrics, resamples=20)


@needs_cuda
@pytest.mark.parametrize("k", [2, 6])
@pytest.mark.parametrize("name", list(catalogue.calibrators))
def test_every_calibrator_fits_the_same_map_on_an_accelerator(name, k):
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(1000, k, generator=generator, dtype=torch.float64)
    labels = (logits / 1.5).softmax(1).multinomial(1, generator=generator).squeeze()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrantWarning)
        here = catalogue.calibrators[name].fit(Predictions(logits, labels))
        there = catalogue.calibrators[name].fit(Predictions(logits.cuda(), labels.cuda()))
    assert all(buffer.is_cuda for buffer in there.buffers())
    gap = (there(logits.cuda()).softmax(1).cpu() - here(logits).softmax(1)).abs().amax(dim=1)
    # A sample at the edge of a step may fall on either side.
    assert float((gap > 1e-5).double().mean()) <= 0.01

"""The same numbers on an accelerator, where there is one (seen on an H200 with torch 2.11: within 2e-7)."""

import warnings

import pytest
import torch

from calibrant import (
    DensityRatioCalibration,
    Predictions,
    TemperatureScaling,
    catalogue,
    compare,
    diagrams,
    difference,
    evaluate,
    evaluate_slices,
    load,
    load_map,
    nll,
    save,
    save_map,
)
from calibrant.errors import CalibrantWarning
from calibrant.evidence import estimate
from calibrant.metrics import ECE, calibration_refinement
from calibrant.numerics import softmax
from calibrant.numerics.softmax import SoftmaxRows, Wanted

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


@needs_cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("n", "k"), [(3000, 3), (100_001, 10), (5000, 100), (3001, 1000), (70, 8192)])
def test_a_kernel_takes_the_sums_of_many_logits(n, k, dtype, monkeypatch):
    pytest.importorskip("triton", reason="comes with torch for CUDA on Linux")
    generator = torch.Generator().manual_seed(k)
    logits = (3 * torch.randn(n, k, generator=generator)).to(dtype)
    logits[0], logits[1, 2] = 1, logits[1].max()  # ties
    logits[2] *= 40  # a confidence of 1 in float32
    labels = torch.randint(k, (n,), generator=generator)
    here = SoftmaxRows(logits, labels, Wanted(entropy=True, squares=True, above=1 / 15))
    monkeypatch.setattr(softmax, "_KERNEL_LOGITS", 0)
    monkeypatch.setattr(SoftmaxRows, "_pass_on_gpu", None)  # so that nothing else is used
    there = SoftmaxRows(logits.cuda(), labels.cuda(), here.wanted)
    assert torch.equal(there.top.cpu(), here.top)
    for name in ("rest", "log_odds", "label_gap", "_weighted_gap", "_squares", "other_sums"):
        torch.testing.assert_close(getattr(there, name).cpu(), getattr(here, name), rtol=1e-5, atol=1e-5)
    listed, expected = (
        sorted(zip(*map(torch.Tensor.tolist, rows.other_entries()), strict=True)) for rows in (there, here)
    )
    near = [entry for entry in (*listed, *expected) if abs(entry[2] - 1 / 15) > 1e-6]
    assert len(near) == 2 * len({entry[:2] for entry in near})
    again = SoftmaxRows(logits.cuda(), labels.cuda(), here.wanted)
    assert torch.equal(again.rest, there.rest)
    assert torch.equal(again.other_sums, there.other_sums)


@needs_cuda
def test_without_a_compiler_arrays_take_the_sums(monkeypatch):
    kernel = pytest.importorskip("calibrant.numerics.softmax_kernel", reason="needs Triton", exc_type=ImportError)
    monkeypatch.setattr(softmax, "_KERNEL_LOGITS", 0)
    monkeypatch.setattr(kernel, "sum_rows", lambda *_: 1 / 0)
    monkeypatch.setattr(SoftmaxRows, "_can_compile", True)
    logits, labels = torch.randn(50, 10), torch.arange(50) % 10
    here = SoftmaxRows(logits, labels, Wanted(above=0.1))
    with pytest.warns(CalibrantWarning, match="C compiler"):
        there = SoftmaxRows(logits.cuda(), labels.cuda(), Wanted(above=0.1))
    assert not SoftmaxRows._can_compile
    torch.testing.assert_close(there.rest.cpu(), here.rest)


@pytest.mark.parametrize("name", [*catalogue.metrics, *catalogue.calibrators])
def test_a_default_device_of_torch_is_not_that_of_the_samples(name):
    chance = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(300, 4, generator=chance)
    labels = (logits / 1.5).softmax(1).multinomial(1, generator=chance).squeeze()

    def result():
        samples = Predictions.from_logits(logits, labels)
        if name in catalogue.metrics:
            return catalogue.metrics[name](samples)
        return catalogue.calibrators[name].fit(samples).transform(samples).probs.tolist()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrantWarning)
        expected = result()
        with torch.device("meta"):  # whose tensors hold nothing
            assert result() == expected


def test_evaluations_diagrams_and_files_are_of_the_samples_device_too(tmp_path):
    chance = torch.Generator().manual_seed(0)
    samples = Predictions.from_logits(torch.randn(120, 3, generator=chance), torch.arange(120) % 3)
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrantWarning)
        assert evaluate(samples, resamples=20).n == 120
        assert estimate(samples, [ECE()], resamples=20)["ece"].value == ECE()(samples)
        assert difference(samples, samples, [ECE()], resamples=20)["ece"].value == 0
        assert compare(samples[:60], samples[60:], [], resamples=20).n_test == 60
        assert len(evaluate_slices(samples, by={"half": [0, 1] * 60}, resamples=20)) == 2
        assert diagrams.reliability(samples).n == diagrams.bins_sweep(samples).n == diagrams.risk_coverage(samples).n
        assert calibration_refinement(samples)["nll"].total == pytest.approx(nll(samples))
        fitted = DensityRatioCalibration().fit(samples, samples.logits)
        assert torch.equal(fitted.transform(samples, samples.logits).predicted, samples.predicted)
        save(samples, tmp_path / "samples.npz")
        assert torch.equal(load(tmp_path / "samples.npz").logits, samples.logits)
        scaled = TemperatureScaling(value=2.0).fit(samples)
        save_map(scaled, tmp_path / "map.safetensors")
        assert torch.equal(load_map(tmp_path / "map.safetensors")(samples.logits), scaled(samples.logits))

"""A temperature that is fitted on streamed shards is that of a fit in memory."""

import pytest
import torch
from tests.unit.scale.test_state import predictions_of

from calibrant import Predictions, TemperatureScaling, load, save
from calibrant.errors import FileError, InputError
from calibrant.files.choose import LoadOptions
from calibrant.predictions import TopLabel
from calibrant.scale import Engine, Plan, find_shards, fit_temperature


def fitted(folder, *, weights: str | None = None, **options):
    shards = find_shards([folder])
    return fit_temperature(shards, Plan.of(shards[0], LoadOptions(weights=weights)), **options)


@pytest.fixture
def small_sample(monkeypatch):
    """Keep 500 samples only."""
    monkeypatch.setattr("calibrant.scale.fits.sample_size", lambda _classes: 500)
    monkeypatch.setattr("calibrant.scale.state.sample_size", lambda _classes: 500)


@pytest.mark.usefixtures("small_sample")
@pytest.mark.filterwarnings("ignore::calibrant.errors.CalibrantWarning")
@pytest.mark.parametrize("kind", ["logits", "probs", "weights", "float32"])
def test_it_is_that_of_a_fit_in_memory(tmp_path, kind):
    samples = predictions_of(20_000, 4, weighted=kind == "weights", kind="probs" if kind == "probs" else "logits")
    if kind == "probs":  # without zeros, so that no floor is chosen
        samples = Predictions.from_probs(predictions_of(20_000, 4).probs, samples.labels)
    if kind == "float32":
        samples = Predictions.from_logits(samples.logits.float(), samples.labels)
    for number, rows in enumerate((slice(0, 7000), slice(7000, 7001), slice(7001, 20_000))):
        save(samples[rows], tmp_path / f"{number}.parquet")
    weighted = "weights" if kind == "weights" else None
    lines: list[str] = []
    streamed = fitted(tmp_path, weights=weighted, progress=lines.append)
    memory = TemperatureScaling().fit(samples)
    close = {"float32": 1e-7, "weights": 1e-8}.get(kind, 1e-9)  # as far as the fit in memory goes
    assert float(streamed.map.temperature) == pytest.approx(float(memory.temperature), rel=close)
    summary = streamed.map.summary
    assert summary.rows == len(samples.with_positive_weights())
    assert summary.certificate.gradient < 1e-8
    assert summary.certificate.passes <= 4
    assert summary.certificate.objective == pytest.approx(memory.summary.certificate.objective, rel=1e-5)
    assert len(streamed.sample) == 500
    assert sum("pass over" in line for line in lines) == summary.certificate.steps


@pytest.mark.filterwarnings("ignore::calibrant.errors.CalibrantWarning")
def test_few_samples_are_fitted_as_in_memory(tmp_path):
    samples = predictions_of(3000, 3, kind="probs")
    save(samples, tmp_path / "a.npz")
    streamed, memory = fitted(tmp_path), TemperatureScaling().fit(load(tmp_path / "a.npz"))
    assert float(streamed.map.temperature) == pytest.approx(float(memory.temperature), rel=1e-6)
    assert streamed.map.uniform_share == memory.uniform_share


def test_what_cannot_be_streamed_is_refused(tmp_path):
    save(predictions_of(100, 3), tmp_path / "a.npz")
    with pytest.raises(InputError, match="must minimise the log-loss"):
        fitted(tmp_path, calibrator=TemperatureScaling(criterion="focal"))
    with pytest.raises(InputError, match="evaluates only"):
        fitted(tmp_path, engine=Engine("torchrun"))
    top = tmp_path / "top"
    top.mkdir()
    save(TopLabel(torch.tensor([0.9, 0.8]), torch.tensor([True, False])), top / "a.npz")
    with pytest.raises(InputError, match="only the top label"):
        fitted(top)
    save(predictions_of(100, 4), top / "b.npz")
    (top / "a.npz").unlink()
    save(predictions_of(100, 3), top / "a.npz")
    with pytest.raises(FileError, match=r"b\.npz must hold predictions like the first shard"):
        fitted(top)

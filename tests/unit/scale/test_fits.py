"""What is fitted on streamed shards is what a fit in memory finds."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from forked import start
from held_ports import held_port

from calibrant import Predictions, catalogue, load, save, save_map
from calibrant.errors import FileError, FitError, InputError
from calibrant.files import read_map_file
from calibrant.files.choose import LoadOptions
from calibrant.metrics.states import RankedCells
from calibrant.predictions import TopLabel
from calibrant.scale import Engine, Plan, find_shards, fit_streamed
from calibrant.scale.engines import start_local

pytestmark = pytest.mark.filterwarnings("ignore::calibrant.errors.CalibrantWarning")

SMOOTH = ("temperature", "ets", "bias_corrected", "vector", "svs", "matrix", "sms", "platt", "beta", "quadratic")
BINNED = ("histogram", "histogram(bins=equal_width)", "isotonic")
SAMPLE = 1000


@pytest.fixture(autouse=True)
def _small_sample(monkeypatch):
    """Keep 1000 samples only."""
    monkeypatch.setattr("calibrant.scale.passes.sample_size", lambda _classes: SAMPLE)
    monkeypatch.setattr("calibrant.scale.state.sample_size", lambda _classes: SAMPLE)


def samples_of(kind: str = "logits", *, n: int = 5000, k: int = 4) -> Predictions:
    """Return predictions that are wrong in many ways: classes are over- and underrated, some labels are noise."""
    random = np.random.default_rng(0)
    logits = 2.5 * random.normal(size=(n, k))
    labels = (logits * np.linspace(0.3, 0.8, k) + random.gumbel(size=logits.shape)).argmax(1)
    noise = random.random(n) < 0.1
    labels[noise] = random.integers(k, size=int(noise.sum()))
    weights = random.integers(0, 4, n) if kind == "weights" else None
    if kind == "zeros":
        probs = torch.from_numpy(2 * logits).softmax(1)
        probs = torch.where(probs < 1e-6, 0.0, probs)
        return Predictions.from_probs(probs / probs.sum(1, keepdim=True), labels)
    dtype = np.float32 if kind == "float32" else np.float64
    return Predictions.from_logits(logits.astype(dtype), labels, weights=weights)


def write(samples: Predictions, folder, cuts=(2000, 2001)) -> None:
    """Write shards, as the columns that were given."""
    for number, part in enumerate(np.split(np.arange(len(samples)), cuts)):
        scores = samples.logits[part].exp() if samples.given_as_probs else samples.logits[part]
        if samples.given_as_probs:
            scores = torch.where(scores < 1e-20, 0.0, scores)
        name = "prob" if samples.given_as_probs else "logit"
        columns = {f"{name}_{j}": scores[:, j].numpy() for j in range(samples.n_classes)}
        columns["label"] = samples.labels[part].numpy()
        if samples.weights is not None:
            columns["weight"] = samples.weights[part].numpy()
        pq.write_table(pa.table(columns), folder / f"{number}.parquet", row_group_size=1200)


def fitted(folder, method, **options):
    shards = find_shards([folder])
    weights = "weight" if "weight" in pq.read_schema(shards[0].path).names else None
    calibrator = catalogue.parse_calibrator(method)
    return fit_streamed(calibrator, shards, Plan.of(shards[0], LoadOptions(weights=weights)), **options)


def check_equal(streamed, memory, *, close: float) -> None:
    """Check that two maps have the same numbers, relative to the largest of each kind."""
    ours, theirs = streamed.state_dict(), memory.state_dict()
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        size = float(expected.where(expected.isfinite(), 0).abs().max())
        assert torch.allclose(ours[name], expected, rtol=0, atol=close * size), name


_ZEROS = [(method, "zeros") for method in ("temperature", "ets", "svs", "matrix", "beta")]


@pytest.mark.parametrize(("method", "kind"), [*((method, "weights") for method in SMOOTH), *_ZEROS])
def test_smooth_fits_are_those_in_memory(tmp_path, method, kind):
    samples = samples_of(kind)
    write(samples, tmp_path)
    lines: list[str] = []
    streamed, sample = fitted(tmp_path, method, progress=lines.append)
    if kind == "zeros":  # which the sample chooses, as other draws than those in memory do
        assert 1e-9 < float(streamed.uniform_share) < 0.5
        object.__setattr__(samples, "uniform_share", float(streamed.uniform_share))
    memory = catalogue.parse_calibrator(method).fit(samples)
    check_equal(streamed, memory, close=1e-6)  # as far as the fit in memory goes
    assert len(sample) == SAMPLE
    summary, certificate = streamed.summary, streamed.summary.certificate
    assert summary.rows == len(samples.with_positive_weights())
    assert certificate.gradient < 1e-8
    assert certificate.objective == pytest.approx(memory.summary.certificate.objective, abs=2e-5)
    # One pass draws the sample.
    assert sum(re.match(r"pass \d+ over", line) is not None for line in lines) + 1 == certificate.passes
    assert certificate.passes <= (4 if method == "temperature" else 14)


@pytest.mark.parametrize("method", ["temperature", "svs", "beta"])
def test_single_precision_is_that_of_the_logits(tmp_path, method):
    samples = samples_of("float32")
    write(samples, tmp_path)
    check_equal(fitted(tmp_path, method).map, catalogue.parse_calibrator(method).fit(samples), close=1e-5)


@pytest.mark.parametrize("method", ["temperature", "vector", "platt", "histogram"])
def test_neither_the_division_into_shards_nor_their_order_matters(tmp_path, method):
    samples, made = samples_of(), []
    for number, cuts in enumerate(((), (10, 2000, 4999))):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(samples, folder, cuts)
        made.append(fitted(folder, method).map)
    check_equal(*made, close=1e-7)
    shards = find_shards([tmp_path / "1"])
    again = fit_streamed(catalogue.parse_calibrator(method), shards[::-1], Plan.of(shards[2], LoadOptions()))
    check_equal(again.map, made[1], close=1e-9)


@pytest.mark.parametrize("kind", ["weights", "zeros"])
@pytest.mark.parametrize("method", BINNED)
def test_scores_in_cells_of_their_own_lose_nothing(tmp_path, method, kind):
    samples = samples_of(kind)
    if kind == "weights":  # log-odds in multiples of a quarter
        confidence = (samples.top.log_odds * 4).round() / 4
        logits = torch.zeros_like(samples.logits).scatter_(1, samples.predicted[:, None], confidence[:, None])
        samples = Predictions.from_logits(logits, samples.labels, weights=samples.weights)
    else:  # probabilities in multiples of a hundredth
        probs = (samples.probs * 100).floor()
        probs[torch.arange(len(probs)), samples.predicted] += 100 - probs.sum(1)
        samples = Predictions.from_probs(probs / 100, samples.labels)
    write(samples, tmp_path)
    check_equal(fitted(tmp_path, method).map, catalogue.parse_calibrator(method).fit(samples), close=1e-12)


@pytest.mark.parametrize("kind", ["logits", "weights"])
def test_isotonic_regression_keeps_the_stated_error(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("calibrant.scale.fits._CELLS", RankedCells(512))
    samples = samples_of(kind)
    write(samples, tmp_path)
    streamed = fitted(tmp_path, "isotonic").map
    memory = catalogue.parse_calibrator("isotonic").fit(samples)
    stated = float(re.search(r"within ([\d.e-]+) of", streamed.summary.notes[0])[1])
    weights = torch.ones(len(samples)) if samples.weights is None else samples.weights
    order = samples.top.log_odds.argsort()
    change = streamed.transform(samples).confidence - memory.transform(samples).confidence
    up_to = ((change * weights)[order].cumsum(0) / weights.sum()).abs()
    assert stated / 20 < float(up_to.max()) <= stated * 1.1  # one digit is stated


def test_bins_of_equal_mass_keep_the_stated_error(tmp_path):
    samples = samples_of()
    write(samples, tmp_path)
    streamed = fitted(tmp_path, "histogram").map
    stated = float(re.search(r"within ([\d.e-]+) of", streamed.summary.notes[0])[1])
    counts = torch.searchsorted(streamed.curve.edges[0], samples.top.log_odds).bincount()
    ranks = counts.cumsum(0) / len(samples)
    assert float((ranks - torch.arange(1, 16) / 15).abs().max()) <= 1.1 * stated + 1 / len(samples)
    assert stated < 2e-3


@pytest.mark.parametrize("method", ["temperature+isotonic", "temperature+platt"])
def test_chains_are_fitted_step_by_step(tmp_path, method):
    samples = samples_of()
    write(samples, tmp_path)
    streamed, memory = fitted(tmp_path, method).map, catalogue.parse_calibrator(method).fit(samples)
    check_equal(streamed.maps[0], memory.maps[0], close=1e-8)
    difference = streamed.transform(samples).probs - memory.transform(samples).probs
    assert float(difference.abs().mean()) < (1e-7 if "platt" in method else 1e-3)
    assert streamed.maps[1].summary.rows == len(samples)


@pytest.mark.parametrize("method", ["temperature", "svs", "isotonic"])
def test_few_samples_are_fitted_as_in_memory(tmp_path, method):
    samples = samples_of("zeros", n=SAMPLE)
    save(samples, tmp_path / "a.npz")
    shards = find_shards([tmp_path])
    streamed = fit_streamed(catalogue.parse_calibrator(method), shards, Plan.of(shards[0], LoadOptions()))
    memory = catalogue.parse_calibrator(method).fit(load(tmp_path / "a.npz"))
    check_equal(streamed.map, memory, close=1e-6)


def test_a_floor_is_chosen_if_one_sample_of_all_needs_it(tmp_path):
    samples = samples_of("zeros")
    probs = samples.probs.clamp(min=1e-3)
    probs[4321] = torch.eye(4, dtype=torch.float64)[(samples.labels[4321] + 1) % 4]
    samples = Predictions.from_probs(probs / probs.sum(1, keepdim=True), samples.labels)
    write(samples, tmp_path)
    streamed = fitted(tmp_path, "temperature")
    assert streamed.sample.zero_cells.cells == 0
    assert float(streamed.map.uniform_share) == pytest.approx(samples.uniform_share, rel=10)
    assert samples.uniform_share > 0


def test_the_file_of_a_map_has_scores_of_the_sample(tmp_path):
    samples = samples_of("weights")
    write(samples, tmp_path)
    streamed, sample = fitted(tmp_path, "platt")
    save_map(streamed, tmp_path / "map.safetensors", fitted_on=sample, is_sample=True)
    document = read_map_file(tmp_path / "map.safetensors").document
    assert document["digest"] is None
    assert document["after"]["nll"] < document["before"]["nll"]
    with pytest.raises(InputError, match="fitted_on must be the"):
        save_map(streamed, tmp_path / "map.safetensors", fitted_on=sample)
    save_map(streamed, tmp_path / "map.safetensors", fitted_on=samples)  # those of weight 0 do not count


def test_a_shard_that_changes_between_passes_is_named(tmp_path):
    write(samples_of(), tmp_path)

    def change(line: str) -> None:
        if line.startswith("pass 3 over"):
            write(samples_of(n=9000), tmp_path)

    with pytest.raises(FileError, match=r"0\.parquet must not change while it is read"):
        fitted(tmp_path, "vector", progress=change)


def test_rare_classes_are_counted_on_all_samples(tmp_path):
    samples = samples_of()
    rare = samples.labels == 3
    rare[rare.nonzero()[:3]] = False  # so few that the sample may lack them
    samples = samples[~rare]
    write(samples, tmp_path)
    check_equal(fitted(tmp_path, "svs").map, catalogue.parse_calibrator("svs").fit(samples), close=1e-6)
    write(samples[samples.labels != 3], tmp_path)
    with pytest.raises(FitError, match="too few of class 3"):
        fitted(tmp_path, "vector")


def test_the_processes_of_torchrun_share_the_passes(tmp_path, monkeypatch):
    samples = samples_of()
    write(samples, tmp_path)
    other = (
        "from calibrant.scale import *; from calibrant import VectorScaling; "
        "from calibrant.files.choose import LoadOptions; import os; os.environ |= group; "
        "shards = find_shards([folder]); plan = Plan.of(shards[0], LoadOptions()); "
        "assert fit_streamed(VectorScaling(), shards, plan, engine=Engine('torchrun')) is None"
    )
    with held_port() as port:
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
        follower = start(other, folder=tmp_path, group={**group, "RANK": "1"})
        for name, value in {**group, "RANK": "0"}.items():
            monkeypatch.setenv(name, value)
        together = fitted(tmp_path, "vector", engine=Engine("torchrun")).map
    follower.join(600)
    assert follower.exitcode == 0
    monkeypatch.delenv("RANK")
    check_equal(together, fitted(tmp_path, "vector").map, close=1e-12)
    with pytest.raises(InputError, match="must run under torchrun"):
        fitted(tmp_path, "vector", engine=Engine("torchrun"))


def test_workers_are_started_once(tmp_path, monkeypatch):
    write(samples_of(), tmp_path)
    made = []

    def start(workers):
        made.append(workers)
        return start_local(workers)

    monkeypatch.setattr("calibrant.scale.jobs.start_local", start)
    together = fitted(tmp_path, "vector", engine=Engine("local", workers=2)).map
    assert made == [2]
    check_equal(together, fitted(tmp_path, "vector").map, close=1e-12)


def test_what_cannot_be_streamed_is_refused(tmp_path):
    write(samples_of(n=100), tmp_path, cuts=())
    for method in ("auto", "bbq", "temperature+spline"):
        with pytest.raises(InputError, match="cannot be fitted on streamed files; temperature, ets"):
            fitted(tmp_path, method)
    for method in ("temperature(criterion=focal)", "temperature(value=1.5)", "ets(criterion=brier)"):
        with pytest.raises(InputError, match="must minimise the log-loss"):
            fitted(tmp_path, method)
    top = tmp_path / "top"
    top.mkdir()
    pq.write_table(pa.table({"confidence": [0.9, 0.8], "correct": [True, False]}), top / "a.parquet")
    assert isinstance(load(top / "a.parquet"), TopLabel)
    with pytest.raises(InputError, match="only the top label"):
        fitted(top, "temperature")
    for name, classes in (("a", 3), ("b", 4)):
        write(samples_of(n=100, k=classes), top, cuts=())
        (top / "0.parquet").rename(top / f"{name}.parquet")
    with pytest.raises(FileError, match=r"b\.parquet must have the same columns"):
        fitted(top, "temperature")

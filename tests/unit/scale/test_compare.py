"""Comparisons of methods on shards, against those in memory."""

import json
import math
import shutil
from dataclasses import replace

import pytest
from tests.unit.cli.conftest import calibrant  # noqa: F401  # a fixture
from tests.unit.scale.test_state import predictions_of

from calibrant import evaluate, save
from calibrant.calibrators import HistogramBinning, IsotonicPooled, PlattScaling, StructuredVectorScaling, VectorScaling
from calibrant.comparison import compare, comparison_metrics
from calibrant.errors import FileError
from calibrant.evidence import decision_curve
from calibrant.files.choose import LoadOptions
from calibrant.report.comparison import comparison_page
from calibrant.scale import Plan, find_shards, state
from calibrant.scale.compare import ShardSet, compare_streamed

N = 6000
SAMPLES = predictions_of(2 * N, 3)
METHODS = (StructuredVectorScaling(), VectorScaling(), HistogramBinning(), IsotonicPooled())
METRICS = {metric.name: metric for metric in comparison_metrics()}
RANKS = {"auroc": 1e-4, "aurc": 1e-4, "ace": 1e-3}  # a cell at the end of a bin of equal mass is not divided


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    made = []
    for name, some in (("cal", SAMPLES[:N]), ("test", SAMPLES[N:])):
        (folder / name).mkdir()
        for number in range(3):
            save(some[number * N // 3 : (number + 1) * N // 3], folder / name / f"{number}.parquet")
        shards = find_shards([folder / name])
        made.append(ShardSet(shards, Plan.of(shards[0], LoadOptions())))
    return made


@pytest.fixture(scope="module")
def both(sets):
    rows = [ShardSet(some.shards, replace(some.plan, rows=700)) for some in sets]
    return compare(SAMPLES[:N], SAMPLES[N:], METHODS), compare_streamed(*rows, METHODS).comparison


def test_values_and_their_intervals_are_those_in_memory(both):
    expected, streamed = ({method.name: method for method in one.methods} for one in both)
    assert list(expected) == list(streamed)  # in the same order
    for name, method in expected.items():
        assert streamed[name].changed == method.changed
        for metric, estimate in method.metrics.items():
            found = streamed[name].metrics[metric]
            exact = METRICS[metric](streamed[name].map.transform(SAMPLES[N:]))  # of the same map
            assert found.value == pytest.approx(exact, abs=RANKS.get(metric, 1e-12)), (name, metric)
            if name != "histogram":  # below
                width = estimate.high - estimate.low
                assert found.high - found.low == pytest.approx(width, rel=0.25, abs=1e-3), (name, metric)
    assert both[0].recommended.name == both[1].recommended.name


def test_intervals_of_bins_are_as_wide_as_those_in_memory_over_several_draws(sets, both):
    """Both are drawn: near 0 one end of an interval from one draw can lie a quarter of its width from the other's."""
    pairs = [both]
    for seed in (1, 2):
        streamed = compare_streamed(*sets, [HistogramBinning()], seed=seed).comparison
        pairs.append((compare(SAMPLES[:N], SAMPLES[N:], [HistogramBinning()], seed=seed), streamed))
    widths = []
    for comparisons in zip(*pairs, strict=True):
        methods = [next(one for one in made.methods if one.name == "histogram") for made in comparisons]
        widths.append({m: sum(one.metrics[m].high - one.metrics[m].low for one in methods) / 3 for m in METRICS})
    assert widths[1] == pytest.approx(widths[0], rel=0.25, abs=1e-3)


def test_differences_are_paired(both):
    expected, streamed = ({method.name: method for method in one.methods} for one in both)
    for name, method in expected.items():
        for baseline, differences in method.differences.items():
            for metric, one in differences.items():
                found = streamed[name].differences[baseline][metric]
                assert found.value == pytest.approx(one.value, abs=2 * RANKS.get(metric, 1e-6))
                assert found.high - found.low == pytest.approx(one.high - one.low, rel=0.3, abs=1e-3)
                assert found.side == one.side or min(one.corrected_p, found.corrected_p) > 0.001
                if one.p > 0.2 or one.p < 1e-6:
                    assert (found.p < 0.05) == (one.p < 0.05), (name, baseline, metric)
    nll = streamed["svs"].differences["temperature"]["nll"]
    separate = streamed["svs"].metrics["nll"]
    assert nll.high - nll.low < (separate.high - separate.low) / 5  # what is common to both cancels


def test_a_handful_of_streamed_test_samples_shows_no_difference(sets, tmp_path):
    save(SAMPLES[N : N + 6], tmp_path / "few.parquet")
    shards = find_shards([tmp_path / "few.parquet"])
    few = ShardSet(shards, Plan.of(shards[0], LoadOptions()))
    found = compare_streamed(sets[0], few, ()).comparison
    assert found.recommended.name == "uncalibrated"
    temperature = found.find("temperature").differences["uncalibrated"]
    assert all(math.isnan(one.low) and math.isnan(one.p) for one in temperature.values())


def test_a_handful_of_streamed_calibration_samples_leaves_the_answer_open(sets, tmp_path):
    save(SAMPLES[:6], tmp_path / "few.parquet")
    shards = find_shards([tmp_path / "few.parquet"])
    few = ShardSet(shards, Plan.of(shards[0], LoadOptions()))
    assert compare_streamed(few, sets[1], (), resamples=20).comparison.calibration_needed == 200
    assert compare_streamed(*sets, (), resamples=20).comparison.calibration_needed is None


def test_a_sample_is_fitted_on_where_a_method_does_not_stream(sets, monkeypatch):
    monkeypatch.setattr(state, "_SAMPLE", 2000)
    monkeypatch.setattr(state, "_FEWEST_SAMPLED", 2000)
    made = compare_streamed(*sets, METHODS, resamples=20)
    methods = {method.name: method for method in made.comparison.methods}
    assert len(made.test) == 2000
    assert made.comparison.streamed.sampled == ("irm",)
    for name, method in methods.items():
        is_sampled = name in made.comparison.streamed.sampled
        assert any("uniform sample of 2,000 of the 6,000" in note for note in method.notes) == is_sampled
    expected = compare(SAMPLES[:N], SAMPLES[N:], [], resamples=20).find("temperature")
    assert methods["temperature"].nll == pytest.approx(expected.nll, abs=1e-7)  # fitted on all
    assert methods["svs"].nll < methods["uncalibrated"].nll


@pytest.mark.parametrize("kept", [state._SAMPLE, 2000])
def test_two_classes_are_compared_by_the_probability_of_the_positive_one(tmp_path, monkeypatch, kept):
    monkeypatch.setattr(state, "_SAMPLE", kept)
    monkeypatch.setattr(state, "_FEWEST_SAMPLED", kept)
    samples = predictions_of(2 * N, 2, seed=3)
    parts, sets = (samples[:N], samples[N:]), []
    for name, some in zip(("cal", "test"), parts, strict=True):
        save(some, tmp_path / f"{name}.parquet")
        shards = find_shards([tmp_path / f"{name}.parquet"])
        sets.append(ShardSet(shards, Plan.of(shards[0], LoadOptions())))
    found = compare_streamed(*sets, [PlattScaling()], resamples=200, thresholds=[0.2]).comparison
    for method in found.methods:
        mapped = method.map.transform(parts[1])
        expected = evaluate(mapped, resamples=200).risk.ece
        assert method.metrics["ece"].value == pytest.approx(expected.value, abs=1e-9)
        width = expected.high - expected.low
        assert method.metrics["ece"].high - method.metrics["ece"].low == pytest.approx(width, rel=0.3, abs=2e-3)
        (decision,) = method.decisions
        gain = decision_curve(mapped, [0.2], resamples=10)[0].net_benefit.value
        assert decision.net_benefit.value == pytest.approx(gain, abs=1e-9 if kept > N else 0.03)
    change = found.find("temperature").differences["uncalibrated"]["ece"]
    assert change.side == "better"
    page = comparison_page(found)
    assert "Calibration errors are of the probability of the positive class" in page.sections[0].legend
    items = next(one for one in page.sections if one.title == "Streamed").items
    assert items[1].startswith("Charts, differences of calibration errors and decisions are of a uniform sample of")


def test_a_shard_that_changes_stops_the_comparison(sets, tmp_path, monkeypatch):
    monkeypatch.setattr(state, "_SAMPLE", 2000)
    monkeypatch.setattr(state, "_FEWEST_SAMPLED", 2000)
    for shard in sets[0].shards:
        shutil.copy(shard.path, tmp_path)
    shards = find_shards([tmp_path])

    def truncate(text: str, _done: int, _total: int) -> None:
        if text == "fitting temperature":
            shards[1].path.write_bytes(b"PAR1")

    with pytest.raises(FileError, match=r"1\.parquet"):
        compare_streamed(ShardSet(shards, sets[0].plan), sets[1], (), resamples=20, progress=truncate)


def test_the_command_streams_and_says_so(sets, tmp_path, calibrant):  # noqa: F811
    folder = sets[0].shards[0].path.parent.parent
    command = ("compare", folder / "cal", folder / "test/*.parquet", "--methods", "svs", "--resamples", 100)
    numbers = []
    for more in ((), ("--stream",)):
        out = tmp_path / f"{len(more)}.json"
        code, shown, error = calibrant(*command, "--json", out, "--full", *more)
        assert code == 0, error
        assert ("streamed from 6 files" in shown) == bool(more)
        assert ("an AUROC is exact to an error" in " ".join(shown.split())) == bool(more)
        report = json.loads(out.read_text())
        assert (report["calibration"]["n"], report["test"]["n"]) == (N, N)
        numbers.append({one["name"]: one["metrics"]["nll"]["value"] for one in report["methods"]})
    assert numbers[0] == pytest.approx(numbers[1], abs=1e-6)
    for more, message in (
        (("--checkpoint", "job"), "--checkpoint must be left out of compare"),
        (("--engine", "torchrun"), "got torchrun"),
    ):
        code, _, error = calibrant(*command, *more)
        assert code == 2
        assert message in " ".join(error.split())


def test_the_same_samples_in_both_sets_are_noticed(sets, calibrant):  # noqa: F811
    folder = sets[0].shards[0].path.parent
    code, _, error = calibrant("compare", folder, folder, "--methods", "temperature", "--resamples", 100, "--stream")
    assert code == 0
    assert "6,000 of 6,000 test samples are also calibration samples" in " ".join(error.split())

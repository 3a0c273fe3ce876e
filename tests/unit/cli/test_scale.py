"""Commands on many files, and on states that add up."""

import json

import pytest
from tests.unit.scale.test_state import predictions_of

from calibrant import TemperatureScaling, evaluate, load_map, save

SAMPLES = predictions_of(900, 3)


@pytest.fixture
def folder(tmp_path):
    for number in range(3):
        save(SAMPLES[300 * number : 300 * (number + 1)], tmp_path / f"{number}.npz")
    return tmp_path


def numbers_of(path):
    report = json.loads(path.read_text())
    return {name: metric["value"] for name, metric in report["metrics"].items()}, report


def test_evaluate_takes_many_files_in_memory_and_streamed(folder, calibrant):
    expected = {name: one.value for name, one in evaluate(SAMPLES, resamples=100).metrics.items()}
    for arguments in ((), ("--stream",)):
        out = folder / "report.json"
        code, shown, _ = calibrant("evaluate", folder / "*.npz", "--resamples", 100, "--json", out, *arguments)
        assert code == 0
        assert "3 files (900 samples, 3 classes" in shown
        numbers, report = numbers_of(out)
        assert numbers["ece"] == pytest.approx(expected["ece"], abs=1e-12)
        assert numbers["nll"] == pytest.approx(expected["nll"], abs=1e-12)
        assert (report["streamed"] is not None) == bool(arguments)


def test_slices_of_many_files_are_those_of_one(folder, calibrant):
    out = folder / "report.json"
    code, _, _ = calibrant("evaluate", folder / "*.npz", "--resamples", 100, "--classes", "--json", out)
    assert code == 0
    assert sum(one["n"] for one in numbers_of(out)[1]["slices"]) == 900
    code, _, error = calibrant("evaluate", folder / "*.npz", "--stream", "--classes")
    assert code == 2
    assert "--classes needs all samples in memory" in error


def test_states_add_up(folder, calibrant):
    for number in range(3):
        code, shown, _ = calibrant("state", folder / f"{number}.npz", "-o", folder / f"{number}.state")
        assert code == 0
        assert "300 samples of 1 file," in shown
    out = folder / "report.json"
    states = [folder / f"{number}.state" for number in range(3)]
    code, shown, _ = calibrant("evaluate", *states, "--resamples", 100, "--json", out, "--full")
    assert code == 0
    assert "Ranks are in bounded memory" in shown
    assert numbers_of(out)[0]["ece"] == pytest.approx(evaluate(SAMPLES, resamples=100).metrics["ece"].value, abs=1e-12)
    code, _, error = calibrant("evaluate", states[0], states[0])
    assert code == 2
    assert "must not hold samples twice" in error
    code, _, error = calibrant("evaluate", states[0], folder / "0.npz")
    assert code == 2
    assert "must all be states, or none" in error
    code, _, error = calibrant("fit", "temperature", states[0], "-o", folder / "map.safetensors")
    assert code == 2
    assert "got states, which hold sums" in error
    code, _, error = calibrant("state", folder / "0.npz", "-o", folder / "0.npz")
    assert code == 2
    assert "must end in .state" in error


def test_trend_puts_states_in_order(folder, calibrant):
    for number in range(3):
        state = folder / f"day{(2, 10, 9)[number]}.state"
        assert calibrant("state", folder / f"{number}.npz", "-o", state)[0] == 0
    out = folder / "trend.json"
    code, shown, _ = calibrant("trend", folder / "day*.state", "--resamples", 100, "--json", out, "--full")
    assert code == 0
    assert "3 periods, 900 samples" in shown
    trend = json.loads(out.read_text())
    assert [period["name"] for period in trend["periods"]] == ["day2", "day9", "day10"]
    assert trend["periods"][1]["changes"].keys() == {"ece", "accuracy", "nll"}
    given = [folder / f"day{day}.state" for day in (9, 2)]
    code, shown, _ = calibrant("trend", *given, "--metric", "auroc", "--resamples", 100)
    assert code == 0
    assert shown.index("day9") < shown.index("day2")
    code, _, error = calibrant("trend", given[0], folder / "0.npz")
    assert code == 2
    assert "0.npz must be a state" in error


def test_fit_takes_many_files_in_memory_and_streamed(folder, calibrant):
    memory = float(TemperatureScaling().fit(SAMPLES).temperature)
    out = folder / "map.safetensors"
    for arguments in ((), ("--stream",)):
        code, shown, _ = calibrant("fit", "temperature", folder / "*.npz", "-o", out, *arguments)
        assert code == 0
        assert "fitted on 3 files" in shown
        assert float(load_map(out).temperature) == pytest.approx(memory, rel=1e-9)
    code, shown, _ = calibrant("fit", "temperature+isotonic", folder / "*.npz", "-o", out, "--stream")
    assert code == 0
    assert "temperature's optimum  converged" in shown
    code, _, error = calibrant("fit", "spline", folder / "*.npz", "-o", out, "--stream")
    assert code == 2
    assert "spline cannot be fitted on streamed files" in error
    code, _, error = calibrant("fit", "temperature", folder / "*.npz", "-o", out, "--checkpoint", folder / "job")
    assert code == 2
    assert "--checkpoint must be left out of a fit" in error


def test_missing_shards_are_named(folder, calibrant):
    (folder / "bad.npz").write_bytes(b"not an archive")
    code, _, error = calibrant("evaluate", folder / "*.npz", "--stream")
    assert code == 2
    assert "bad.npz" in error
    code, shown, _ = calibrant("evaluate", folder / "*.npz", "--allow-missing", "--resamples", 100, "--full")
    assert code == 0
    assert "without 1 part" in shown
    assert "Missing: bad.npz" in shown
    (folder / "bad.npz").rename(folder / "0.npz")  # the first now, whose names would decide what is read
    week = folder / "week.state"
    code, shown, _ = calibrant("state", folder / "*.npz", "--allow-missing", "-o", week)
    assert code == 0
    assert "missing: 0.npz" in shown
    code, shown, _ = calibrant("evaluate", week, "--resamples", 100, "--full")
    assert code == 0
    assert "Missing: 0.npz" in shown

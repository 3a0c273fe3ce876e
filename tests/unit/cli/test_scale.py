"""Commands on many files, and on states that add up."""

import json
from datetime import UTC, date, datetime, time, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pyarrow import csv
from tests.unit.scale.test_state import predictions_of

from calibrant import Predictions, TemperatureScaling, evaluate, load, load_map, save
from calibrant.scale import jobs, state

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


def test_slices_and_baselines_of_streams_are_those_in_memory(tmp_path, calibrant):
    rng = np.random.default_rng(0)
    for name, factor in (("new", 1.0), ("old", 1.6)):
        (tmp_path / name).mkdir()
        for number in range(3):
            rows = SAMPLES[300 * number : 300 * (number + 1)]
            columns = {f"logit_{place}": factor * rows.logits[:, place].numpy() for place in range(3)}
            region = rng.choice(["north", "south"], 300)
            table = pa.table({**columns, "label": rows.labels.numpy(), "region": region})
            pq.write_table(table, tmp_path / name / f"{number}.parquet", row_group_size=100 if name == "new" else 170)
    reports = []
    common = ("evaluate", tmp_path / "new", "--resamples", 100, "--by", "region", "--classes")
    common += (
        "--baseline",
        tmp_path / "old",
        "--fail-if",
        "worst(region).ece>0.05",
        "--fail-if",
        "nll_difference>0.01",
    )
    for arguments in ((), ("--stream",)):
        out = tmp_path / "report.json"
        code, shown, _ = calibrant(*common, "--json", out, *arguments)
        assert code == 1  # the error of the worst region is beyond the bound
        assert "✗ --fail-if worst(region).ece > 0.05: holds" in shown
        assert "✓ --fail-if nll_difference > 0.01: does not hold" in shown
        reports.append(json.loads(out.read_text()))
    memory, streamed = reports
    assert {one["auroc_error"] for one in memory["slices"]} == {None}
    errors = [one["auroc_error"] for one in streamed["slices"]]
    for one, error in zip(streamed["slices"], errors, strict=True):
        exact = next(other for other in memory["slices"] if other["value"] == one["value"])["metrics"]["auroc"]["value"]
        assert abs(one["metrics"]["auroc"]["value"] - exact) <= error
    code, shown, _ = calibrant(*common[:6], "--stream", "--full")
    assert f"that of every slice to {max(errors):.1g}." in " ".join(shown.split())
    assert streamed["streamed"] is not None
    assert sum(one["n"] for one in streamed["slices"]) == 2 * 900
    numbers = [{(one["column"], one["value"]): one["metrics"] for one in report["slices"]} for report in reports]
    assert numbers[0].keys() == numbers[1].keys()
    for name, metrics in numbers[0].items():
        assert numbers[1][name]["ece"]["value"] == pytest.approx(metrics["ece"]["value"], abs=1e-12)
    for name in ("nll", "ece", "sce"):
        before, after = memory["comparison"][name], streamed["comparison"][name]
        assert after["value"] == pytest.approx(before["value"], abs=1e-12)
        assert after["high"] - after["low"] == pytest.approx(before["high"] - before["low"], rel=0.3)

    state, plain = tmp_path / "new.state", tmp_path / "plain.state"
    assert calibrant("state", tmp_path / "new", "-o", state, "--by", "region")[0] == 0
    code, shown, _ = calibrant("evaluate", state, "--by", "region", "--resamples", 100)
    assert code == 0
    assert "By region" in shown
    assert calibrant("state", tmp_path / "old", "-o", plain)[0] == 0
    code, shown, _ = calibrant("evaluate", state, "--baseline", plain, "--resamples", 100)
    assert code == 0
    assert "Compared with plain.state" in shown
    for words, arguments in {
        "these are by 'region'": ("evaluate", state, "--classes"),
        "must be states if the others are": ("evaluate", state, "--baseline", tmp_path / "old"),
        "must have as many files, 3; got 1": (*common[:2], "--stream", "--baseline", tmp_path / "old" / "0.parquet"),
        "same labels in the same order": ("evaluate", tmp_path / "new" / "0.parquet", "--stream", "--baseline",
                                          tmp_path / "old" / "1.parquet"),
        "must have the column 'planet'": (*common[:2], "--stream", "--by", "planet"),
    }.items():  # fmt: skip
        code, _, error = calibrant(*arguments)
        assert code == 2
        assert words in " ".join(error.split()), error


@pytest.mark.parametrize("arguments", [(), ("--workers", 2)])
def test_samples_and_baseline_share_one_start_of_the_engine(folder, calibrant, monkeypatch, arguments):
    starts = []
    started = jobs.start_local

    def counted(workers):
        starts.append(workers)
        return started(workers)

    monkeypatch.setattr(jobs, "start_local", counted)
    files = (folder / "0.npz", "--baseline", folder / "0.npz")
    assert calibrant("evaluate", *files, "--stream", "--resamples", 100, *arguments)[0] == 0
    assert len(starts) == 1


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


def save_with(samples, path, **columns):
    """Write samples with further columns."""
    save(samples, path)
    table = csv.read_csv(path) if path.suffix == ".csv" else pq.read_table(path)
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    csv.write_csv(table, path) if path.suffix == ".csv" else pq.write_table(table, path)


@pytest.mark.parametrize(("form", "days"), [("csv", ["9", "10", "11"]), ("parquet", ["b", "a", "c"])])
def test_trend_of_a_column_is_that_of_the_states_of_its_parts(folder, calibrant, form, days):
    day = np.arange(900) % 300 // 100
    for place, name in enumerate(days):
        (folder / name).mkdir()
        save(SAMPLES[torch.from_numpy(day == place)], folder / name / f"all.{form}")
        assert calibrant("state", folder / name / f"all.{form}", "-o", folder / f"{name}.state")[0] == 0
    save_with(SAMPLES, folder / f"all.{form}", day=[days[place] for place in day])
    states = [folder / f"{name}.state" for name in days]
    for name, given in {"states": states, "column": [folder / f"all.{form}", "--by", "day"]}.items():
        code, _, error = calibrant("trend", *given, "--resamples", 100, "--json", folder / f"{name}.json")
        assert code == 0, error
    by_state, by_column = (json.loads((folder / f"{name}.json").read_text()) for name in ("states", "column"))
    assert [period["name"] for period in by_column["periods"]] == days
    assert by_column == by_state


def test_trend_of_a_column_names_what_is_wrong(folder, calibrant):
    save_with(SAMPLES, folder / "all.csv", day=["", *["2024-01-02"] * 899], once=[1] * 900)
    calibrant("state", folder / "0.npz", "-o", folder / "all.state")
    refused = {
        "all.csv --by day": "1 have none",
        "all.csv --by once": "at least two periods; got 1",
        "all.csv --by week": "must have the column 'week'",
        "all.csv": "--by COLUMN",
        "all.state --by day": "periods themselves",
        "all.state --bins 10": "must come with --by",
    }
    for arguments, words in refused.items():
        file, *others = arguments.split()
        code, _, error = calibrant("trend", folder / file, *others)
        assert code == 2
        assert words in " ".join(error.split())


def test_dates_of_a_table_are_periods(folder, calibrant):
    days = [date(2024, 1, 30) + timedelta(days=place % 3) for place in range(900)]
    times = [datetime.combine(day, time()) for day in days]
    save_with(SAMPLES, folder / "all.parquet", day=days, at=times, zoned=[at.replace(tzinfo=UTC) for at in times])
    for column in ("day", "at", "zoned"):
        out = folder / "trend.json"
        code, _, error = calibrant("trend", folder / "all.parquet", "--by", column, "--resamples", 100, "--json", out)
        assert code == 0, error
        names = [period["name"] for period in json.loads(out.read_text())["periods"]]
        assert names == ["2024-01-30", "2024-01-31", "2024-02-01"]


def test_the_probability_of_a_rare_class_is_followed_over_time(folder, calibrant):
    rng = np.random.default_rng(0)
    risk, week = rng.beta(1, 15, size=900), np.repeat(["w1", "w2", "w3"], 300)
    died = rng.random(900) < np.where(week == "w3", 0.5 * risk, risk)
    table = pa.table({"risk": risk, "died": died, "week": week})
    pq.write_table(table, folder / "risks.parquet")
    reading, out = ("--top-label", "--confidence", "risk", "--correct", "died"), folder / "trend.json"
    code, _, error = calibrant("trend", folder / "risks.parquet", "--by", "week", *reading, "--json", out)
    assert code == 0, error
    columns = pa.table({"confidence": risk, "correct": died})
    for period, first in zip(json.loads(out.read_text())["periods"], (0, 300, 600), strict=True):
        one = folder / "week.parquet"
        pq.write_table(columns.slice(first, 300), one)
        expected = evaluate(load(one), resamples=100).metrics["ece"].value
        assert period["metrics"]["ece"]["value"] == pytest.approx(expected, abs=1e-12)
    assert calibrant("state", folder / "risks.parquet", "-o", folder / "risks.state", *reading)[0] == 0
    assert "top label only" in calibrant("evaluate", folder / "risks.state", "--resamples", 100)[1]


def test_states_are_given_as_a_folder_or_a_pattern_too(folder, calibrant):
    (folder / "states").mkdir()
    for number in range(3):
        calibrant("state", folder / f"{number}.npz", "-o", folder / "states" / f"{number}.state")
    code, shown, error = calibrant("trend", folder / "states", "--metric", "ece", "--resamples", 100)
    assert code == 0, error
    assert "3 periods" in shown
    code, shown, error = calibrant("evaluate", folder / "states" / "*.state", "--resamples", 100)
    assert code == 0, error
    assert "streamed from 3 files" in " ".join(shown.split())


def test_trend_fails_only_where_the_last_period_became_worse(folder, calibrant):
    worse = Predictions.from_logits(3 * SAMPLES.logits, SAMPLES.labels)
    for day, samples in enumerate((SAMPLES, worse, worse[:600])):
        save(samples, folder / f"{day}.npz")
        assert calibrant("state", folder / f"{day}.npz", "-o", folder / f"{day}.state")[0] == 0
    states = [folder / f"{day}.state" for day in range(3)]
    code, shown, _ = calibrant("trend", *states[:2], "--fail-if-worse", "--resamples", 100)
    assert code == 1
    assert "✗ --fail-if-worse: ece, nll became worse in 1" in shown
    code, shown, _ = calibrant("trend", *states, "--fail-if-worse", "--resamples", 100)
    assert code == 0
    assert "✓ --fail-if-worse: nothing became worse in 2 (before: ece, nll in 1)" in shown
    assert calibrant("trend", *states[:2], "--resamples", 100)[0] == 0


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


def test_a_row_with_too_few_columns_is_named_by_its_number_wherever_it_stands(tmp_path, calibrant):
    row = "0.123456,0.876544,1\n"
    (tmp_path / "cut.csv").write_text("prob_0,prob_1,label\n" + 79_998 * row + "0.5,0.5\n" + row)
    for arguments in ((), ("--stream",)):
        code, _, err = calibrant("evaluate", tmp_path / "cut.csv", *arguments)
        assert code == 2
        assert "Row #80000: Expected 3 columns, got 2" in err


@pytest.fixture
def two_levels(tmp_path):
    """Two classes, of which the second occurs 0.10 more often than it says; by its side a model that is right."""
    rng = np.random.default_rng(0)
    p = rng.choice([0.38, 0.62], 3000)
    fraud, region = rng.random(3000) < p + 0.1, rng.choice(["north", "south"], 3000)
    for name, shown in {"new": p, "old": p + 0.1}.items():
        rows = zip(shown, fraud, region, strict=True)
        lines = [f"{one:.2f},{'fraud' if label else 'fine'},{where}" for one, label, where in rows]
        (tmp_path / f"{name}.csv").write_text("\n".join(["p,y,region", *lines]))
    return tmp_path


BINARY = ("--positive", "p", "--positive-class", "fraud", "--labels", "y", "--resamples", 100)


@pytest.mark.parametrize("kept", ["memory", "all", "sample"])
def test_gates_of_two_classes_are_about_what_the_report_is_about(two_levels, calibrant, monkeypatch, kept):
    """The predicted class is right as often as its confidence says, so that its error shows nothing."""
    if kept == "sample":
        monkeypatch.setattr(state, "_SAMPLE", 2000)
    out, old = two_levels / "r.json", two_levels / "old.csv"
    gates = ["--fail-if", "ece>0.05", "--fail-if", "smece>0.05", "--fail-if", "ece_difference>0.03"]
    gates += ["--fail-if", "worst(region).ece>0.05", "--fail-unless", "auroc>0.9", "--fail-unless", "risk_auroc>0.55"]
    options = (*BINARY, "--baseline", old, "--by", "region", "--json", out, "--full", *gates)
    options += () if kept == "memory" else ("--stream",)
    code, shown, _ = calibrant("evaluate", two_levels / "new.csv", *options)
    assert code == 1
    report = json.loads(out.read_text())
    assert [gate["failed"] for gate in report["gates"]] == [True, True, True, True, True, False]
    assert report["metrics"]["ece"]["value"] == pytest.approx(report["risk"]["ece"]["value"])
    assert report["gates"][0]["value"] == report["metrics"]["ece"]["value"]
    assert report["comparison"]["ece"]["low"] > 0.03
    assert [one["metrics"]["ece"] == one["risk"]["ece"] for one in report["slices"]] == [True] * 2
    lines = [line for line in shown.splitlines() if line.startswith(("✗ --", "✓ --"))]
    of_predicted = [line.endswith(", of the predicted class)") for line in lines]
    assert sum(of_predicted) == 1
    assert sum(line.endswith(", of the probability of “fraud”)") for line in lines) == len(lines) - sum(of_predicted)
    words = " ".join(shown.split())
    assert "worse in ECE of “fraud”" in words
    assert "By region: probability of “fraud”" in words
    assert ("of a uniform sample of 2,000 samples" in words) == (kept == "sample")


def test_only_two_classes_have_the_auroc_of_one(calibrant, folder):
    code, _, error = calibrant("evaluate", folder / "0.npz", "--fail-if", "risk_auroc<0.5")
    assert code == 2
    assert "probabilities of two classes" in " ".join(error.split())

"""The studio's functions without a server: previews, splits, samples, and lines that give the same numbers."""

import json
import shlex
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from calibrant import evaluate, training
from calibrant.cli.main import app
from calibrant.errors import InputError
from calibrant.files import load, load_map
from calibrant.metrics import nll
from calibrant.studio import api

DIGITS_SPLIT = {"calibration": 500, "test": 1197}


def quiet(message, share=None):
    """Progress that nobody reads."""


@pytest.fixture
def table(tmp_path):
    """A CSV with probabilities of three classes, labels as numbers, and a column to split by."""
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(400, 3))
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(1)
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    path = tmp_path / "stored.csv"
    lines = ["p_a,p_b,p_c,y,part"]
    for number, (row, label) in enumerate(zip(probs, labels, strict=True)):
        lines.append(",".join(map(repr, map(float, row))) + f",{label},{'val' if number % 4 == 0 else 'test'}")
    path.write_text("\n".join(lines) + "\n")
    return path


def source_of(path, **more):
    return {"path": str(path), "name": "mine.csv", "kind": "probs", "scores": "p_", "labels": "y", **more}


def test_a_preview_names_the_columns_and_says_why_a_kind_does_not_fit(table):
    found = api.preview({"path": str(table), "name": "mine.csv"}, progress=quiet)
    assert found["names"] == ["p_a", "p_b", "p_c", "y", "part"]
    assert found["recognised"] is None
    assert "mine.csv" in found["kinds"]["probs"]["error"]
    assert str(table) not in json.dumps(found)
    by_name = {column["name"]: column for column in found["columns"]}
    assert set(by_name["part"]["values"]) == {"test", "val"}
    assert by_name["p_a"]["shape"] == [400]


def test_an_evaluation_has_the_numbers_of_the_library(table):
    answer = api.evaluate(source_of(table), n_bins=10, seed=1, progress=quiet)
    expected = evaluate(load(table, kind="probs", scores="p_", labels="y"), n_bins=10, seed=1)
    assert answer["document"]["metrics"]["ece"]["value"] == expected.metrics["ece"].value
    assert answer["charts"]["n_bins"] == 10
    json.dumps(answer, allow_nan=False)
    assert answer["lines"]["cli"] == "calibrant evaluate mine.csv --probs --scores p_ --labels y --bins 10 --seed 1"


def test_a_split_by_column_takes_the_rows_with_its_values(table):
    split = {"by": "column", "column": "part", "calibration": "val", "test": "test"}
    answer = api.evaluate(source_of(table, split=split), progress=quiet)
    assert answer["n"] == {"calibration": 100, "test": 300}
    rows = [sample["row"] for sample in api.samples(source_of(table, split=split), progress=quiet)["samples"]]
    assert all(row % 4 for row in rows)


@pytest.mark.parametrize("ending", [".npz", ".csv", ".parquet"])
@pytest.mark.parametrize("by", ["half", "column", "file"])
def test_a_split_is_the_same_in_every_format(table, tmp_path, ending, by):
    rows = [line.split(",") for line in table.read_text().splitlines()[1:]]
    columns = {f"prob_{k}": [float(row[k]) for row in rows] for k in range(3)} | {
        "label": [int(row[3]) for row in rows]
    }
    columns["part"] = [int(row[4] == "val") for row in rows]
    path = tmp_path / f"mine{ending}"
    if ending == ".npz":
        probs = np.stack([columns[f"prob_{k}"] for k in range(3)], axis=1)
        np.savez(path, probs=probs, labels=columns["label"], part=columns["part"])
    elif ending == ".csv":
        lines = [",".join(columns), *(",".join(map(repr, row)) for row in zip(*columns.values(), strict=True))]
        path.write_text("\n".join(lines) + "\n")
    else:
        pytest.importorskip("pyarrow.parquet").write_table(pytest.importorskip("pyarrow").table(columns), path)
    source = {"path": str(path), "name": path.name}
    found = api.preview(source, progress=quiet)
    assert found["recognised"] == "probs"
    assert {column["name"]: column for column in found["columns"]}["part"]["values"] == [0, 1]
    by_column = {"by": "column", "column": "part", "calibration": "1", "test": "0"}
    split = {"half": {"by": "half", "seed": 0}, "column": by_column, "file": {"by": "file", "source": source}}[by]
    parts = api._load({**source, "split": split}, quiet)
    assert (len(parts.calibration), len(parts.test)) == {"half": (200, 200), "column": (100, 300), "file": (400, 400)}[
        by
    ]
    whole = load(table, kind="probs", scores="p_", labels="y")
    assert parts.test.probs.tolist() == whole.probs[parts.places].tolist()


def test_a_split_by_halves_is_that_of_its_seed(table):
    first, again, other = (
        api.samples(source_of(table, split={"by": "half", "seed": seed}), progress=quiet)["samples"]
        for seed in (0, 0, 1)
    )
    assert first == again != other
    assert len(first) == 200


def test_a_second_file_calibrates(table, tmp_path):
    calibrating = tmp_path / "calibration.csv"
    calibrating.write_text("\n".join(table.read_text().splitlines()[:120]) + "\n")
    split = {"by": "file", "source": {"path": str(calibrating), "name": "calibration.csv"}}  # options of the first
    answer = api.compare(source_of(table, split=split), methods=["temperature"], folder=str(tmp_path), progress=quiet)
    assert answer["n"] == {"calibration": 119, "test": 400}
    lines = answer["lines"]
    assert lines["cli"].startswith("calibrant compare calibration.csv mine.csv --probs --scores p_ --labels y")
    assert "parse_calibrator('temperature')" in lines["python"]
    assert "load('calibration.csv', kind='probs', scores='p_', labels='y')" in lines["python"]


@pytest.mark.parametrize(
    ("split", "words"),
    [({"by": "column", "column": "part", "calibration": "none", "test": "test"}, "at least 10 calibration samples"),
     ({"by": "own"}, "half, column or file"),
     ({"by": "column", "column": "absent", "calibration": "a", "test": "b"}, "'absent'"), (None, "choose a split")],
)  # fmt: skip
def test_a_split_that_leaves_nothing_to_calibrate_on_is_refused(table, tmp_path, split, words):
    with pytest.raises(InputError, match=words):
        api.compare(source_of(table, split=split), folder=str(tmp_path), progress=quiet)


def test_the_samples_of_a_class_and_a_range_are_those_asked_for(table):
    predictions = load(table, kind="probs", scores="p_", labels="y")
    shown = api.samples(source_of(table), low=0.5, high=0.7, predicted=1, progress=quiet)
    top = predictions.top
    expected = (top.confidence > 0.5) & (top.confidence <= 0.7) & (predictions.predicted == 1)
    assert shown["count"] == int(expected.sum())
    assert {sample["row"] for sample in shown["samples"]} == set(expected.nonzero()[:, 0].tolist())
    assert shown["samples"][0]["top"][0][0] == "b"
    surest = [sample for sample in shown["samples"] if not sample["correct"]]
    assert [sample["confidence"] for sample in surest] == sorted((s["confidence"] for s in surest), reverse=True)


def value_of(lines):
    """Run Python lines; return what the last one gives."""
    *setup, call = lines.splitlines()
    names = {}
    exec("\n".join(setup), names)  # noqa: S102
    return eval(call, names)  # noqa: S307


@pytest.mark.parametrize(
    "split", [None, {"by": "half", "seed": 3}, {"by": "column", "column": "part", "calibration": "val", "test": "test"}]
)
def test_the_lines_run_and_give_the_same_numbers(table, monkeypatch, split):
    monkeypatch.chdir(table.parent)
    (table.parent / "mine.csv").write_text(table.read_text())
    source = source_of(table, split=split)
    answer = api.evaluate(source, n_bins=12, seed=2, progress=quiet)
    api._save_parts(api._load(source, quiet), table.parent)  # to be downloaded; the lines may name them
    expected = answer["document"]["metrics"]["ece"]["value"]
    assert value_of(answer["lines"]["python"]).metrics["ece"].value == pytest.approx(expected, abs=1e-12)
    command = shlex.split(answer["lines"]["cli"].splitlines()[-1])
    with pytest.raises(SystemExit):
        app([*command[1:], "--json", "again.json"], prog_name="calibrant")
    assert json.loads(Path("again.json").read_text())["metrics"]["ece"]["value"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("example", api.EXAMPLES)
def test_an_example_is_split_already(example, monkeypatch):
    once = cache(training.train_on_digits)
    for module in (api, training):
        monkeypatch.setattr(module, "train_on_digits", once)
    source = {"path": example, "name": api.EXAMPLES[example], "kind": "logits", "split": {"by": "own"}}
    found = api.preview(source, progress=quiet)
    assert found["recognised"] == "logits"
    assert found["is_split"]
    answer = api.evaluate(source, progress=quiet)
    assert answer["n"] == {api.RESNET110: {"calibration": 5000, "test": 10_000}, api.SMALL: DIGITS_SPLIT}[example]
    start = {api.RESNET110: "demo/resnet110/", api.SMALL: "demo/digits-"}[example]
    assert f"calibrant evaluate {start}test.npz" in answer["lines"]["cli"]
    calibration, test = value_of(answer["lines"]["python"].rsplit("\n", 1)[0] + "\ncalibration, test")
    assert (len(calibration), len(test)) == tuple(answer["n"].values())
    assert nll(test) == pytest.approx(answer["document"]["metrics"]["nll"]["value"])


def test_every_fitted_method_has_a_curve(table, tmp_path):
    source, fitted = source_of(table, split={"by": "half", "seed": 0}), ["temperature", "isotonic", "vector"]
    answer = api.compare(source, methods=fitted, folder=str(tmp_path), progress=quiet)
    assert {view["name"] for view in answer["charts"]["views"]} == {*fitted, "uncalibrated"}
    maps = {title: name for name, title in answer["files"].items()}
    expected = {"calibration.npz", "report.html", "comparison.pdf", "comparison.png", "before_and_after.svg"}
    assert expected <= {path.name for path in tmp_path.iterdir()} & set(answer["files"])
    test = load(tmp_path / "test.npz")
    for view in answer["charts"]["views"][1:]:
        confidence = load_map(tmp_path / maps[view["name"]]).transform(test).top.confidence.mean()
        assert view["confidence"] == pytest.approx(float(confidence), abs=1e-6)


def test_report_and_figures_are_taken_home(table, tmp_path):
    answer = api.take_home(source_of(table), form="svg", folder=str(tmp_path), progress=quiet)
    assert set(answer["files"]) >= {"report.html", "reliability.svg", "risk_coverage.svg"}
    assert all((tmp_path / name).stat().st_size > 1000 for name in answer["files"])
    assert "test.npz" not in answer["files"]  # all samples are the test samples
    with pytest.raises(InputError, match="gif"):
        api.take_home(source_of(table), form="gif", folder=str(tmp_path), progress=quiet)


def test_a_file_that_is_written_anew_is_read_anew(table):
    first = api.samples(source_of(table, written=1), progress=quiet)["count"]
    table.write_text("\n".join(table.read_text().splitlines()[:101]) + "\n")
    assert (first, api.samples(source_of(table, written=2), progress=quiet)["count"]) == (400, 100)


def test_an_error_in_the_second_file_names_it_and_no_path(table, tmp_path):
    broken = tmp_path / "stored-2.csv"
    broken.write_text("a,b\n1,2\n")
    split = {"by": "file", "source": {"path": str(broken), "name": "calibration.csv"}}
    with pytest.raises(InputError) as caught:
        api.evaluate(source_of(table, split=split), progress=quiet)
    assert "calibration.csv" in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


def test_numbers_are_previewed_in_one_reading(tmp_path, monkeypatch):
    path = tmp_path / "numbers.csv"
    path.write_text("prob_0,prob_1,label\n0.2,0.8,1\n0.6,0.4,0\n")
    opened, readings = api._opened(str(path)), []
    monkeypatch.setattr(
        api, "_opened", lambda _path: replace(opened, read=lambda *given: readings.append(given) or opened.read(*given))
    )
    assert api.preview({"path": str(path), "name": "numbers.csv"}, progress=quiet)["recognised"] == "probs"
    assert len(readings) == 1

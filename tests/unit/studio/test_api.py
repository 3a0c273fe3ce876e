"""The studio's functions without a server: previews, splits, samples, and lines that give the same numbers."""

import json
import re
import shlex
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import torch

from calibrant import evaluate, training
from calibrant.calibrators import PlattScaling
from calibrant.cli.main import app
from calibrant.errors import CalibrantWarning, InputError
from calibrant.evidence import differences, estimates
from calibrant.files import load, load_map
from calibrant.metrics import nll
from calibrant.studio import api, sources

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
    assert found["chosen"] is None
    assert "mine.csv" in found["error"]
    assert found["argument"] == "kind"
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


def test_percentages_are_read_and_named_at_their_control(table):
    header, *rows = (line.split(",") for line in table.read_text().splitlines())
    percent = [[*(repr(100 * float(p)) for p in row[:3]), *row[3:]] for row in rows]
    table.write_text("\n".join(",".join(row) for row in [header, *percent]) + "\n")
    with pytest.raises(InputError, match="If these are percentages, pass ‘Percentages’") as caught:
        api.check(source_of(table), progress=quiet)
    assert caught.value.argument == "percent"
    answer = api.evaluate(source_of(table, percent=True), progress=quiet)
    expected = evaluate(load(table, kind="probs", scores="p_", labels="y", percent=True))
    assert answer["document"]["metrics"]["ece"]["value"] == expected.metrics["ece"].value
    assert "--labels y --percent " in answer["lines"]["cli"]
    assert "percent=True" in answer["lines"]["python"]


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
    assert found["chosen"]["kind"] == "probs"
    assert {column["name"]: column for column in found["columns"]}["part"]["values"] == [0, 1]
    by_column = {"by": "column", "column": "part", "calibration": "1", "test": "0"}
    split = {"half": {"by": "half", "seed": 0}, "column": by_column, "file": {"by": "file", "source": source}}[by]
    parts = api.load_parts({**source, "split": split}, quiet)
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


@pytest.fixture
def undrawn(monkeypatch):
    """Leave out the figures of a comparison, which take most of its time."""
    monkeypatch.setattr("calibrant.plots.save_figures", lambda _drawn, _folder: [])


@pytest.fixture
def few_draws(monkeypatch):
    """Resample a fifth as often: all ways to the same numbers do, and those of one seed are equal as exactly."""
    for module in (differences, estimates):
        monkeypatch.setattr(module, "draw_groups", partial(fewer, module.draw_groups))


def fewer(draw, n, resamples, *more):
    return draw(n, resamples // 5, *more)


@pytest.mark.usefixtures("undrawn")
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
    [({"by": "column", "column": "part", "calibration": "none", "test": "test"}, "'none' in some rows"),
     ({"by": "own"}, "half, column or file"),
     ({"by": "column", "column": "absent", "calibration": "a", "test": "b"}, "'absent'")],
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


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize(
    "split", [None, {"by": "half", "seed": 3}, {"by": "column", "column": "part", "calibration": "val", "test": "test"}]
)
def test_the_lines_run_and_give_the_same_numbers(table, monkeypatch, split):
    monkeypatch.chdir(table.parent)
    (table.parent / "mine.csv").write_text(table.read_text())
    source = source_of(table, split=split)
    answer = api.evaluate(source, n_bins=12, seed=2, progress=quiet)
    api._save_parts(api.load_parts(source, quiet), table.parent)  # to be downloaded; the lines may name them
    expected = answer["document"]["metrics"]["ece"]["value"]
    assert value_of(answer["lines"]["python"]).metrics["ece"].value == pytest.approx(expected, abs=1e-12)
    command = shlex.split(answer["lines"]["cli"].splitlines()[-1])
    with pytest.raises(SystemExit):
        app([*command[1:], "--json", "again.json"], prog_name="calibrant")
    assert json.loads(Path("again.json").read_text())["metrics"]["ece"]["value"] == pytest.approx(expected, abs=1e-12)


def test_without_a_split_methods_are_compared_in_folds_by_the_page_and_by_its_lines(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.csv").write_text(table.read_text())
    answer = api.compare(source_of(table), methods=["temperature"], folder=str(tmp_path), progress=quiet)
    assert (answer["document"]["folds"], answer["n"]) == (5, {"calibration": None, "test": 400})
    assert "calibration.npz" not in answer["files"]
    assert len(load_map(tmp_path / "map-0.safetensors").state_dict())  # fitted on all samples
    assert answer["document"]["calibration"]["source"] == "mine.csv"
    by_name = {method["name"]: method for method in answer["document"]["methods"]}
    expected = by_name["temperature"]["metrics"]["nll"]["value"]
    assert value_of(answer["lines"]["python"]).find("temperature").nll == pytest.approx(expected, abs=1e-12)
    command = shlex.split(answer["lines"]["cli"])
    with pytest.raises(SystemExit):
        app([*command[1:], "--json", "again.json"], prog_name="calibrant")
    again = {method["name"]: method for method in json.loads(Path("again.json").read_text())["methods"]}
    assert again["temperature"]["metrics"]["nll"]["value"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("example", api.EXAMPLES)
def test_an_example_is_split_already(example, monkeypatch):
    once = cache(training.train_on_digits)
    for module in (sources, training):
        monkeypatch.setattr(module, "train_on_digits", once)
    source = {"path": example, "name": api.EXAMPLES[example], "kind": "logits", "split": {"by": "own"}}
    found = api.preview(source, progress=quiet)
    assert found["chosen"]["kind"] == "logits"
    assert found["is_split"]
    answer = api.evaluate(source, progress=quiet)
    assert (
        answer["n"] == {sources.RESNET110: {"calibration": 5000, "test": 10_000}, sources.SMALL: DIGITS_SPLIT}[example]
    )
    start = {sources.RESNET110: "demo/resnet110/", sources.SMALL: "demo/digits-"}[example]
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
        api.take_home(source_of(table), baseline=source_of(table), form="gif", folder=str(tmp_path), progress=quiet)
    assert [len(load(tmp_path / f"{part}.npz")) for part in ("test", "baseline")] == [400, 400]  # of two models


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
    source = {"path": str(path), "name": "numbers.csv"}
    opened, readings = sources.opened(source), []
    monkeypatch.setattr(
        api,
        "opened",
        lambda _source: replace(opened, read=lambda *given: readings.append(given) or opened.read(*given)),
    )
    for given in ({}, {"kind": "probs"}, {"labels": "label"}):  # other options need no other reading
        assert api.preview({**source, **given}, progress=quiet)["chosen"]["kind"] == "probs"
    assert len(readings) == 1


@pytest.fixture
def weighted(table):
    """The table with weights, and a column of regions one of which is overconfident, and one of two samples."""
    header, *rows = table.read_text().splitlines()
    regions = ["few"] * 2 + ["north", "south"] * 199
    lines = [f"{row},{1 + number % 3},{regions[number]}" for number, row in enumerate(rows)]
    path = table.with_name("weighted.csv")
    path.write_text("\n".join([f"{header},w,region", *lines]) + "\n")
    return path


def run_cli(lines, monkeypatch, folder):
    """Return the JSON report of the last command shown."""
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit):
        app([*shlex.split(lines["cli"].splitlines()[-1])[1:], "--json", "again.json"], prog_name="calibrant")
    return json.loads((folder / "again.json").read_text())


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("split", [None, {"by": "column", "column": "part", "calibration": "val", "test": "test"}])
def test_weights_and_slices_have_the_numbers_of_the_command_line(weighted, monkeypatch, split):
    source = source_of(weighted, name="weighted.csv", weights="w", by=["region"], classes=True, split=split)
    answer = api.evaluate(source, n_bins=8, seed=3, progress=quiet)
    again = run_cli(answer["lines"], monkeypatch, weighted.parent)
    for name in ("metrics", "slices", "effective_n", "verdict"):
        assert answer["document"][name] == again[name], name
    shown, expected = answer["charts"]["slices"], answer["document"]["slices"]
    assert [(one["column"], one["value"], one["p"]) for one in shown] == [
        (one["column"], one["value"], one["corrected_p"]) for one in expected
    ]
    assert shown[-1]["value"] == "few"
    assert shown[-1]["p"] is None  # two samples are listed, not tested
    inside = api.samples(source, within={"column": "region", "value": "north"}, progress=quiet)
    assert inside["count"] == next(one["n"] for one in expected if one["value"] == "north")
    names = {}
    *setup, _ = answer["lines"]["python"].splitlines()
    exec("\n".join(setup), names)  # noqa: S102
    assert [one.metrics["ece"].value for one in names["slices"]] == [one["metrics"]["ece"]["value"] for one in expected]


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("split", [None, {"by": "half", "seed": 1}])
def test_clusters_have_the_numbers_of_the_command_line(table, monkeypatch, split):
    header, *rows = table.read_text().splitlines()
    lines = [f"{row},q{number // 4},{'north' if number % 3 else 'south'}" for number, row in enumerate(rows)]
    path = table.with_name("clustered.csv")
    path.write_text("\n".join([f"{header},question,region", *lines]) + "\n")
    source = source_of(path, name="clustered.csv", clusters="question", by=["region"], split=split)
    assert api.preview(source, progress=quiet)["chosen"]["scores"] == ["p_a", "p_b", "p_c"]
    answer = api.evaluate(source, n_bins=8, seed=3, progress=quiet)
    assert answer["document"]["clusters"] == (50 if split else 100)
    assert answer["charts"]["views"][0]["n"] == round(answer["document"]["effective_n"])
    names = {}
    monkeypatch.chdir(path.parent)
    *setup, last = answer["lines"]["python"].splitlines()
    exec("\n".join(setup), names)  # noqa: S102
    assert eval(last, names).clusters == answer["document"]["clusters"]  # noqa: S307
    assert [one.metrics["ece"].high for one in names["slices"]] == pytest.approx(
        [one["metrics"]["ece"]["high"] for one in answer["document"]["slices"]], nan_ok=True
    )
    if split is None:
        again = run_cli(answer["lines"], monkeypatch, path.parent)
        assert answer["document"]["metrics"] == again["metrics"]
        assert answer["document"]["slices"] == again["slices"]
    assert "--clusters" in answer["lines"]["cli"]
    lacking = {**source, "path": str(path.with_name("lacking.csv"))}
    path.with_name("lacking.csv").write_text(path.read_text().replace(",q3,", ",,", 1))
    with pytest.raises(InputError, match="must have a value in every row") as caught:
        api.check(lacking, progress=quiet)
    assert caught.value.argument == "missing"  # where the page offers to leave such rows out
    assert api.check({**lacking, "missing": "drop"}, progress=quiet)["dropped"] == 1


def test_all_options_of_reading_reach_the_lines(tmp_path, monkeypatch):
    path = tmp_path / "mine.csv"
    rows = [f"{30 + i % 60};{'spam' if i % 3 else 'ham'};{i % 2}" for i in range(90)]
    path.write_text("\n".join(["p;y;extra", *rows]).replace("30;", "0.3;") + "\n")
    source = {"path": str(path), "name": "mine.csv"}
    found = api.preview(source, progress=quiet)
    assert found["argument"] == "separator"
    assert "‘Separator: ;’" in found["error"]
    source |= {"separator": ";", "positive": "p", "positive_class": "ham", "labels": "y", "kind": "logits"}
    found = api.preview(source, progress=quiet)
    assert found["chosen"] == {"kind": "logits", "scores": ["p"], "labels": "y", "class_names": None, "aliases": [],
                               "positive": True}  # fmt: skip
    answer = api.evaluate(source, progress=quiet)
    assert run_cli(answer["lines"], monkeypatch, tmp_path)["metrics"] == answer["document"]["metrics"]
    assert value_of(answer["lines"]["python"]).n == 90


def test_scores_and_labels_in_two_arrays_are_a_pair(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "0a1b.npy", rng.normal(size=(100, 3)))
    np.save(tmp_path / "2c3d.npy", rng.integers(0, 3, 100))
    source = {"path": str(tmp_path / "0a1b.npy"), "name": "scores.npy"}
    found = api.preview(source, progress=quiet)
    assert "0a1b" not in json.dumps(found)
    assert found["error"]
    source["labels_file"] = {"path": str(tmp_path / "2c3d.npy"), "name": "labels.npy"}
    assert api.preview(source, progress=quiet)["argument"] == "kind"  # no name says of which they are
    source["kind"] = "logits"
    found = api.preview(source, progress=quiet)
    assert found["chosen"]["kind"] == "logits"
    assert [column["name"] for column in found["columns"]] == ["scores", "labels.npy"]
    answer = api.evaluate(source, progress=quiet)
    (tmp_path / "0a1b.npy").rename(tmp_path / "scores.npy")
    (tmp_path / "2c3d.npy").rename(tmp_path / "labels.npy")
    assert "--labels labels.npy" in answer["lines"]["cli"]
    assert run_cli(answer["lines"], monkeypatch, tmp_path)["metrics"] == answer["document"]["metrics"]


def changed(path, column, value):
    """Put a value into the first row of a column, or into all."""
    header, *rows = path.read_text().splitlines()
    place = header.split(",").index(column)
    table = [row.split(",") for row in rows]
    for row in table[:1] if not isinstance(value, list) else table:
        row[place] = value[0] if isinstance(value, list) else value
    path.write_text("\n".join([header, *map(",".join, table)]) + "\n")


@pytest.mark.parametrize(
    ("column", "value", "words", "control"),
    [("w", "-1", "at least 0", "weights"),
     ("w", "nan", "got nan at line 2", "weights"), ("w", ["0"], "only zeros", "weights"),
     ("w", "heavy", "numbers", "weights"), ("part", ["test"], "'val' in some rows", "split"),
     ("y", "7", "0..2", None), ("p_a", "7.5", "pass ‘Percentages’; if counts, pass ‘Divide each row", "percent")],
)  # fmt: skip
def test_bad_values_are_refused_at_the_control_that_helps(weighted, column, value, words, control):
    changed(weighted, column, value)
    split = {"by": "column", "column": "part", "calibration": "val", "test": "test"}
    with pytest.raises(InputError, match=words) as caught:
        api.check(source_of(weighted, weights="w", split=split), progress=quiet)
    assert caught.value.argument == control
    assert str(weighted.parent) not in str(caught.value)


def test_labels_that_are_no_class_show_the_nearest(weighted):
    header, *rows = weighted.read_text().splitlines()
    names = [row.split(",") for row in rows]
    for row in names:
        row[3] = "abc"[int(row[3])]
    names[5][3] = "bb"
    weighted.write_text("\n".join([header, *map(",".join, names)]) + "\n")
    with pytest.raises(InputError, match="nearest"):
        api.check(source_of(weighted), progress=quiet)


@pytest.mark.usefixtures("undrawn")
def test_a_map_is_exported_to_onnx(table, tmp_path):
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    source = source_of(table, split={"by": "half", "seed": 0})
    answer = api.compare(source, methods=["temperature"], folder=str(tmp_path), progress=quiet)
    name = next(name for name, title in answer["files"].items() if title == "temperature")
    exported = api.export(map_file=str(tmp_path / name), folder=str(tmp_path), progress=quiet)
    (file,) = exported["files"]
    onnx.checker.check_model(onnx.load(tmp_path / file))
    assert exported["lines"]["cli"] == f"calibrant export {name} -o {file}"
    test = load(tmp_path / "test.npz")
    session = runtime.InferenceSession(str(tmp_path / file), providers=["CPUExecutionProvider"])
    given = {"probabilities": test.probs, "logits": test.logits}[session.get_inputs()[0].name].float().numpy()
    (scores,) = session.run(None, {session.get_inputs()[0].name: given})
    expected = load_map(tmp_path / name).transform(test).probs
    assert scores == pytest.approx(expected.numpy(), abs=1e-5)

    exported = api.export(map_file=str(tmp_path / name), suffix=".py", folder=str(tmp_path), progress=quiet)
    (file,) = exported["files"]
    module = {}
    exec((tmp_path / file).read_text(), module)  # noqa: S102  # our own
    given = {"probabilities": test.probs, "logits": test.logits}[module["ABOUT"]["inputs"]]
    assert module["calibrate"](given) == pytest.approx(expected.numpy(), abs=1e-6)
    with pytest.raises(InputError, match="suffix must be one of"):
        api.export(map_file=str(tmp_path / name), suffix="/../x.py", folder=str(tmp_path), progress=quiet)


def test_a_wide_table_is_previewed_with_its_label_and_its_last_score(tmp_path):
    header = [*(f"prob_{i}" for i in range(20)), "site", "label"]
    rows = [",".join([*["0.05"] * 20, "a", str(row)]) for row in range(20)]
    path = tmp_path / "wide.csv"
    path.write_text("\n".join([",".join(header), *rows]) + "\n")
    found = api.preview({"path": str(path), "name": "wide.csv"}, progress=quiet)
    shown = [column["name"] for column in found["columns"]]
    assert shown == ["label", "prob_19", *header[:12]]
    assert found["columns"][0]["first"] == [0, 1, 2, 3, 4]


@pytest.fixture
def milder(table):
    """The table with milder probabilities, those of another model, also as columns q_a, q_b and q_c."""
    header, *rows = (line.split(",") for line in table.read_text().splitlines())
    probs = np.array([[float(cell) for cell in row[:3]] for row in rows]) ** 0.5
    rows_of_probs = [list(map(repr, row.tolist())) for row in probs / probs.sum(1, keepdims=True)]
    path = table.with_name("milder.csv")
    lines = [
        [*header, "q_a", "q_b", "q_c"],
        *([*one, *row[3:], *one] for one, row in zip(rows_of_probs, rows, strict=True)),
    ]
    path.write_text("\n".join(map(",".join, lines)) + "\n")
    return path


def emptied(path, rows):
    """Leave a score of these rows empty."""
    header, *lines = path.read_text().splitlines()
    path.write_text(
        "\n".join([header, *(f",{one.partition(',')[2]}" if i in rows else one for i, one in enumerate(lines))]) + "\n"
    )
    return path


BY_PART = {"by": "column", "column": "part", "calibration": "val", "test": "test"}


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize(
    ("own", "others", "n"),
    [({}, {}, 400), ({"split": BY_PART}, {}, 300), ({"split": {"by": "half", "seed": 1}}, {}, 200),
     ({}, {"scores": "q_"}, 400), ({"missing": "drop"}, {"missing": "drop"}, 397)],
)  # fmt: skip
def test_two_models_have_the_numbers_of_the_command_line(table, milder, monkeypatch, own, others, n):
    monkeypatch.chdir(table.parent)
    if own.get("missing"):
        emptied(table, {3, 7})
        emptied(milder, {7, 9})
    (table.parent / "mine.csv").write_text(table.read_text())
    source, baseline = source_of(table, **own), source_of(milder, **others) | {"name": "milder.csv"}
    answer = api.evaluate(source, baseline=baseline, n_bins=12, seed=2, progress=quiet)
    assert answer["n"]["test"] == n
    assert ("3 rows left out" in answer["html"]) == (n == 397)  # row 7 lacks a value in both, and is one row
    compared = answer["document"]["comparison"]
    assert compared["nll"]["low"] > 0  # the baseline is better
    parts, other = sources.load_pair(source, baseline, quiet)
    api._save_parts(parts, table.parent, other)  # to be downloaded; the lines may name them
    again = run_cli(answer["lines"], monkeypatch, table.parent)["comparison"]
    again_in_python = value_of(answer["lines"]["python"])
    for name in ("nll", "ece", "accuracy", "aurc"):
        for field in ("baseline", "value", "low", "high", "p"):
            assert again[name][field] == pytest.approx(compared[name][field], abs=1e-9), (name, field)
            assert getattr(again_in_python[name], field) == pytest.approx(compared[name][field], abs=1e-9)
    views, shown = answer["charts"]["views"], answer["charts"]["comparison"]
    assert [(view["name"], view["title"], view["n"]) for view in views] == [
        ("baseline", "milder.csv", n),
        ("this", "mine.csv", n),
    ]
    assert {one["name"]: one["p"] for one in shown["metrics"]} == {name: one["p"] for name, one in compared.items()}
    assert "worse in ECE" in shown["words"]
    assert answer["document"]["verdict"]["findings"][0] == shown["words"]


@pytest.mark.usefixtures("few_draws")
def test_other_columns_of_one_file_are_named_in_the_comparison(milder):
    baseline = source_of(milder, scores="q_")
    shown = api.evaluate(source_of(milder), baseline=baseline, progress=quiet)["charts"]["comparison"]
    assert shown["baseline"] == "mine.csv (q_)"
    assert all(one["value"] == 0 for one in shown["metrics"])
    assert "no clear difference in accuracy" in shown["words"]


def test_answers_in_another_order_are_refused(tmp_path):
    rows = [f"{number},0.{number % 8 + 1},{number % 2}" for number in range(40)]
    for name, kept in (("new.csv", rows), ("old.csv", rows[::-1])):
        (tmp_path / name).write_text("\n".join(["id,confidence,correct", *kept]))
    new, old = ({"path": str(tmp_path / name), "name": name} for name in ("new.csv", "old.csv"))
    api.check(new, baseline=new, progress=quiet)
    with pytest.raises(InputError, match="Sort both by 'id'"):
        api.check(new, baseline=old, progress=quiet)


def test_tables_of_other_samples_are_refused(table, milder, tmp_path):
    header, *rows = milder.read_text().splitlines()
    emptied(table, {0})
    changes = {
        "got 399 and 400 samples": [header, *rows[1:]],
        "same labels in the same order": [header, *rows[200:], *rows[:200]],
    }
    with pytest.raises(InputError, match="Leave out rows without values"):
        api.check(source_of(table), baseline=source_of(milder), progress=quiet)
    source = source_of(milder, written=1)
    for number, (words, lines) in enumerate(changes.items()):
        other = tmp_path / f"other-{number}.csv"
        other.write_text("\n".join(lines) + "\n")
        for task in (api.check, api.evaluate):
            with pytest.raises(InputError, match=words) as caught:
                task(source, baseline=source_of(other), progress=quiet)
            assert str(tmp_path) not in str(caught.value)
    top = {"kind": "top-label", "scores": None, "labels": None, "confidence": "p_a", "correct": "right"}
    lines = [f"{header},right", *(f"{row},{i % 2}" for i, row in enumerate(rows))]
    (tmp_path / "top.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match="of one kind"):
        api.check(source, baseline=source_of(tmp_path / "top.csv", **top), progress=quiet)
    halves = []
    for name, rows in (("first", range(200)), ("second", range(200, 400))):
        path = milder.with_name(f"{name}.csv")
        path.write_text(milder.read_text())
        halves.append(source_of(emptied(path, rows), missing="drop"))
    with pytest.raises(InputError, match="samples in common"):
        api.check(halves[0], baseline=halves[1], progress=quiet)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("split", [None, {"by": "half", "seed": 0}, BY_PART])
def test_rows_without_values_are_left_out_on_request_and_counted(table, tmp_path, split):
    emptied(table, {3, 8})
    changed(table, "y", "")
    with pytest.raises(InputError, match="‘Leave out rows without values’") as caught:
        api.check(source_of(table, split=split), progress=quiet)
    assert caught.value.argument == "missing"
    source = source_of(table, split=split, missing="drop")
    n = {None: (None, 397), "half": (198, 199), "column": (98, 299)}[(split or {}).get("by")]
    expected = {"n": {"calibration": n[0], "test": n[1]}, "dropped": 3}
    assert api.check(source, progress=quiet) == expected
    for _ in range(2):  # also of what a worker has kept
        answer = api.evaluate(source, progress=quiet)
        assert answer["n"] == expected["n"]
        assert answer["document"]["dropped_rows"] == [
            {"source": "mine.csv", "dropped": 3, "of": 400, "lines": [2, 5, 10]}
        ]
        assert "3 rows left out" in answer["html"]
        assert table.name not in answer["html"]
    shown = api.samples(source, progress=quiet)["samples"]
    with pytest.warns(CalibrantWarning, match="3 of 400 rows"):
        whole = load(table, kind="probs", scores="p_", labels="y", missing="drop")
    places = [row for row in range(400) if row not in {0, 3, 8}]
    for sample in shown[:20]:
        assert sample["confidence"] == float(whole.top.confidence[places.index(sample["row"])])
    if split is not None:
        compared = api.compare(source, methods=["temperature"], folder=str(tmp_path), progress=quiet)
        assert compared["document"]["dropped_rows"][0]["dropped"] == 3
        assert len(load(tmp_path / "test.npz")) == n[1]


def test_a_weight_that_is_missing_can_be_left_out_too(weighted):
    changed(weighted, "w", "nan")
    with pytest.raises(InputError) as caught:
        api.check(source_of(weighted, weights="w"), progress=quiet)
    assert caught.value.argument == "weights"
    assert api.check(source_of(weighted, weights="w", missing="drop"), progress=quiet)["dropped"] == 1


def test_cautions_of_reading_are_on_the_page(table):
    changed(table, "y", "0")
    header, *rows = table.read_text().splitlines()
    table.write_text("\n".join([header, "0.0,0.5,0.5,0,test", *rows[1:]]) + "\n")
    for _ in range(2):
        assert any("probability 0" in note for note in api.evaluate(source_of(table), progress=quiet)["notes"])


@pytest.mark.parametrize("named", [False, True])
def test_confidences_are_calibrated_as_the_probability_of_being_right(tmp_path, named):
    rng = np.random.default_rng(0)
    sure, question = rng.uniform(0.5, 0.99, 600).round(3), np.arange(600) // 3
    right = rng.random(600) < sure**3
    columns = ["p", "ok"] if named else ["confidence", "correct"]
    rows = [f"{c},{int(r)},{q}" for c, r, q in zip(sure, right, question, strict=True)]
    (tmp_path / "answers.csv").write_text("\n".join([",".join([*columns, "question"]), *rows]) + "\n")
    options = {"confidence": "p", "correct": "ok"} if named else {}
    own = {"kind": "top-label", "scores": None, "labels": None, "clusters": "question", **options}
    source = source_of(tmp_path / "answers.csv", split={"by": "half", "seed": 0}, **own)
    advice = api.evaluate(source, progress=quiet)["document"]["verdict"]["next_steps"][0]
    for words in (f"--positive {columns[0]}", f"--labels {columns[1]}", "--clusters question"):
        assert words in advice
    out = tmp_path / "out"
    out.mkdir()
    answer = api.compare(source, methods=["platt"], folder=str(out), progress=quiet)
    saved = {name: load(out / f"{name}.npz") for name in ("calibration", "test")}
    expected = PlattScaling().fit(saved["calibration"]).transform(saved["test"])
    fitted = load_map(out / next(name for name, title in answer["files"].items() if title == "platt"))
    assert torch.allclose(fitted.transform(saved["test"]).probs, expected.probs)
    assert "calibration.npz --clusters clusters -o" in re.sub("<[^>]*>", "", answer["html"])
    assert nll(expected) < nll(saved["test"])

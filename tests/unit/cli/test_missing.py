"""Rows without a score, label or weight: refused, left out with a caution, or kept by ``apply``; in every format."""

import json
import math
from gzip import compress
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from calibrant.errors import CalibrantWarning, Caveat, InputError
from calibrant.files import load
from calibrant.metrics import ECE, NLL, Accuracy
from calibrant.predictions import Predictions

N, NO_SCORE, NO_LABEL = 120, (3, 40, 41), (9, 41, 100)
LACKING = sorted({*NO_SCORE, *NO_LABEL})
RNG = np.random.default_rng(5)
PROBS = RNG.dirichlet([1, 1, 1], N)
LABELS = np.array([RNG.choice(3, p=p) for p in PROBS])
DAYS = np.repeat([1, 2, 3], 40)
KINDS = [".csv", ".csv.gz", ".jsonl", ".parquet", ".arrow", ".npz", ".safetensors"]
EMPTY_LABELS = [None if row in NO_LABEL else int(label) for row, label in enumerate(LABELS)]


def columns():
    probs = {
        f"prob_{k}": [None if row in NO_SCORE and k == 1 else float(p) for row, p in enumerate(PROBS[:, k])]
        for k in range(3)
    }
    return {**probs, "label": list(EMPTY_LABELS), "day": DAYS.tolist()}


def write(path, data=None):
    """Write samples of which some lack something, in the way of the format."""
    data = data or columns()
    if path.suffix in {".npz", ".safetensors"}:
        probs = np.array([[math.nan if p is None else p for p in data[f"prob_{k}"]] for k in range(3)]).T
        arrays = {
            "probs": np.ascontiguousarray(probs),
            "labels": np.array([math.nan if label is None else label for label in data["label"]], dtype=float),
            "day": np.array(data["day"]),
        }
        np.savez(path, **arrays) if path.suffix == ".npz" else save_file(arrays, path)
    elif path.suffix == ".parquet":
        pq.write_table(pa.table(data), path, row_group_size=50)
    elif path.suffix == ".arrow":
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, pa.table(data).schema) as writer:
            writer.write_table(pa.table(data), max_chunksize=50)
    elif path.suffix == ".jsonl":
        rows = [dict(zip(data, values, strict=True)) for values in zip(*data.values(), strict=True)]
        lines = [
            {"probs": None if row in {3, 40} else [one[f"prob_{k}"] for k in range(3)], **one}
            for row, one in enumerate(rows)
        ]
        kept = [{name: value for name, value in one.items() if not name.startswith("prob_")} for one in lines]
        path.write_text("".join(json.dumps(one) + "\n" for one in kept))
    else:
        rows = [
            ["" if value is None else repr(value) for value in values] for values in zip(*data.values(), strict=True)
        ]
        text = "\n".join(map(",".join, [list(data), *rows])) + "\n"
        path.write_bytes(compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def places(suffix, rows):
    first = {".csv": 2, ".csv.gz": 2, ".jsonl": 1}.get(suffix)
    return {"rows": list(rows)} if first is None else {"lines": [row + first for row in rows]}


@pytest.mark.parametrize("options", [(), ("--stream",)])
@pytest.mark.parametrize("suffix", KINDS)
def test_rows_that_lack_something_are_refused_or_left_out_and_reported(calibrant, tmp_path, suffix, options):
    path, few = write(tmp_path / f"p{suffix}"), ("--resamples", "100", *options)
    code, _, error = calibrant("evaluate", path, *few)
    assert code == 2
    where = f"line {places(suffix, [3])['lines'][0]}" if "lines" in places(suffix, ()) else "row 3"
    assert f"at {where}" in error
    assert "--missing drop" in error
    reports = {form: tmp_path / f"report.{form}" for form in ("json", "markdown", "latex", "html")}
    written = [part for form, report in reports.items() for part in (f"--{form}", report)]
    code, out, error = calibrant("evaluate", path, *few, "--missing", "drop", *written)
    assert code == 0, error
    shown = [" ".join(out.split()), *(reports[form].read_text() for form in ("markdown", "latex", "html"))]
    assert all(f"Caution: 5 of {N} rows of p{suffix} lack a score" in text for text in shown)
    assert all("5 rows left out" in text for text in shown)
    report = json.loads(reports["json"].read_text())
    assert report["dropped_rows"] == [{"source": path.name, "dropped": 5, "of": N, **places(suffix, LACKING)}]
    assert report["n"] == N - 5
    complete = Predictions.from_probs(np.delete(PROBS, LACKING, 0), np.delete(LABELS, LACKING))
    for metric in (NLL(), Accuracy(), ECE()):
        assert report["metrics"][metric.name]["value"] == pytest.approx(metric(complete), rel=1e-12)


@pytest.mark.parametrize("options", [(), ("--stream",)])
@pytest.mark.parametrize(("column", "value", "message"), [("prob_0", math.inf, "got inf"), ("label", 7, "got 7")])
def test_what_is_wrong_is_refused_by_the_line_it_has(calibrant, tmp_path, column, value, message, options):
    data = columns()
    data[column][60] = value
    code, _, error = calibrant("evaluate", write(tmp_path / "p.csv", data), "--missing", "drop", *options)
    assert code == 2
    assert f"{message} at line 62" in error


@pytest.mark.parametrize("options", [(), ("--stream",)])
def test_every_command_reports_them(calibrant, tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "p.csv")
    drop = ("--missing", "drop")
    code, out, error = calibrant("fit", "temperature", "p.csv", "-o", "map.safetensors", *drop, *options)
    assert code == 0, error
    assert "5 of 120 rows of p.csv" in error
    assert f"fitted on    {N - 5} samples" in out
    assert "--missing keep" in out  # what apply takes
    code, out, _ = calibrant(
        "compare", "p.csv", "p.csv", "--methods", "temperature", *drop, *options, "--json", "compare.json"
    )
    assert code == 0
    assert "5 of 120 rows of p.csv" in " ".join(out.split())
    assert json.loads((tmp_path / "compare.json").read_text())["dropped_rows"][0]["dropped"] == 5
    code, out, _ = calibrant("trend", "p.csv", "--by", "day", *drop, "--json", "trend.json")
    assert code == 0
    assert json.loads((tmp_path / "trend.json").read_text())["dropped_rows"][0]["lines"] == [5, 11, 42, 43, 102]
    assert calibrant("state", "p.csv", "-o", "p.state", *drop)[0] == 0
    assert "5 of 120 rows of p.csv" in " ".join(calibrant("evaluate", "p.state", "--resamples", "100")[1].split())
    code, _, error = calibrant("evaluate", "p.csv", "--missing", "keep", *options)
    assert code == 2
    assert "is for apply" in error


@pytest.mark.parametrize("workers", ["1", "2"])
def test_several_files_are_counted_one_by_one(calibrant, tmp_path, workers):
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "a.parquet")
    write(tmp_path / "in" / "b.parquet", {**columns(), "prob_1": PROBS[:, 1].tolist()})
    code, _, error = calibrant(
        *("evaluate", tmp_path / "in", "--missing", "drop", "--resamples", "100", "--workers", workers),
        *("--json", tmp_path / "report.json"),
    )
    assert code == 0, error
    report = json.loads((tmp_path / "report.json").read_text())
    assert [(one["source"], one["dropped"]) for one in report["dropped_rows"]] == [("a.parquet", 5), ("b.parquet", 3)]
    assert report["n"] == 2 * N - 8


# Every format in every way of reading; a split with every format, and in every way.
@pytest.mark.parametrize(
    ("options", "split_in"), [((), ".csv"), (("--stream",), ".parquet"), (("--workers", "2"), ".npz")]
)
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_a_baseline_is_compared_on_the_samples_that_both_have(calibrant, tmp_path, suffix, options, split_in):
    split = ("--split", "day=3,1") if suffix == split_in else ()
    data, lacking = columns(), {*LACKING, 7, 8}
    others = {**data, "prob_1": [None if row in {7, 8} else p for row, p in enumerate(PROBS[:, 1].tolist())]}
    new, old = write(tmp_path / f"new{suffix}", data), write(tmp_path / f"old{suffix}", others)
    if suffix == ".parquet":
        pq.write_table(pa.table(others), old, row_group_size=17)  # other batches than those of the other file
    wanted = ("--missing", "drop", "--resamples", "100", "--json", tmp_path / "report.json", *options, *split)
    code, out, error = calibrant("evaluate", new, "--baseline", old, *wanted)
    assert code == 0, error
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["n"] == sum(row not in lacking and not (split and DAYS[row] != 1) for row in range(N))
    assert report["comparison"]["nll"]["value"] == 0  # the same scores
    assert [(one["source"], one["dropped"]) for one in report["dropped_rows"]] == [
        (new.name, len(LACKING)),
        (old.name, len({*NO_LABEL, 7, 8})),
    ]
    assert f"{len(lacking)} rows left out" in " ".join(out.split())  # those that both lack count once


@pytest.mark.parametrize("options", [(), ("--stream",)])
def test_a_baseline_of_other_rows_is_refused(calibrant, tmp_path, options):
    new, states = write(tmp_path / "new.csv"), [tmp_path / f"{name}.state" for name in ("new", "old")]
    old = write(tmp_path / "old.csv", {name: column[:-1] for name, column in columns().items()})
    code, _, error = calibrant("evaluate", new, "--baseline", old, "--missing", "drop", *options)
    assert code == 2
    assert "120 and 119 rows" in error or "got 114 and 115." in error
    halves = [
        write(
            tmp_path / f"{half}.csv",
            {**columns(), "prob_0": [p if row % 2 == half else None for row, p in enumerate(PROBS[:, 0].tolist())]},
        )
        for half in (0, 1)
    ]
    code, _, error = calibrant("evaluate", halves[0], "--baseline", halves[1], "--missing", "drop", *options)
    assert code == 2
    assert "none" in error
    for path, state in zip((new, old), states, strict=True):
        assert calibrant("state", path, "-o", state, "--missing", "drop")[0] == 0
    code, _, error = calibrant("evaluate", states[0], "--baseline", states[1])
    assert code == 2
    assert "compare their files" in error


@pytest.mark.parametrize("options", [(), ("--stream",)])
@pytest.mark.parametrize("suffix", KINDS)
def test_apply_keeps_the_place_of_rows(calibrant, tmp_path, suffix, options):
    path, out = write(tmp_path / f"p{suffix}"), tmp_path / f"out{suffix}"
    code, _, error = calibrant("apply", "temperature(value=1)", path, "-o", out, *options)
    assert code == 2
    assert "--missing keep" in error
    code, _, error = calibrant("apply", "temperature(value=1)", path, "-o", out, "--missing", "drop", *options)
    assert code == 2
    assert "keep their places" in error
    code, shown, error = calibrant("apply", "temperature(value=1)", path, "-o", out, "--missing", "keep", *options)
    assert code == 0, error
    assert "3 rows without scores" in shown
    with pytest.warns(CalibrantWarning, match=f"5 of {N} rows"):
        written = load(out, missing="drop")
    rows = [row for row in range(N) if row not in LACKING]
    assert np.abs(written.probs.numpy() - PROBS[rows]).max() < 1e-12
    assert written.labels.tolist() == LABELS[rows].tolist()
    if suffix == ".csv":
        lines = out.read_text().splitlines()
        assert lines[4] == f",,,{LABELS[3]},1"
        assert lines[10].split(",")[3] == ""
    code, _, error = calibrant("apply", "temperature(value=1)", path, "-o", tmp_path / "o.pt", "--missing", "keep")
    assert (code == 0) == (suffix in {".npz", ".safetensors"})
    assert code == 0 or "one of its kind" in error


class TestLoad:
    TABLE: ClassVar = {
        "prob_a": [0.5, 0.2, None, 0.9],
        "prob_NA": [0.5, 0.8, 0.1, 0.1],
        "label": ["a", "NA", "a", None],
    }

    def test_a_warning_has_the_facts(self):
        with pytest.warns(CalibrantWarning) as caught:
            loaded = load(pa.table(self.TABLE), missing="drop")
        (warning,) = (one.message for one in caught)
        assert warning.caveat is Caveat.rows_dropped
        assert warning.facts == {"source": "the source", "dropped": 2, "of": 4, "rows": [2, 3]}
        assert loaded.labels.tolist() == [0, 1]  # a class called NA is one

    @pytest.mark.parametrize("word", ["", "NaN", "n/a", "NULL"])
    def test_words_for_nothing_beside_numbers(self, tmp_path, word):
        path = tmp_path / "p.csv"
        path.write_text(f"prob_0,prob_1,label\n0.5,0.5,1\n0.5,0.5,{word}\n0.5,0.5,0\n")
        with pytest.warns(CalibrantWarning, match="1 of 3 rows .*line 3"):
            loaded = load(path, missing="drop", class_names=["1", "0"])
        assert loaded.labels.tolist() == [1, 0]  # class numbers, as in a file without gaps

    @pytest.mark.parametrize("labels", [["yes", "", "yes"], [1.0, math.nan, 1.0]])
    def test_no_label_is_not_the_other_class(self, labels):
        source = {"p": [0.9, 0.2, 0.8], "y": labels}
        named = "yes" if "yes" in labels else "1"
        with pytest.raises(InputError, match=r"'y' must have a value in every row.*missing='drop'"):
            load(source, positive="p", positive_class=named, labels="y")
        with pytest.warns(CalibrantWarning):
            assert len(load(source, positive="p", positive_class=named, labels="y", missing="drop")) == 2

    def test_true_and_false_with_gaps(self):
        table = pa.table({"confidence": [0.9, 0.8, 0.7], "correct": [True, None, False]})
        with pytest.warns(CalibrantWarning):
            assert load(table, missing="drop").correct.tolist() == [True, False]

    def test_weights_may_lack(self):
        table = pa.table({**self.TABLE, "w": [1, None, 2, 3]})
        with pytest.warns(CalibrantWarning, match="3 of 4"):
            assert load(table, missing="drop", weights="w").weights.tolist() == [1]

    def test_all_rows_lacking_is_an_error(self):
        with pytest.raises(InputError, match="all 2 lack one"):
            load({"probs": np.full((2, 2), math.nan), "labels": [0, 1]}, missing="drop")

    @pytest.mark.parametrize("missing", ["skip", "keep", None])
    def test_other_words_are_refused(self, missing):
        with pytest.raises(InputError, match="missing"):
            load(pa.table(self.TABLE), missing=missing)

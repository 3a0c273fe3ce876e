"""Percentages: numbers from 0 to 100 and text with a percent sign are read as shares of one, and written back so."""

import json
import re
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tests.unit.cli.conftest import calibrant  # noqa: F401  # a fixture
from tests.unit.files.test_columns import refused

from calibrant import load, save_map
from calibrant.calibrators import PlattScaling
from calibrant.errors import CalibrantWarning, FileError
from calibrant.files import text
from calibrant.predictions import Predictions

save_module = sys.modules["calibrant.files.save"]  # the package's ``save`` is its function
SHARES = [0.85, 0.9, 0.205, 1.0, 0.0, 0.07]
SIGNED = ["85%", "90 %", "20.5%", " 100%", "0\N{NO-BREAK SPACE}%", "7.00%"]
BARE = ["85", "90", "20.5", "100", "0", "7"]
MIXED = ["85%", "90", "20.5%", "100", "0 %", "7"]
CORRECT = ["yes", "no", "no", "yes", "no", "no"]
BINARY = ("--probs", "--positive", "confidence", "--labels", "correct")


def csv(path, words, *, mark=",", labels=CORRECT):
    lines = [f"{row:03}{mark}{word}{mark}{label}" for row, (word, label) in enumerate(zip(words, labels, strict=True))]
    path.write_text("\n".join([mark.join(["id", "confidence", "correct"]), *lines]) + "\n", encoding="utf-8")
    return path


def written(path, words, labels=CORRECT):
    """Write the words, or numbers, with the labels in the format of the path."""
    if path.suffix == ".csv":
        return csv(path, words, labels=labels)
    if path.suffix == ".jsonl":
        rows = [{"confidence": word, "correct": label} for word, label in zip(words, labels, strict=True)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".parquet":
        pq.write_table(pa.table({"confidence": words, "correct": labels}), path)
    else:
        np.savez(path, confidence=np.array(words), correct=np.array(labels) == "yes")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet", ".npz"])
def test_a_column_with_signs_is_read_without_an_option_and_numbers_with_it(tmp_path, suffix):
    assert load(written(tmp_path / f"a{suffix}", SIGNED)).confidence.tolist() == pytest.approx(SHARES)
    path = written(tmp_path / f"b{suffix}", list(map(float, BARE)))
    assert load(path, percent=True).confidence.tolist() == pytest.approx(SHARES)
    with refused("'confidence' must lie in 0..1; got 85 at ", "If these are percentages, pass percent=True."):
        load(path)


def test_arrays_and_whole_numbers_are_percentages_too():
    for words in (np.array([85, 7]), torch.tensor([85, 7], dtype=torch.uint8), [85.0, 7.0], ["85 %", "7%"]):
        top = load({"confidence": words, "correct": [True, False]}, percent=True)
        assert top.confidence.tolist() == [0.85, 0.07]
    half = torch.tensor([85.5, 7.25], dtype=torch.float16)
    assert load({"confidence": half, "correct": [True, False]}, percent=True).confidence.tolist() == [0.855, 0.0725]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_a_column_with_some_signs_is_read_only_with_the_option(tmp_path, suffix):
    words = MIXED if suffix == ".csv" else ["85%", 90, "20.5%", 100, "0 %", 7]
    path = written(tmp_path / f"a{suffix}", words)
    line = "line 3" if suffix == ".csv" else "line 2"
    with refused("must have a % sign in every row or in none; got '90' at ", line, "percent=True", error=FileError):
        load(path)
    assert load(path, percent=True).confidence.tolist() == pytest.approx(SHARES)


def test_many_different_percentages_are_read_in_one_pass():
    shares = torch.arange(200_000, dtype=torch.float64) / 200_000
    words = [f"{100 * share}%" for share in shares.tolist()]
    top = load({"confidence": words, "correct": torch.ones(200_000, dtype=torch.bool)})
    torch.testing.assert_close(top.confidence, shares)


def test_decimal_commas_are_read(tmp_path):
    words = ["85,5%", "90,25 %", "7 %", "0,5%", "3%", "100%"]
    path = csv(tmp_path / "a.csv", words, mark=";")
    wanted = [0.855, 0.9025, 0.07, 0.005, 0.03, 1]
    assert load(path, separator="csv2").confidence.tolist() == pytest.approx(wanted)
    assert load(path, separator=";").confidence.tolist() == pytest.approx(wanted)
    bare = csv(tmp_path / "b.csv", [word.rstrip("% ") for word in words], mark=";")
    assert load(bare, separator="csv2", percent=True).confidence.tolist() == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("words", "options", "parts"),
    [
        (["85", "120", "3"], {"percent": True}, ("must lie in 0..100", "got 120 at line 3", "Correct this row")),
        (["85%", "-1%", "3%"], {}, ("must lie in 0..100", "got -1 at line 3")),
        (["85%", "high", "3%"], {}, ("got the text 'high' at line 3",)),
        (["85", "high", "3"], {"percent": True}, ("got the text 'high' at line 3",)),
        (["85", "", "3"], {"percent": True}, ("must have a value in every row", "line 3")),
        (["85%", "", "3%"], {}, ("must have a value in every row", "line 3")),
        (["85%", "1_0%", "3%"], {}, ("got the text '1_0%'",)),
        (["850", "3", "3"], {}, ("confidence must lie in 0..1; got 850",)),
    ],
)
@pytest.mark.parametrize("stream", [(), ("--stream",)])
def test_what_is_no_percentage_is_named_with_its_line(tmp_path, calibrant, words, options, parts, stream):  # noqa: F811
    path = csv(tmp_path / "a.csv", words, labels=CORRECT[:3])
    with refused(*parts, error=FileError):
        load(path, **options)
    code, _, error = calibrant("evaluate", path, *["--percent"][: len(options)], *stream)
    assert code == 2
    assert re.search(".*".join(map(re.escape, parts)), " ".join(error.split())), error


def test_rows_without_a_percentage_can_be_left_out(tmp_path):
    path = csv(tmp_path / "a.csv", ["85%", "", "3%", "NA", "5%", "6%"])
    with pytest.warns(CalibrantWarning, match="2 of 6 rows"):
        assert load(path, missing="drop").confidence.tolist() == pytest.approx([0.85, 0.03, 0.05, 0.06])


def test_classes_in_percent_and_their_rounding():
    source = {"prob_a": [85, 33], "prob_b": [10, 33], "prob_c": [5, 33], "label": ["a", "b"]}
    with refused("'prob_a' must lie in 0..1; got 85", "pass percent=True; if counts, pass normalise=True"):
        load(source)
    with refused("must sum to one", "got 0.99", "normalise=True"):
        load(source, percent=True)
    probs = load(source, percent=True, normalise=True).probs
    torch.testing.assert_close(probs, torch.tensor([[0.85, 0.1, 0.05], [1 / 3] * 3], dtype=torch.float64))
    signed = {name: [f"{value} %" for value in source[name]] for name in ("prob_a", "prob_b", "prob_c")}
    torch.testing.assert_close(load({**signed, "label": ["a", "b"]}, normalise=True).probs, probs)
    assert load({"probs": [[85, 15], [1, 99]], "labels": [0, 1]}, percent=True).probs.tolist()[1] == [0.01, 0.99]


def test_logits_are_no_percentages_and_an_error_in_the_labels_comes_first():
    with refused("percent is for probabilities and confidences"):
        load({"logits": [[85, 3]], "labels": [0]}, percent=True)
    with refused("percent must be True or False; got str"):
        load({"confidence": [85], "correct": [True]}, percent="yes")
    with refused("names of the scores, 'prob_1' to 'prob_2'; got 0 at row 1"):
        load({"prob_1": [1, 2], "prob_2": [0, 1], "label": [1, 0]})


def test_shares_that_are_read_as_percentages_are_named():
    with pytest.warns(CalibrantWarning, match="No percentage in 'confidence' is above 1"):
        load({"confidence": [0.85, 0.9], "correct": [True, False]}, percent=True)
    load({"confidence": [0.85, 2], "correct": [True, False]}, percent=True)


def test_a_json_field_of_text_and_numbers_is_text(tmp_path):
    rows = [
        {"answer": 42, "p": {"a": 0.5, "b": 0.5}, "label": "a"},
        {"answer": "six", "p": {"a": "1", "b": 0}, "label": "b"},
    ]
    rows += [{"answer": None, "p": {"a": 1, "b": 0}, "label": "a"}, {"answer": True, "p": None, "label": "b"}]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = pa.table({name: text.open_jsonl(path).verbatim([name])[name] for name in ("answer", "p.a", "p.b")})
    assert table["answer"].to_pylist() == ["42", "six", None, "true"]
    assert table["p.a"].to_pylist() == ["0.5", "1", "1", None]
    assert table["p.b"].to_pylist() == [0.5, 0, 0, None]


def test_a_json_field_without_a_value_in_a_part_of_the_file_has_the_type_of_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "_JSON_CHUNK", 8)  # a line
    rows = [
        {"n": 1, "word": "x", "p": {"a": 1}, "mixed": {"a": 1}},
        {"n": "one", "word": None, "p": None, "mixed": "b"},
        {"n": 2, "word": None, "p": None, "mixed": None},
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    parts = [
        part.verbatim(["n", "word", "mixed"]) for part in text.jsonl_batches(path, ["n", "word", "p.a"], is_typed=True)
    ]
    assert [part["n"].to_pylist()[0] for part in parts] == ["1", "one", "2"]
    assert [part["word"].to_pylist()[0] for part in parts] == ["x", None, None]
    assert [part["mixed"].to_pylist()[0] for part in parts] == ['{"a": 1}', "b", None]


def test_a_percentage_just_outside_shows_that_it_is():
    with refused("must lie in 0..100", "got 100.00001 at"):
        load({"confidence": np.array([85, 100.00001]), "correct": [True, False]}, percent=True)
    with refused("'confidence' must lie in 0..1; got 1.00000001 at"):
        load({"confidence": np.array([0.85, 1.00000001]), "correct": [True, False]})


@pytest.fixture
def few_rows(monkeypatch):
    """Batches of two rows, and of a line of JSON."""
    monkeypatch.setattr(save_module, "_ROWS", (2, 2))
    monkeypatch.setattr(text, "_JSON_CHUNK", 8)


@pytest.fixture
def mapped(tmp_path):
    p = np.linspace(0.05, 0.95, 200)
    samples = Predictions.from_binary_probs(p, (np.arange(200) % 10 < 10 * p**2).astype(int))
    fitted = PlattScaling().fit(samples)
    save_map(fitted, tmp_path / "map.safetensors")
    return fitted, tmp_path / "map.safetensors"


@pytest.mark.parametrize("stream", [(), ("--stream",)])
@pytest.mark.parametrize(
    ("words", "option", "form"),
    [(SIGNED, (), r"[\d.e-]+\s?%"), (BARE, ("--percent",), r"[\d.e-]+"), (MIXED, ("--percent",), r"[\d.e-]+( ?%)?")],
    ids=["signed", "bare", "mixed"],
)
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl", ".npz"])
@pytest.mark.usefixtures("few_rows")
def test_apply_writes_percentages_back_as_they_were(tmp_path, calibrant, mapped, suffix, words, option, form, stream):  # noqa: F811
    path, out = written(tmp_path / f"in{suffix}", words), tmp_path / f"out{suffix}"
    fitted, file = mapped
    code, _, error = calibrant("apply", file, path, *BINARY, *option, *stream, "-o", out)
    assert code == 0, error
    given = load(path, positive="confidence", labels="correct", percent=bool(option))
    again = load(out, positive="confidence", labels="correct", percent=bool(option))
    torch.testing.assert_close(again.probs, fitted.transform(given).probs)
    if suffix == ".csv":
        lines = [line.split(",") for line in out.read_text(encoding="utf-8").splitlines()[1:]]
        assert [row for row, _, _ in lines] == [f"{row:03}" for row in range(6)]
        assert all(re.fullmatch(form, word) for _, word, _ in lines)
        assert ["%" in word for _, word, _ in lines] == ["%" in word for word in words]


@pytest.mark.parametrize("stream", [(), ("--stream",)])
@pytest.mark.usefixtures("few_rows")
def test_apply_keeps_decimal_commas_gaps_and_classes_in_percent(tmp_path, calibrant, mapped, stream):  # noqa: F811
    words = ["85%", "", "7%", "0,5%", "3%", "100%"]
    path, out = csv(tmp_path / "in.csv", words, mark=";"), tmp_path / "out.csv"
    options = (*BINARY, "--separator", "csv2", "--missing", "keep", *stream)
    code, _, error = calibrant("apply", mapped[1], path, *options, "-o", out)
    assert code == 0, error
    lines = [line.split(";")[1] for line in out.read_text().splitlines()[1:]]
    assert lines[1] == ""
    assert all(re.fullmatch(r"\d+,[\de-]+%", word) for word in lines[:1] + lines[2:])
    path.write_text("prob_a,prob_b,label\n85%,15%,a\n40%,60%,b\n")
    code, _, error = calibrant("apply", "temperature(value=1)", path, *stream, "-o", out)
    assert code == 0, error
    rows = [[float(word.rstrip("%")) for word in line.split(",")[:2]] for line in out.read_text().splitlines()[1:]]
    np.testing.assert_allclose(rows, [[85, 15], [40, 60]])


def test_apply_keeps_gaps_in_arrays_of_text(tmp_path, calibrant, mapped):  # noqa: F811
    path, out = written(tmp_path / "in.npz", ["85%", "", "7%", "5%", "3%", "100%"]), tmp_path / "out.npz"
    code, _, error = calibrant("apply", mapped[1], path, *BINARY, "--missing", "keep", "-o", out)
    assert code == 0, error
    assert [word[-1:] for word in np.load(out)["confidence"]] == ["%", "", "%", "%", "%", "%"]


def test_another_kind_of_file_has_shares(tmp_path, calibrant, mapped):  # noqa: F811
    path, out = csv(tmp_path / "in.csv", BARE), tmp_path / "out.npz"
    code, _, error = calibrant("apply", mapped[1], path, *BINARY, "--percent", "-o", out)
    assert code == 0, error
    given = load(path, positive="confidence", labels="correct", percent=True)
    torch.testing.assert_close(load(out).probs, mapped[0].transform(given).probs)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_many_files_give_the_numbers_of_shares(tmp_path, calibrant, suffix):  # noqa: F811
    rng = np.random.default_rng(0)
    percent = rng.integers(0, 101, 300)
    labels = np.where(rng.random(300) < percent / 100, "yes", "no").tolist()
    for part in range(3):
        rows = slice(100 * part, 100 * part + 100)
        signed = [f"{one}%" for one in percent[rows]]  # a file of its own form is unambiguous
        written(tmp_path / f"shares{part}{suffix}", (percent[rows] / 100).tolist(), labels[rows])
        written(tmp_path / f"percent{part}{suffix}", signed if part == 1 else percent[rows].tolist(), labels[rows])
        written(tmp_path / f"signed{part}{suffix}", signed, labels[rows])
    values = []
    for files, option in (("shares", ()), ("percent", ("--percent",)), ("signed", ())):
        report = tmp_path / f"{files}.json"
        pattern = tmp_path / f"{files}?{suffix}"
        code, _, error = calibrant("evaluate", pattern, *option, "--stream", "--resamples", 100, "--json", report)
        assert code == 0, error
        metrics = json.loads(report.read_text())["metrics"]
        values.append({name: metrics[name]["value"] for name in metrics})
    assert values[1] == values[2] == pytest.approx(values[0], nan_ok=True)


@pytest.mark.usefixtures("few_rows")
def test_signs_late_in_a_large_file_are_refused(tmp_path, calibrant):  # noqa: F811
    path = tmp_path / "a.jsonl"
    rows = [{"confidence": "85%" if row < 4 else 0.5, "correct": bool(row % 2)} for row in range(8)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, _, error = calibrant("evaluate", path, "--stream")
    assert code == 2
    assert "must have a % sign in every 'confidence' or in none" in " ".join(error.split())
    many = ["0.5" if row < 400_000 else "85%" for row in range(400_002)]  # more than a block of Arrow's
    path = csv(tmp_path / "a.csv", many, labels=["yes", "no"] * 200_001)
    code, _, error = calibrant("evaluate", path, "--stream")
    assert code == 2
    assert "got the text '85%' at line 400002. Write 0.85 for 85%" in " ".join(error.split())
    assert "pass --percent." in " ".join(error.split())


def test_a_report_of_rounded_percentages_names_those_of_0_and_100(tmp_path, calibrant):  # noqa: F811
    percent = np.repeat([0, 50, 70, 90, 100], [10, 90, 100, 100, 100])
    labels = ["yes" if row % 10 < 5 + place // 200 else "no" for place, row in enumerate(range(400))]
    path = csv(tmp_path / "a.csv", percent, labels=labels)
    code, out, error = calibrant("evaluate", path, *BINARY, "--percent", "--resamples", 100)
    assert code == 0, error
    shown = " ".join(out.split())
    assert "There is no calibration slope: 110 of the probabilities of “right” are 0 or 1." in shown
    assert "Of the 25 % of samples whose probability of being positive is 100 %, 60.0 % are" in shown
    assert "Accuracy: how often “right” is true where its probability is at least 50 %" in shown
    assert "→ Recalibrate the confidence: compare methods (calibrant compare)" in shown


def test_shares_and_thresholds_in_percent_show_what_they_are(tmp_path, calibrant):  # noqa: F811
    path = csv(tmp_path / "a.csv", SIGNED)
    for option, value in (("--threshold", 20), ("--error-rate", 5)):
        code, _, error = calibrant("evaluate", path, *BINARY, option, value)
        assert code == 2
        assert f"got {value}; {value} % is {value / 100:g}." in " ".join(error.split())

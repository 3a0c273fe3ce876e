"""Thirty files as people have them are evaluated from the command line, and give the numbers of the same samples."""

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "data" / "files"))
import make  # the script that writes the files

sys.path.pop(0)


def brier(probs, labels):
    return float(((probs - np.eye(probs.shape[1])[labels]) ** 2).sum(1).mean())


TEST = np.array(make.FOLDS) == "test"
TRUE = {
    **{name: (make.N, brier(make.PROBS, make.LABELS)) for name in make.THREE},
    **{name: (make.N, brier(np.stack([1 - make.P, make.P], 1), make.POSITIVE)) for name in make.TWO},
    **dict.fromkeys(make.TOP, (make.N, None)),
    **{name: (int(TEST.sum()), brier(make.PROBS[TEST], make.LABELS[TEST])) for name in make.SPLIT},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    make.write_files(folder)
    return folder


def test_there_are_thirty():
    assert len(TRUE) >= 30


@pytest.mark.parametrize("name", TRUE)
def test_a_file_is_evaluated(calibrant, folder, monkeypatch, name):
    monkeypatch.chdir(folder)
    arguments = {**make.THREE, **make.TWO, **make.TOP, **make.SPLIT}[name][1]
    code, _, err = calibrant("evaluate", name, *arguments, "--resamples", "100", "--json", "report.json")
    assert (code, err) == (0, "")
    report = json.loads(Path("report.json").read_text())
    n, true_brier = TRUE[name]
    assert report["n"] == n
    if true_brier is None:
        top = np.mean(make.PROBS.argmax(1) == make.LABELS)
        assert report["metrics"]["accuracy"]["value"] == pytest.approx(top, abs=1e-12)
    else:
        assert report["metrics"]["brier"]["value"] == pytest.approx(true_brier, abs=1e-5)


@pytest.mark.parametrize("options", [(), ("--stream",)])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("p.csv", "prob_0,prob_1,label\n0.5,0.5,0\n0.5,0.5,7\n", 3),
        ("p.csv", "prob_0,prob_1,label\r\n\r\n0.5,0.5,0\r\n\r\n0.5,0.5,7\r\n", 5),
        ("p.csv", 'prob_0,prob_1,label,text\n0.5,0.5,0,"a\n\n""b"""\n0.5,0.5,7,"c\n"\n', 5),
        ("p.jsonl", '{"probs": [0.5, 0.5], "label": 0}\n\n{"probs": [0.5, 0.5], "label": 7, "text": "\\""}\n', 3),
    ],
)
def test_a_row_of_text_is_named_by_its_line(calibrant, tmp_path, name, text, line, pack, options):
    path = tmp_path / (name if pack is bytes else f"{name}.gz")
    path.write_bytes(pack(text.encode()))
    code, _, error = calibrant("evaluate", path, *options)
    assert code == 2
    assert f"got 7 at line {line}." in " ".join(error.split())


def answers(path, ids, confidence=(0.9, 0.4, 0.8), correct=("ja", "nein", "ja")):
    """Write 60 answers with an id each, in the order of the ids."""
    rows = [
        {"id": f"q{number}", "confidence": confidence[number % 3], "correct": correct[number % 3]} for number in ids
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_same_answers_in_another_order_are_no_baseline(calibrant, tmp_path):
    new, same = (answers(tmp_path / name, range(60)) for name in ("new.jsonl", "same.jsonl"))
    moved = answers(tmp_path / "moved.jsonl", reversed(range(60)))
    others = answers(tmp_path / "others.jsonl", range(100, 160))  # not the same ids: they may be those of runs
    options = ("--positive-class", "ja", "--resamples", 100)
    for baseline in (same, others):
        assert calibrant("evaluate", new, "--baseline", baseline, *options)[0] == 0
    code, _, error = calibrant("evaluate", new, "--baseline", moved, *options)
    assert code == 2
    assert "Sort both by 'id'" in error


@pytest.mark.parametrize("stream", [(), ("--stream",)])
def test_the_word_for_correct_can_be_named(calibrant, tmp_path, stream):
    path = answers(tmp_path / "answers.jsonl", range(60))
    code, _, error = calibrant("evaluate", path, *stream)
    assert code == 2
    assert "among 'ja', 'nein'. Name the one that means true: --positive-class" in error
    target = tmp_path / "report.json"
    code, _, error = calibrant(
        "evaluate", path, *stream, "--positive-class", "ja", "--resamples", 100, "--json", target
    )
    assert code == 0, error
    assert json.loads(target.read_text())["metrics"]["accuracy"]["value"] == pytest.approx(2 / 3)


def test_the_first_line_that_excel_adds_is_named(calibrant, tmp_path):
    (tmp_path / "p.csv").write_text("sep=;\np;y\n0.2;0\n0.8;1\n")
    code, _, error = calibrant("evaluate", tmp_path / "p.csv", "--probs", "--positive", "p", "--labels", "y")
    assert code == 2
    assert "Delete that line" in error


def test_percentages_of_the_positive_class_are_named(calibrant, tmp_path):
    (tmp_path / "p.csv").write_text("p,y\n20,0\n80,1\n")
    code, _, error = calibrant("evaluate", tmp_path / "p.csv", "--probs", "--positive", "p", "--labels", "y")
    assert code == 2
    assert "If these are percentages, pass --percent" in error


def test_classes_in_another_order_are_named_before_their_labels(calibrant, tmp_path):
    rows = ["0.7,0.3,a", "0.2,0.8,b"] * 20
    (tmp_path / "new.csv").write_text("\n".join(["prob_a,prob_b,label", *rows]))
    (tmp_path / "old.csv").write_text("\n".join(["prob_b,prob_a,label", *rows]))
    code, _, error = calibrant("evaluate", tmp_path / "new.csv", "--baseline", tmp_path / "old.csv")
    assert code == 2
    assert "classes in one order" in error
